// Where the error of a layer comes from.

const colorOf = (source) => `var(--${source.replaceAll(" ", "-")})`;

// Parts of a bar of 100 %: sources side by side, cross terms from their end back to the total.
function splitParts(split) {
  let end = 0;
  const share = (energy) => (100 * Number(energy)) / Number(split.total);
  const parts = Object.entries(split.sources).map(([source, energy]) => {
    const from = end;
    end += share(energy);
    return { row: "sources", source, from, to: end, share: share(energy) };
  });
  parts.push({ row: "cross terms", source: "cross", from: end, to: end + share(split.cross), share: share(split.cross) });
  parts.push({ row: "total", source: "total", from: 0, to: 100, share: 100 });
  return parts;
}

function splitSpec(split) {
  const names = [...Object.keys(split.sources), "cross", "total"];
  const color = field("source", "nominal", { scale: { domain: names, range: names.map(colorOf) }, legend: null });
  const x = field("from", "quantitative", { ...axis("% of the layer's error", { tickCount: 6 }) });
  const y = field("row", "nominal", { sort: ["sources", "cross terms", "total"], ...axis(null, { labelFontSize: 12, domain: false, ticks: false, labelPadding: 6, labelColor: "var(--text)" }) });
  const tooltip = [{ field: "source" }, { field: "share", title: "% of the error", format: ".3g" }];
  return {
    height: { step: 34 },
    data: { values: splitParts(split) },
    mark: { type: "bar", height: 20, stroke: "var(--card)", strokeWidth: 0.5 },
    encoding: { x, x2: { field: "to" }, y, color, tooltip },
  };
}

function splitTable(split, signal) {
  const line = (source, energy, name) => make("tr", {},
    make("th", { scope: "row" }, make("span.swatch", { style: `background:${colorOf(source)}` }), name),
    make("td.number", {}, percent(Number(energy) / Number(split.total))),
    make("td.number", {}, energy > 0 ? decibels(10 * Math.log10(Number(signal) / Number(energy))) : ""));
  const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "source"),
    make("th.number", { scope: "col" }, "share"), make("th.number", { scope: "col" }, "alone")));
  const sources = Object.entries(split.sources).map(([source, energy]) => line(source, energy, source));
  const rest = [line("cross", split.cross, "cross terms"), line("total", split.total, "total")];
  return make("table.shares", {}, head, make("tbody", {}, ...sources, ...rest));
}

function splitBlock(layer, plots) {
  const split = layer.split;
  if (!split || !layer.local) return null;
  const title = "Where its error comes from";
  const energies = [...Object.values(split.sources), split.cross, split.total];
  if (!energies.every(isFiniteNumber)) return block(title, make("p", {}, "The error is not finite, so it has no parts: look for overflow in this layer."));
  if (Number(split.total) === 0) return block(title, make("p", {}, "This layer alone makes no error."));
  const chart = make("div.chart");
  plots.push(() => draw(chart, "Stacked bar of the sources of the error; the table beside it has the numbers.", splitSpec(split)));
  return block(title,
    make("p.muted", {}, "Sources are switched on one after the other. Cross terms are what they add to, or take from, each other."),
    make("div.pair", {}, chart, splitTable(split, layer.local.signal)));
}
