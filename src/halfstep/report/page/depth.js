// The error along the depth of the network.

const SERIES = { alone: "var(--alone)", "so far": "var(--sofar)" };
const FINE = 30;

// A row for each error that is a number; exact layers have no place on a scale of decibels.
function depthRows(layers) {
  const rows = [];
  layers.forEach((layer, place) => {
    const name = layer.layer || layer.value;
    for (const [series, error] of [["alone", layer.local], ["so far", layer.accumulated]]) {
      if (!error || !isFiniteNumber(error.sqnr)) continue;
      rows.push({ place, name, series, sqnr: error.sqnr, op: layer.op, verdict: layer.verdict });
    }
  });
  return rows;
}

const TOOLTIP = [
  { field: "name", title: "layer" }, { field: "op" }, { field: "series", title: "quantized" },
  { field: "sqnr", title: "SQNR in dB", format: ".1f" }, { field: "verdict" },
];

function depthSpec(rows, count) {
  const x = field("place", "quantitative", {
    scale: { domain: [-0.5, Math.max(count - 0.5, 0.5)], nice: false },
    ...axis("layer, in the order of execution", { tickMinStep: 1, grid: false, format: "d" }),
  });
  const y = field("sqnr", "quantitative", { scale: { zero: false }, ...axis("SQNR in dB") });
  const color = field("series", "nominal", {
    scale: { domain: Object.keys(SERIES), range: Object.values(SERIES) },
    legend: { title: null, orient: "top", direction: "horizontal" },
  });
  const shape = field("series", "nominal", {
    scale: { domain: Object.keys(SERIES), range: ["circle", "square"] },
    legend: { title: null, orient: "top", direction: "horizontal" },
  });
  return {
    height: 260,
    data: { name: "errors", values: rows },
    params: [{ name: "chosen", value: -1 }],
    layer: [
      { data: { values: [{}] }, mark: { type: "rule", color: "var(--accent)", strokeWidth: 2, opacity: 0.6 }, encoding: { x: { datum: { expr: "chosen" }, type: "quantitative" } } },
      { data: { values: [{ y: FINE }] }, mark: { type: "rule", color: "var(--fine)", strokeDash: [4, 4] }, encoding: { y: field("y", "quantitative") } },
      { mark: { type: "line", strokeWidth: 1.5 }, encoding: { x, y, color } },
      { mark: { type: "point", filled: true, size: 38, opacity: 1, cursor: "pointer" }, encoding: { x, y, color, shape, tooltip: TOOLTIP } },
    ],
  };
}

// Draws it; a click opens the nearest layer. Returns what marks a layer in it.
async function drawDepth(element, layers, open) {
  const rows = depthRows(layers);
  if (!rows.length) {
    element.append(make("p", {}, "There is no error to plot: no layer was measured to differ by a finite amount."));
    return () => {};
  }
  const label = "Plot of the SQNR of each layer, alone and so far; the table below has the same numbers.";
  const view = await draw(element, label, depthSpec(rows, layers.length));
  view.addEventListener("click", (event) => {
    const left = element.querySelector("svg").getBoundingClientRect().left + view.origin()[0];
    const place = Math.round(view.scale("x").invert(event.clientX - left));
    open(Math.min(Math.max(place, 0), layers.length - 1));
  });
  return (place) => view.signal("chosen", place).runAsync();
}
