// The panel of one layer.

const NOTHING = "No tensor of this layer is quantized, so there are no integers to show.";

function errorFacts(title, error) {
  if (!error) return [];
  const cosine = isFiniteNumber(error.cosine) ? Number(error.cosine).toFixed(5) : "not finite";
  return [
    [`${title}: SQNR`, decibels(error.sqnr)],
    [`${title}: cosine`, cosine],
    [`${title}: largest error`, number(error.largest)],
  ];
}

function layerFacts(layer) {
  const size = layer.before ? `${bytes(layer.before)} → ${bytes(layer.after)}` : "";
  const isTimed = layer.ms !== null && layer.float_ms !== null;
  const time = isTimed ? `${number(layer.float_ms)} ms → ${number(layer.ms)} ms` : "";
  const overflow = layer.bias_overflow.length ? `channels ${listed(layer.bias_overflow)}` : "";
  return facts([
    ["operator", layer.op], ["runs as", layer.runs], ["verdict", layer.verdict], ["why", layer.why],
    ...errorFacts("alone", layer.local), ...errorFacts("so far", layer.accumulated),
    ["bytes", size], [layer.is_slower ? "time (slower than in float)" : "time", time],
    ["fused with it", listed(layer.fused)], ["reads", listed(layer.reads)],
    ["bias beyond int32 in ONNX", overflow],
  ]);
}

const told = ({ cause, action, evidence }) => make("div.told", {},
  make("p", {}, make("b", {}, cause), `. ${action}`), make("p.muted", {}, evidence));

function pager(place, open) {
  const button = (title, isOn, go) => {
    const made = make("button", { type: "button" }, title);
    made.disabled = !isOn;
    made.addEventListener("click", go);
    return made;
  };
  const back = () => (document.querySelector("tr.selected .open") ?? byId("layers")).focus();
  return make("div.pager.control", {},
    button("Previous", place > 0, () => open(place - 1)),
    button("Next", place < DATA.layers.length - 1, () => open(place + 1)),
    button("To the table", true, back));
}

// Fills the panel, and draws its plots when they have their width.
async function showLayer(place, open) {
  const layer = DATA.layers[place];
  const plots = [];
  const tensor = (title, at) => valuesBlock(title, DATA.tensors[at], plots);
  const blocks = [
    splitBlock(layer, plots), ...layer.inputs.map((at) => tensor("Input", at)),
    tensor("Weight", layer.weight), tensor("Output", layer.output),
  ].filter(Boolean);
  const order = `number ${layer.depth} in the order of execution; ${DATA.layers.length} in all`;
  byId("layer-title").textContent = nameOf(layer);
  byId("layer").hidden = false;
  byId("panel").replaceChildren(
    make("div.panel-head", {}, make("p.muted", {}, order), pager(place, open)),
    layerFacts(layer), ...layer.advice.map(told),
    ...(blocks.length ? blocks : [make("p.muted", {}, NOTHING)]));
  await Promise.all(plots.map((plot) => plot()));
}
