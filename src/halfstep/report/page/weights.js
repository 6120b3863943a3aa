// The integers of a weight: a grid to walk through by pointer or arrow keys. Rows go along the
// first dimension; what lies in a row is flat.

const product = (sizes) => sizes.reduce((all, size) => all * size, 1);

// The place of a cell's scale: one for all, one for each channel, or one for each group of a row.
function scalePlace({ axis, scale, shape, spec }, row, column) {
  if (scale.length === 1) return 0;
  const inside = product(shape.slice(2));
  const second = Math.floor(column / inside);
  if (scale.length === shape[axis]) return [row, second][axis] ?? null;
  if (!spec.includes("PerGroup(axis=1")) return null;
  const each = scale.length / shape[0];
  const group = Math.floor((second * each) / inside / shape[1]);
  return row * each + group * inside + (column % inside);
}

const zeroAt = (values, place) =>
  Number(values.zero_point[values.zero_point.length === 1 ? 0 : place] ?? 0);

function describe(values, row, column) {
  const code = values.integers[row][column];
  const place = scalePlace(values, row, column);
  const where = `row ${row}, value ${column}: code ${minus(String(code))}`;
  if (place === null) return where;
  const [scale, zero] = [Number(values.scale[place]), zeroAt(values, place)];
  const float = number((code - zero) * scale);
  return `${where}, scale ${number(scale)}, zero point ${minus(String(zero))}, in float ${float}`;
}

function rowHead(values, row) {
  const place = scalePlace(values, row, 0);
  if (place === null || values.axis) return make("th", { scope: "row" }, row);
  const more = values.scale.length > values.shape[0] ? " …" : "";
  const zero = zeroAt(values, place);
  const text = `${row} × ${number(values.scale[place])}${more}${zero ? `, zero ${zero}` : ""}`;
  return make("th", { scope: "row" }, text);
}

function codeCell(values, row, column, most) {
  const code = values.integers[row][column];
  const far = (code - zeroAt(values, scalePlace(values, row, column) ?? 0)) / most;
  const kind = far === 0 ? "td.quiet" : far < 0 ? "td.low" : "td";
  return make(kind, {
    role: "gridcell", tabindex: row || column ? "-1" : "0", "data-at": `${row},${column}`,
    style: `--t:${Math.min(Math.abs(far), 1).toFixed(2)}`,
  }, minus(String(code)));
}

function codesTable(values) {
  const codes = values.integers;
  const most = Math.max(1, ...codes.flat().map((code) => Math.abs(code - zeroAt(values, 0))));
  const columns = codes[0].map((_, column) => make("th", { scope: "col" }, column));
  const rows = codes.map((all, row) => make("tr", {},
    rowHead(values, row), ...all.map((_, column) => codeCell(values, row, column, most))));
  const corner = make("th", { scope: "col" }, values.axis ? "row" : "row × scale");
  const head = make("tr", {}, corner, ...columns);
  return make("table", { role: "grid", "aria-label": "Integers of the weight" },
    make("thead", {}, head), make("tbody", {}, ...rows));
}

const STEPS = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  Home: [0, -64], End: [0, 64], PageUp: [-64, 0], PageDown: [64, 0],
};
const placeOf = (cell) => cell.dataset.at.split(",").map(Number);

function walk(event, codes) {
  const cell = event.target.closest("td");
  if (!cell || !STEPS[event.key]) return;
  event.preventDefault();
  const [[row, column], [down, right]] = [placeOf(cell), STEPS[event.key]];
  const at = [within(row + down, codes.length), within(column + right, codes[0].length)];
  const next = event.currentTarget.querySelector(`[data-at="${at}"]`);
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function whichPart({ shape, integers }) {
  const part = (shown, all) => (shown < all ? `the first ${shown} of ${all}` : `all ${all}`);
  const columns = part(integers[0].length, product(shape.slice(1)));
  return `Shown: ${part(integers.length, shape[0])} rows, ${columns} values of each.`;
}

function weightBlock(values) {
  if (!values.integers[0]?.length) return null;
  const table = codesTable(values);
  const readout = make("output.readout", { "aria-live": "polite" }, describe(values, 0, 0));
  const tell = ({ target }) => {
    const cell = target.closest("td");
    if (cell) readout.textContent = describe(values, ...placeOf(cell));
  };
  table.addEventListener("pointerover", tell);
  table.addEventListener("focusin", tell);
  table.addEventListener("keydown", (event) => walk(event, values.integers));
  const how = make("span.control", {}, " Point at a cell, or walk with the arrow keys.");
  return make("div", { id: "weights" }, make("h4", {}, "Its integers"),
    make("p.muted", {}, whichPart(values), how),
    make("div.codes", { tabindex: "-1" }, table), readout);
}
