// The integers of a weight: a grid to walk through by pointer or arrow keys.

// The place of a scale: one for all, one for each channel (a row here), or one for each group.
function scalePlace(values, row, column) {
  const rows = values.shape[values.axis] || 1;
  const count = values.scale.length;
  if (count === 1) return 0;
  if (count === rows) return row;
  const each = count / rows;
  const inside = values.shape.slice(2).reduce((all, size) => all * size, 1);
  const groups = each / inside;
  if (values.axis !== 0 || !Number.isInteger(groups)) return null;
  const group = Math.floor((Math.floor(column / inside) * groups) / values.shape[1]);
  return row * each + group * inside + (column % inside);
}

function describe(values, row, column) {
  const code = values.integers[row][column];
  const place = scalePlace(values, row, column);
  const where = `channel ${row}, value ${column}: code ${minus(String(code))}`;
  if (place === null) return where;
  const scale = Number(values.scale[place]);
  const zero = Number(values.zero_point.length === 1 ? values.zero_point[0] : values.zero_point[place] ?? 0);
  return `${where}, scale ${number(scale)}, zero point ${minus(String(zero))}, in float ${number((code - zero) * scale)}`;
}

function rowHead(values, row) {
  const place = scalePlace(values, row, 0);
  const many = values.scale.length > (values.shape[values.axis] || 1);
  const scale = place === null ? "" : ` × ${number(values.scale[place])}${many ? " …" : ""}`;
  const zero = place !== null && Number(values.zero_point[place] ?? 0) ? `, zero ${values.zero_point[place]}` : "";
  return make("th", { scope: "row" }, `${row}${scale}${zero}`);
}

function codeCell(values, row, column, most) {
  const code = values.integers[row][column];
  const zero = Number(values.zero_point[scalePlace(values, row, column) ?? 0] ?? 0);
  const far = (code - zero) / most;
  const kind = code === zero ? "td.quiet" : far < 0 ? "td.low" : "td";
  return make(kind, { role: "gridcell", tabindex: row || column ? "-1" : "0", "data-at": `${row},${column}`, style: `--t:${Math.min(Math.abs(far), 1).toFixed(2)}` }, minus(String(code)));
}

function codesTable(values) {
  const { integers } = values;
  const zeros = values.zero_point.map(Number);
  const most = Math.max(1, ...integers.flat().map((code) => Math.abs(code - (zeros[0] || 0))));
  const head = make("tr", {}, make("th", { scope: "col" }, "channel × scale"), ...integers[0].map((_, column) => make("th", { scope: "col" }, column)));
  const body = integers.map((codes, row) => make("tr", {}, rowHead(values, row), ...codes.map((_, column) => codeCell(values, row, column, most))));
  return make("table", { role: "grid", "aria-label": "Integers of the weight" }, make("thead", {}, head), make("tbody", {}, ...body));
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e6], End: [0, 1e6], PageUp: [-10, 0], PageDown: [10, 0] };

function walk(table, event, [rows, columns]) {
  const cell = event.target.closest("td");
  if (!cell || !STEPS[event.key]) return;
  event.preventDefault();
  const [row, column] = cell.dataset.at.split(",").map(Number);
  const [down, right] = STEPS[event.key];
  const within = (place, count) => Math.min(Math.max(place, 0), count - 1);
  const next = table.querySelector(`[data-at="${within(row + down, rows)},${within(column + right, columns)}"]`);
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function whichPart(values) {
  const rows = values.shape[values.axis] || 1;
  const all = values.shape.reduce((product, size) => product * size, 1) / rows;
  const [shownRows, shownAll] = [values.integers.length, values.integers[0].length];
  const part = (shown, whole, what) => (shown < whole ? `the first ${shown} of ${whole} ${what}` : `all ${whole} ${what}`);
  return `Shown: ${part(shownRows, rows, "channels")}, ${part(shownAll, all, "values of each")}.`;
}

function weightBlock(values) {
  if (!values.integers.length || !values.integers[0].length) return null;
  const table = codesTable(values);
  const readout = make("output.readout", { "aria-live": "polite" }, describe(values, 0, 0));
  const tell = (event) => {
    const cell = event.target.closest("td");
    if (cell) readout.textContent = describe(values, ...cell.dataset.at.split(",").map(Number));
  };
  table.addEventListener("pointerover", tell);
  table.addEventListener("focusin", tell);
  table.addEventListener("keydown", (event) => walk(table, event, [values.integers.length, values.integers[0].length]));
  return make("div", { id: "weights" }, make("h4", {}, "Its integers"),
    make("p.muted", {}, whichPart(values), make("span.control", {}, " Point at a cell, or walk with the arrow keys.")),
    make("div.codes", { tabindex: "-1" }, table), readout);
}
