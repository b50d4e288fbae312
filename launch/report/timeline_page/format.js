// Times, bytes and axis ticks as text. Times are nanoseconds.

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];

/** `ns` with three significant digits in the unit that suits it. */
function formatTime(ns) {
  if (ns === null || !Number.isFinite(ns)) return "-";
  const size = Math.abs(ns);
  if (size < 0.5) return "0";
  const [factor, unit] = UNITS.find(([least]) => size >= least * 0.9995) || UNITS[UNITS.length - 1];
  const value = ns / factor, digits = Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return `${value.toFixed(unit === "ns" ? 0 : digits)} ${unit}`;
}

function formatBytes(bytes) {
  if (bytes === null) return "-";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes, n = 0;
  while (value >= 999.5 && n < units.length - 1) {
    value /= 1000;
    n++;
  }
  return `${n && value < 99.95 ? value.toFixed(1) : Math.round(value)} ${units[n]}`;
}

function formatShare(part, whole) {
  return whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "-";
}

/** The least of 1, 2, 5 times a power of ten that is at least `least`. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(n => n * power).find(step => step >= least * (1 - 1e-9));
}

/**
 * Ticks of an axis from `t0` to `t1`, about `spacing` pixels apart, as [time, text]; times count from `zero`.
 * All have the unit and the digits that tell neighbours apart.
 */
function ticks(t0, t1, zero, width, spacing) {
  const step = Math.max(niceStep((t1 - t0) / Math.max(width / spacing, 1)), 1);
  const largest = Math.max(Math.abs(t0 - zero), Math.abs(t1 - zero), step);
  const [factor, unit] = UNITS.find(([least]) => largest >= least) || UNITS[UNITS.length - 1];
  const digits = Math.max(0, -Math.floor(Math.log10(step / factor) + 1e-9));
  const found = [];
  for (let n = Math.ceil((t0 - zero) / step); zero + n * step <= t1; n++)
    found.push([zero + n * step, n ? `${(n * step / factor).toFixed(digits)} ${unit}` : "0"]);
  return found;
}

function median(values) {
  if (!values.length) return null;
  const sorted = Float64Array.from(values).sort(), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function least(values) {
  return values.reduce((one, other) => Math.min(one, other), Infinity);
}

function greatest(values) {
  return values.reduce((one, other) => Math.max(one, other), -Infinity);
}

/** At most `most` of `values`, evenly chosen. */
function everyNth(values, most) {
  const every = Math.ceil(values.length / most);
  return every <= 1 ? values : values.filter((_, n) => n % every === 0);
}

/** How much longer (or shorter) than 1, "as long" where it hardly differs. */
function formatFactor(factor) {
  const percent = Math.round(100 * (factor - 1));
  if (!Number.isFinite(percent)) return "-";
  return percent === 0 ? "as long" : percent > 0 ? `now ${percent} % longer` : `now ${-percent} % shorter`;
}

function stepName(step) {
  return `${step.number}${step.blocking ? " (a reference step)" : ""}`;
}
