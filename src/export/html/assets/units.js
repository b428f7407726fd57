// Numbers as text, exactly as the tables of reports print them.

// Rounds half to even, as Rust does; `toFixed` rounds half up. With thirty more digits a tie is a 5 and zeros.
function fixed(number, decimals) {
  const exact = number.toFixed(Math.min(100, decimals + 30));
  const cut = exact.length - 30 - (decimals === 0 ? 1 : 0);
  if (!/^\.?50*$/.test(exact.slice(cut))) return number.toFixed(decimals);
  const down = exact.slice(0, cut);
  return Number(down[down.length - 1]) % 2 === 0 ? down : number.toFixed(decimals);
}

function digits(number) {
  const decimals = number > 0 ? Math.min(9, Math.max(0, 2 - Math.floor(Math.log10(number)))) : 0;
  return fixed(number, decimals);
}

function scaled(number) {
  const prefixes = [
    [1e15, "P"],
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ];
  const [factor, prefix] = prefixes.find(([factor]) => number >= factor) ?? [1, ""];
  return [number / factor, prefix];
}

// An amount with three digits and a decimal prefix.
function amount(number, unit) {
  const [value, prefix] = scaled(number);
  return `${digits(value)} ${prefix}${unit}`.trimEnd();
}

// An amount that is a whole number, exactly below a thousand.
function whole(number, unit) {
  return number < 1000 ? `${number} ${unit}`.trimEnd() : amount(number, unit);
}

// What stands for no time and for a value that is not known.
const NOTHING = "–";

// A name as it is shown: kernels have short forms, and their full names in tooltips.
let shortNames = null;
function shownName(index) {
  shortNames ??= new Map(DATA.short);
  return shortNames.get(index) ?? DATA.names[index];
}

// Whether a name has the text in it, in full or as it is shown. The text is in small letters.
function isNameWith(index, text) {
  return [DATA.names[index], shownName(index)].some((name) => name.toLowerCase().includes(text));
}

// The unit of a column names one of these. A missing value is null.
const UNITS = {
  text: (text) => text,
  // A short text, whose column need not be wide.
  word: (text) => text,
  name: (index) => DATA.names[index],
  function: (index) => DATA.names[index],
  number: (number) => String(number),
  time: (nanos) =>
    nanos === 0
      ? NOTHING
      : nanos >= 1e9
      ? `${fixed(nanos / 1e9, 3)} s`
      : nanos >= 1e6
        ? `${fixed(nanos / 1e6, 3)} ms`
        : `${fixed(nanos / 1e3, 3)} µs`,
  // A time in a sentence, with three digits. What would be rounded to a thousand is one of the next unit.
  short: (nanos) =>
    nanos >= 999.5e6
      ? `${digits(Math.max(1, nanos / 1e9))} s`
      : nanos >= 999.5e3
        ? `${digits(Math.max(1, nanos / 1e6))} ms`
        : `${digits(nanos / 1e3)} µs`,
  // A time that is known to three digits only.
  rough: (nanos) => `~${UNITS.short(nanos)}`,
  // A time that adds up to that of all rows, which a bar shows.
  total: (nanos) => UNITS.time(nanos),
  percent: (percent) => (percent > 0 && percent < 0.05 ? "<0.1 %" : `${fixed(percent, 1)} %`),
  share: (percent) => UNITS.percent(percent),
  memory: (bytes) => {
    const size = Math.abs(bytes);
    const [divisor, unit] = size >= 2 ** 30 ? [2 ** 30, "GiB"] : size >= 2 ** 20 ? [2 ** 20, "MiB"] : [2 ** 10, "KiB"];
    return size < 1024 ? `${bytes} B` : `${bytes < 0 ? "-" : ""}${digits(size / divisor)} ${unit}`;
  },
  count: (count) => whole(count, ""),
  rate: (rate) => amount(rate, ""),
  flops: (flops) => whole(flops, "FLOP"),
  flopRate: (rate) => amount(rate, "FLOP/s"),
  bandwidth: (rate) => amount(rate, "B/s"),
  change: (nanos) => (nanos < 0 ? "−" : "+") + UNITS.time(Math.abs(nanos)),
};

// The value of a tick on an axis: without zeros behind the point.
function tickText(unit, value) {
  return value === 0 ? "0" : format(unit, value).replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

// The round values from 0 to `top` that divide an axis into two to five parts.
function roundTicks(unit, top) {
  const base = unit === "memory" ? 1024 ** Math.floor(Math.log(Math.max(1, top)) / Math.log(1024)) : 1;
  const power = base * 10 ** Math.floor(Math.log10(top / base));
  const step = [0.2, 0.5, 1, 2, 5].map((factor) => factor * power).find((step) => top / step <= 5.001);
  return top > 0 ? Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, index) => index * step) : [0];
}

// Whether a value of the unit is an index of a name.
function isName(unit) {
  return unit === "name" || unit === "function";
}

function isText(unit) {
  return unit === "text" || unit === "word" || isName(unit);
}

function format(unit, value) {
  return value === null || value === undefined ? NOTHING : UNITS[unit](value);
}
