// Numbers as words. In the data, "Infinity", "-Infinity" and "NaN" are numbers that JSON has not.

const toNumber = (value) => (value === null || value === undefined ? null : Number(value));
const isFiniteNumber = (value) => value !== null && Number.isFinite(Number(value));

function number(value) {
  if (value === null || value === undefined) return "not measured";
  const known = Number(value);
  if (!Number.isFinite(known)) return "not finite";
  const size = Math.abs(known);
  if (known !== 0 && (size < 1e-4 || size >= 1e6)) return minus(known.toExponential(3));
  return minus(String(Number(known.toPrecision(4))));
}

function decibels(value) {
  if (value === null || value === undefined) return "not measured";
  const known = Number(value);
  if (known === Infinity) return "exact";
  if (known === -Infinity) return "all noise";
  return Number.isNaN(known) ? "not finite" : `${minus(known.toFixed(1))} dB`;
}

function bytes(count) {
  if (!count) return "";
  const [unit, size] = count < 1e3 ? ["B", 1] : count < 1e6 ? ["kB", 1e3] : ["MB", 1e6];
  return `${(count / size).toFixed(size === 1 ? 0 : 1)} ${unit}`;
}

function percent(share) {
  const known = Number(share) * 100;
  if (!Number.isFinite(known)) return "not finite";
  if (known !== 0 && Math.abs(known) < 0.001) return known > 0 ? "< 0.001 %" : "> −0.001 %";
  return `${minus(Number(known.toPrecision(3)).toString())} %`;
}

const minus = (text) => text.replace("-", "−");
const milliseconds = (value) => (value === null || value === undefined ? "" : `${number(value)} ms`);
const listed = (items, most = 6) =>
  items.slice(0, most).join(", ") + (items.length > most ? ` and ${items.length - most} more` : "");
