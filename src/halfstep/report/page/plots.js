// The values of a tensor: their histogram with the grid over it, and the range of each channel.

const MOST_LINES = 40;

const reach = (values) => [toNumber(values.grid_low), toNumber(values.grid_high)];
const extent = (values) => [toNumber(values.low), toNumber(values.high), ...reach(values)].filter(Number.isFinite);

// The values that one scale stands for; of many scales there is no one grid.
function gridOf(values) {
  if (values.scale.length !== 1) return [];
  const [low, high] = reach(values);
  const scale = Number(values.scale[0]);
  const steps = Math.round((high - low) / scale);
  if (!(steps > 0 && steps <= 1024)) return [];
  return Array.from({ length: steps + 1 }, (_, step) => ({ x: low + step * scale }));
}

function binsOf(histogram) {
  const low = Number(histogram.low);
  const width = (Number(histogram.high) - low) / histogram.counts.length || 1;
  return histogram.counts
    .map((count, place) => ({ count, from: low + place * width, to: low + (place + 1) * width }))
    .filter((bin) => bin.count > 0);
}

const limits = (values) => reach(values).filter(Number.isFinite).map((x, place) => ({ x, what: place ? "clips above" : "clips below" }));

function histogramSpec(values) {
  const bins = binsOf(values.histogram);
  const grid = gridOf(values);
  const most = Math.max(...bins.map((bin) => bin.count));
  const x = (name) => field(name, "quantitative", { scale: { domain: padded(extent(values)), nice: false, zero: false }, ...axis("value", { grid: false, tickCount: 6 }) });
  const y = field("count", "quantitative", { scale: { type: "log", domain: [0.5, most * 1.5], nice: false }, ...axis("how many (log scale)", { values: [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9], format: "~s" }) });
  // A few steps are lines through the plot; many are a ruler below it.
  const height = grid.length <= MOST_LINES ? {} : { y: { value: 190 }, y2: { value: 182 } };
  return {
    height: 190,
    layer: withData([
      { data: { values: bins }, mark: { type: "bar", color: "var(--bars)" }, encoding: { x: x("from"), x2: { field: "to" }, y, y2: { datum: 0.5 }, tooltip: [{ field: "from", format: ".4g" }, { field: "to", format: ".4g" }, { field: "count" }] } },
      { data: { values: grid }, mark: { type: "rule", color: "var(--grid)", strokeWidth: 0.75 }, encoding: { x: x("x"), ...height } },
      { data: { values: limits(values) }, mark: { type: "rule", color: "var(--clip)", strokeWidth: 1.5, strokeDash: [5, 3] }, encoding: { x: x("x"), tooltip: [{ field: "what" }, { field: "x", format: ".4g" }] } },
    ]),
  };
}

function padded(numbers) {
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  const room = (high - low || 1) * 0.03;
  return [low - room, high + room];
}

function channelRows(values) {
  const dead = new Set(values.dead);
  const outliers = new Set(values.outliers);
  return values.channel_low
    .map((low, place) => ({
      place, from: place - 0.45, to: place + 0.45, low: Number(low), high: Number(values.channel_high[place]),
      kind: outliers.has(place) ? "outlier" : dead.has(place) ? "always zero" : "channel",
    }))
    .filter((row) => Number.isFinite(row.low) && Number.isFinite(row.high));
}

function rangesSpec(values) {
  const rows = channelRows(values);
  const lines = values.scale.length === 1 ? limits(values) : [];
  const color = field("kind", "nominal", {
    scale: { domain: ["channel", "outlier", "always zero"], range: ["var(--bars)", "var(--outlier)", "var(--dead)"] },
    legend: values.outliers.length || values.dead.length ? { title: null, orient: "top" } : null,
  });
  const x = field("from", "quantitative", { scale: { domain: [-0.5, values.channel_low.length - 0.5], nice: false }, ...axis(`channel of dimension ${values.axis}`, { grid: false, tickMinStep: 1, format: "d" }) });
  const y = field("low", "quantitative", { scale: { zero: false }, ...axis("lowest to highest value", { tickCount: 6 }) });
  const tooltip = [{ field: "place", title: "channel" }, { field: "low", format: ".4g" }, { field: "high", format: ".4g" }, { field: "kind" }];
  return {
    height: 190,
    layer: withData([
      { data: { values: rows }, mark: { type: "bar", minBandSize: 1 }, encoding: { x, x2: { field: "to" }, y, y2: { field: "high" }, color, tooltip } },
      { data: { values: rows.filter((row) => row.kind === "always zero") }, mark: { type: "point", shape: "cross", color: "var(--dead)" }, encoding: { x: field("place", "quantitative"), y, tooltip } },
      { data: { values: lines }, mark: { type: "rule", color: "var(--clip)", strokeWidth: 1.5, strokeDash: [5, 3] }, encoding: { y: field("x", "quantitative"), tooltip: [{ field: "what" }, { field: "x", format: ".4g" }] } },
    ]),
  };
}
