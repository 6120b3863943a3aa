// Plots with Vega-Lite, drawn as SVG. Colors are variables of the style sheet, so that the theme
// and print change them without drawing again.

const CONFIG = {
  background: null,
  font: "system-ui, -apple-system, Segoe UI, Roboto, Liberation Sans, sans-serif",
  view: { stroke: null },
  axis: {
    domainColor: "var(--line)", gridColor: "var(--line)", tickColor: "var(--line)",
    labelColor: "var(--muted)", titleColor: "var(--muted)", labelFontSize: 11, titleFontSize: 12,
    titleFontWeight: "normal", gridOpacity: 0.7, labelOverlap: true,
  },
  legend: { labelColor: "var(--text)", titleColor: "var(--muted)", labelFontSize: 12, symbolSize: 80 },
};

// Draws the plot into an element; the view, when it is there. `label` says what it shows.
async function draw(element, label, spec) {
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", label);
  const whole = {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    width: "container", autosize: { type: "fit-x", contains: "padding" }, config: CONFIG, ...spec,
  };
  const options = { renderer: "svg", actions: false, defaultStyle: false, mode: "vega-lite", tooltip: { theme: "custom", disableDefaultStyle: true } };
  const { view } = await vegaEmbed(element, whole, options);
  return view;
}

const field = (name, type, more = {}) => ({ field: name, type, ...more });
const withData = (layers) => layers.filter((layer) => layer.data.values.length);
const axis = (title, more = {}) => ({ axis: { title, ...more } });
