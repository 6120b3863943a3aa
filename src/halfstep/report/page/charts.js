// Plots with Vega-Lite, drawn as SVG. What each looks like is plain data, and its colors are
// variables of the style sheet, so that the theme and print change them without drawing again.

const { look: LOOK, ...PLOTS } = JSON.parse(byId("plots").textContent);
const OPTIONS = {
  actions: false, defaultStyle: false, mode: "vega-lite", renderer: "svg",
  tooltip: { disableDefaultStyle: true, theme: "custom" },
};

// Draws a plot by its name into an element; the view, when it is there. `label` says what it
// shows, `datasets` are its rows by name, and `numbers` what its expressions name.
async function draw(element, label, name, datasets, numbers = {}) {
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", label);
  const spec = { ...LOOK, ...PLOTS[name], datasets };
  spec.params = Object.entries(numbers).map(([key, value]) => ({ name: key, value }));
  // A layer without rows has no range, which Vega would warn of.
  spec.layer = spec.layer?.filter(({ data }) => !data.name || datasets[data.name].length);
  if (!spec.layer) delete spec.layer;
  const { view } = await vegaEmbed(element, spec, OPTIONS);
  return view;
}
