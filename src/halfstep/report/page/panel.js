// The panel of one layer.

function errorFacts(title, error) {
  if (!error) return [];
  return [[`${title}: SQNR`, decibels(error.sqnr)], [`${title}: cosine`, isFiniteNumber(error.cosine) ? Number(error.cosine).toFixed(5) : "not finite"], [`${title}: largest error`, number(error.largest)]];
}

function gains(layer) {
  const size = layer.before ? `${bytes(layer.before)} → ${bytes(layer.after) || "0 B"}` : "";
  const time = toNumber(layer.ms) === null ? "" : `${milliseconds(layer.float_ms)} → ${milliseconds(layer.ms)}`;
  return [["bytes", size], [layer.is_slower ? "time (slower than in float)" : "time", time]];
}

function layerFacts(layer) {
  return facts([
    ["operator", layer.op], ["runs as", layer.runs], ["verdict", layer.verdict], ["why", layer.why],
    ...errorFacts("alone", layer.local), ...errorFacts("so far", layer.accumulated), ...gains(layer),
    ["fused with it", listed(layer.fused)], ["reads", listed(layer.reads)],
    ["bias beyond int32 in ONNX", layer.bias_overflow.length ? `channels ${listed(layer.bias_overflow)}` : ""],
  ]);
}

const told = (advice) => make("div.told", {}, make("p", {}, make("b", {}, advice.cause), `. ${advice.action}`), make("p.muted", {}, advice.evidence));

function scaleFacts(values) {
  if (!values.scale.length) return [];
  if (values.scale.length === 1) return [["scale", number(values.scale[0])], ["zero point", minus(String(values.zero_point[0] ?? 0))]];
  const scales = values.scale.map(Number);
  const [low, high] = [Math.min(...scales), Math.max(...scales)];
  return [[`${scales.length} scales`, `${number(low)} to ${number(high)}`], ["scale spread", `× ${number(high / low)}`]];
}

function valueFacts(values) {
  const range = (low, high) => (isFiniteNumber(low) && isFiniteNumber(high) ? `${number(low)} to ${number(high)}` : "not finite");
  const [low, high] = [toNumber(values.low), toNumber(values.high)];
  const [from, to] = reach(values);
  const used = (Math.min(high, to) - Math.max(low, from)) / (to - from);
  const channels = (which) => (which.length ? `${which.length}: ${listed(which)}` : "");
  return facts([
    ["shape", values.shape.join(" × ") || "scalar"], ["format", values.spec],
    ["values", range(low, high)], ["format reaches", range(from, to)],
    ["of which is used", values.scale.length === 1 && Number.isFinite(used) ? percent(Math.max(used, 0)) : ""],
    ["saturated", percent(values.saturated)], ...scaleFacts(values),
    ["outlier channels", channels(values.outliers)], ["channels always zero", channels(values.dead)],
  ]);
}

function histogramPart(values, plots) {
  const caption = values.scale.length === 1 ? "Values, the grid, and where it clips" : `Values, and the widest reach of ${values.scale.length} scales`;
  const chart = make("div.chart");
  const finite = [values.histogram.low, values.histogram.high, values.low, values.high].every(isFiniteNumber);
  if (!finite || !binsOf(values.histogram).length) chart.append(make("p", {}, "No finite values were counted."));
  else plots.push(() => draw(chart, `Histogram of ${values.name}: from ${number(values.low)} to ${number(values.high)}.`, histogramSpec(values)));
  return make("div", {}, make("h4", {}, caption), chart);
}

function rangesPart(values, plots) {
  if (values.channel_low.length < 2) return null;
  const chart = make("div.chart");
  if (!channelRows(values).length) chart.append(make("p", {}, "No channel has a finite range."));
  else plots.push(() => draw(chart, `Ranges of the ${values.channel_low.length} channels of ${values.name}.`, rangesSpec(values)));
  return make("div", {}, make("h4", {}, "Range of each channel"), chart);
}

function valuesBlock(title, place, plots) {
  if (place === null || place === undefined) return null;
  const values = DATA.tensors[place];
  return block(`${title}: ${values.name}`, valueFacts(values),
    make("div.pair", {}, histogramPart(values, plots), rangesPart(values, plots)), weightBlock(values));
}

function pager(place, open) {
  const to = (title, next) => {
    const button = make("button", { type: "button", "aria-label": `${title} layer` }, title);
    button.disabled = !DATA.layers[next];
    button.addEventListener("click", () => open(next));
    return button;
  };
  const back = make("button", { type: "button" }, "To the table");
  back.addEventListener("click", () => (document.querySelector("tr.selected .open") || byId("layers")).focus());
  return make("div.pager.control", {}, to("Previous", place - 1), to("Next", place + 1), back);
}

const NOTHING = "No tensor of this layer is quantized, so there are no integers to show.";

// Fills the panel, and draws its plots when they have their width.
async function showLayer(place, open) {
  const layer = DATA.layers[place];
  const plots = [];
  const blocks = [splitBlock(layer, plots), ...layer.inputs.map((input) => valuesBlock("Input", input, plots)),
    valuesBlock("Weight", layer.weight, plots), valuesBlock("Output", layer.output, plots)].filter(Boolean);
  byId("layer-title").textContent = layer.layer || layer.value;
  byId("layer").dataset.verdict = layer.verdict;
  byId("layer").hidden = false;
  const position = make("p.muted", {}, `layer ${place + 1} of ${DATA.layers.length}`);
  byId("panel").replaceChildren(make("div.panel-head", {}, position, pager(place, open)), layerFacts(layer),
    ...layer.advice.map(told), ...(blocks.length ? blocks : [make("p.muted", {}, NOTHING)]));
  await Promise.all(plots.map((plot) => plot()));
}
