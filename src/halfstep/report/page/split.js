// Where the error of a layer comes from.

// Parts of a bar of 100 %: sources side by side, cross terms from their end back to the total.
function splitParts(split) {
  const share = (energy) => (100 * Number(energy)) / Number(split.total);
  let end = 0;
  const part = (row, source, energy) => {
    const from = end;
    end += share(energy);
    return { row, source, from, to: end, share: share(energy) };
  };
  const sources = Object.entries(split.sources).map((entry) => part("sources", ...entry));
  const cross = part("cross terms", "cross terms", split.cross);
  return [...sources, cross, { row: "total", source: "total", from: 0, to: 100, share: 100 }];
}

function splitTable(split, signal) {
  const decibelsOf = (energy) => decibels(10 * Math.log10(Number(signal) / Number(energy)));
  const line = ([source, energy]) => make("tr", {},
    make("th", { scope: "row" }, swatch(source), source),
    make("td.number", {}, percent(Number(energy) / Number(split.total))),
    make("td.number", {}, energy > 0 ? decibelsOf(energy) : ""));
  const heads = ["source", "share", "as SQNR"].map((text, place) =>
    make(place ? "th.number" : "th", { scope: "col" }, text));
  const rest = [["cross terms", split.cross], ["total", split.total]];
  const lines = [...Object.entries(split.sources), ...rest].map(line);
  return make("table.shares", {},
    make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...lines));
}

const swatch = (source) =>
  make("span.swatch", { style: `background:var(--${source.replaceAll(" ", "-")})` });

const ORDER = "Sources are switched on one after the other. "
  + "Cross terms are what they add to, or take from, each other.";
const LABEL = "Stacked bar of the sources of the error; the table beside it has the numbers.";

function splitBlock({ split, local }, plots) {
  if (!split || !local) return null;
  const title = "Where its error comes from";
  const told = (text) => block(title, make("p", {}, text));
  const energies = [...Object.values(split.sources), split.cross, split.total];
  if (!energies.every(isFiniteNumber)) {
    return told("The error is not finite, so it has no parts: look for overflow in this layer.");
  }
  if (Number(split.total) === 0) return told("This layer alone makes no error.");
  const chart = make("div.chart");
  plots.push(() => draw(chart, LABEL, "split", { parts: splitParts(split) }));
  return block(title, make("p.muted", {}, ORDER),
    make("div.pair", {}, chart, splitTable(split, local.signal)));
}
