// The table of layers: sorted by any column, filtered by text, verdict and the way of running.

const bodyRows = () => [...document.querySelectorAll("#table tbody tr")];

function compare(first, second) {
  const gap = Number(first) - Number(second);
  return Number.isNaN(gap) ? first.localeCompare(second, "en", { numeric: true }) : gap;
}

// What has nothing to sort by comes last in either direction.
function sortBy(column, direction) {
  const key = (row) => row.cells[column].dataset.sort;
  const sign = direction === "ascending" ? 1 : -1;
  const sorted = bodyRows().sort((first, second) => {
    const [one, two] = [key(first), key(second)];
    if (one === "" || two === "") return (one === "") - (two === "");
    return sign * compare(one, two);
  });
  document.querySelector("#table tbody").append(...sorted);
  document.querySelectorAll("#table thead th").forEach((head, place) => {
    head.setAttribute("aria-sort", place === column ? direction : "none");
  });
}

function toggleSort(column) {
  const head = document.querySelectorAll("#table thead th")[column];
  sortBy(column, head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
}

function filterRows() {
  const [text, verdict, runs] = ["find", "verdict", "runs"].map((id) => byId(id).value);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = bodyRows();
  const fits = ({ dataset, textContent }) =>
    (!verdict || dataset.verdict === verdict) && (!runs || dataset.runs === runs)
    && words.every((word) => textContent.toLowerCase().includes(word));
  for (const row of rows) row.hidden = !fits(row);
  const left = rows.filter((row) => !row.hidden).length;
  byId("count").textContent = `${left} of ${rows.length}`;
  byId("none").hidden = left > 0;
}

function moveFocus(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.classList.contains("open")) return;
  event.preventDefault();
  const rows = bodyRows().filter((row) => !row.hidden);
  const next = rows[rows.indexOf(event.target.closest("tr")) + step];
  if (next) next.querySelector(".open").focus();
}

function markRow(place) {
  for (const row of bodyRows()) {
    const isOpen = Number(row.dataset.place) === place;
    row.classList.toggle("selected", isOpen);
    row.querySelector(".open").setAttribute("aria-current", isOpen);
  }
}

function startTable(open) {
  document.querySelectorAll("#table thead button").forEach((button, column) => {
    button.addEventListener("click", () => toggleSort(column));
  });
  byId("sort").addEventListener("change", ({ target: { value } }) => value && toggleSort(+value));
  for (const id of ["find", "verdict", "runs"]) byId(id).addEventListener("input", filterRows);
  const body = document.querySelector("#table tbody");
  body.addEventListener("keydown", moveFocus);
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row) open(Number(row.dataset.place));
  });
}
