// Numbers as words. In the data, "Infinity", "-Infinity" and "NaN" are numbers that JSON has not.

const toNumber = (value) => (value === null ? NaN : Number(value));
const isFiniteNumber = (value) => Number.isFinite(toNumber(value));
const minus = (text) => text.replace("-", "−");
const within = (place, count) => Math.min(Math.max(place, 0), count - 1);
const nameOf = (layer) => layer.layer || layer.value;

function number(value) {
  if (!isFiniteNumber(value)) return "not finite";
  const size = Math.abs(value);
  const isPlain = Number(value) === 0 || (size >= 1e-4 && size < 1e6);
  if (!isPlain) return minus(Number(value).toExponential(3));
  return minus(String(Number(Number(value).toPrecision(4))));
}

function range(low, high) {
  const isKnown = isFiniteNumber(low) && isFiniteNumber(high);
  return isKnown ? `${number(low)} to ${number(high)}` : "not finite";
}

function decibels(value) {
  const known = toNumber(value);
  if (known === Infinity) return "exact";
  if (known === -Infinity) return "all noise";
  return Number.isNaN(known) ? "not finite" : `${minus(known.toFixed(1))} dB`;
}

function bytes(count) {
  const [unit, size] = count < 1e3 ? ["B", 1] : count < 1e6 ? ["kB", 1e3] : ["MB", 1e6];
  return `${(count / size).toFixed(size === 1 ? 0 : 1)} ${unit}`;
}

function percent(share) {
  if (!isFiniteNumber(share)) return "not finite";
  return `${minus(String(Number((share * 100).toPrecision(3))))} %`;
}

function listed(items, most = 6) {
  const more = items.length > most ? ` and ${items.length - most} more` : "";
  return items.slice(0, most).join(", ") + more;
}
