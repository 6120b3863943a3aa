// Puts the parts together.

const DATA = JSON.parse(byId("data").textContent);
let markDepth = () => {};

// Opens a layer and goes to it.
async function open(place) {
  await select(place);
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  byId("layer").focus({ preventScroll: true });
  byId("layer").scrollIntoView({ block: "start", behavior: isCalm ? "auto" : "smooth" });
  byId("opened").textContent = `Opened ${byId("layer-title").textContent}`;
}

async function select(place) {
  markRow(place);
  markDepth(place);
  await showLayer(place, open);
}

function startTheme() {
  const button = byId("theme");
  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colors`);
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  show(system.matches ? "dark" : "light");
  system.addEventListener("change", () => show(system.matches ? "dark" : "light"));
  button.addEventListener("click", () => show(button.textContent.toLowerCase()));
}

// On paper all is open.
function startPrint() {
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
}

function startLinks() {
  for (const link of document.querySelectorAll("a[data-layer]")) {
    const { layer: name } = link.dataset;
    const place = DATA.layers.findIndex((layer) => [layer.layer, layer.value].includes(name));
    if (place < 0) continue;
    link.addEventListener("click", (event) => { event.preventDefault(); open(place); });
  }
}

function startCopy() {
  const button = byId("copy");
  if (!button) return;
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(byId("recipe"));
    try {
      await navigator.clipboard.writeText(byId("recipe").textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected";
    }
  });
}

async function start() {
  startTheme();
  startPrint();
  startLinks();
  startCopy();
  if (!DATA.layers.length) {
    byId("depth-section").hidden = true;
    return;
  }
  startTable(open);
  markDepth = await drawDepth(byId("depth"), DATA.layers, open);
  await select(Number(byId("layer").dataset.first));
}

start().finally(() => { document.documentElement.dataset.ready = "true"; });
