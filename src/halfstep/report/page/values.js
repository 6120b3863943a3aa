// The values of a tensor: what is known of them, their histogram with the grid over it, and the
// range of each channel.

const MOST_LINES = 40;
const MOST_STEPS = 1024;

const reach = (values) => [toNumber(values.grid_low), toNumber(values.grid_high)];
const hasOneScale = (values) => values.scale.length === 1;

function limits(values) {
  const [low, high] = reach(values);
  const both = [{ x: low, what: "clips below" }, { x: high, what: "clips above" }];
  return both.filter(({ x }) => isFinite(x));
}

// The values that one scale stands for; of many scales there is no one grid.
function gridOf(values) {
  const [low, high] = reach(values);
  const scale = Number(values.scale[0]);
  const steps = Math.round((high - low) / scale);
  if (!hasOneScale(values) || !(steps > 0 && steps <= MOST_STEPS)) return [];
  return Array.from({ length: steps + 1 }, (_, step) => ({ x: low + step * scale }));
}

function binsOf({ low, high, counts }) {
  const width = (Number(high) - Number(low)) / counts.length || 1;
  const edge = (place) => Number(low) + place * width;
  return counts
    .map((count, place) => ({ count, from: edge(place), to: edge(place + 1) }))
    .filter(({ count, from }) => count > 0 && isFinite(from));
}

function drawHistogram(chart, values, bins) {
  const label = `Histogram of ${values.name}: ${range(values.low, values.high)}.`;
  const clips = limits(values);
  const ends = [bins[0].from, bins.at(-1).to, ...clips.map(({ x }) => x)];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const room = (high - low || 1) * 0.03;
  // A few steps are lines through the plot; many are a ruler at its foot.
  const grid = gridOf(values);
  const [lines, ruler] = grid.length > MOST_LINES ? [[], grid] : [grid, []];
  const most = Math.max(...bins.map(({ count }) => count));
  const numbers = { left: low - room, right: high + room, most };
  return draw(chart, label, "histogram", { bins, lines, ruler, limits: clips }, numbers);
}

function channelRows(values) {
  const kinds = new Map(values.outliers.map((channel) => [channel, "outlier"]));
  values.dead.forEach((channel) => kinds.set(channel, "always zero"));
  return values.channel_low
    .map((low, channel) => ({
      channel, from: channel - 0.45, to: channel + 0.45,
      low: Number(low), high: Number(values.channel_high[channel]), kind: kinds.get(channel),
    }))
    .filter((row) => isFinite(row.low) && isFinite(row.high));
}

function drawRanges(chart, values, rows) {
  const label = `Ranges of the ${values.channel_low.length} channels of ${values.name}.`;
  const [channels, outliers, dead] = [undefined, "outlier", "always zero"]
    .map((kind) => rows.filter((row) => row.kind === kind));
  const clips = hasOneScale(values) ? limits(values) : [];
  const last = values.channel_low.length - 1;
  return draw(chart, label, "ranges", { channels, outliers, dead, limits: clips }, { last });
}

// A captioned plot, or words where there is nothing to draw.
function plotPart(values, plots, caption, rows, nothing, drawIt) {
  const chart = make("div.chart");
  if (rows.length) plots.push(() => drawIt(chart, values, rows));
  else chart.append(make("p", {}, nothing));
  return make("div", {}, make("h4", {}, caption), chart);
}

function scaleFacts(values) {
  if (hasOneScale(values)) {
    const [zero] = values.zero_point;
    return [["scale", number(values.scale[0])], ["zero point", minus(String(zero ?? 0))]];
  }
  const scales = values.scale.map(Number).sort((one, two) => one - two);
  if (!scales.length) return [];
  const [low, high] = [scales[0], scales.at(-1)];
  return [
    [`${scales.length} scales`, `${number(low)} to ${number(high)}`],
    ["scale spread", `× ${number(high / low)}`],
  ];
}

// The share of the format's reach that the values take.
function used(values) {
  const [from, to] = reach(values);
  const span = Math.min(toNumber(values.high), to) - Math.max(toNumber(values.low), from);
  return hasOneScale(values) && isFinite(span) ? percent(Math.max(span, 0) / (to - from)) : "";
}

function valueFacts(values) {
  const channels = (which) => (which.length ? `${which.length}: ${listed(which)}` : "");
  return facts([
    ["shape", values.shape.join(" × ") || "scalar"],
    ["format", values.spec],
    ["values", range(values.low, values.high)],
    ["format reaches", range(...reach(values))],
    ["of which is used", used(values)],
    ["saturated", percent(values.saturated)],
    ...scaleFacts(values),
    ["outlier channels", channels(values.outliers)],
    ["channels always zero", channels(values.dead)],
  ]);
}

function valuesBlock(title, values, plots) {
  if (!values) return null;
  const caption = hasOneScale(values)
    ? "Values, the grid, and where it clips"
    : `Values, and the widest reach of ${values.scale.length} scales`;
  const bins = binsOf(values.histogram);
  const parts = [[caption, bins, "No finite values were counted.", drawHistogram]];
  if (values.channel_low.length > 1) {
    const rows = channelRows(values);
    parts.push(["Range of each channel", rows, "No channel has a finite range.", drawRanges]);
  }
  const pair = make("div.pair", {}, ...parts.map((part) => plotPart(values, plots, ...part)));
  return block(`${title}: ${values.name}`, valueFacts(values), pair, weightBlock(values));
}
