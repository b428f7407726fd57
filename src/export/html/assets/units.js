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
    nanos >= 1e9
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
  percent: (percent) => `${fixed(percent, 2)}%`,
  share: (percent) => `${digits(percent)}%`,
  memory: (bytes) => {
    const size = Math.abs(bytes);
    const [divisor, unit] = size >= 2 ** 30 ? [2 ** 30, "GiB"] : size >= 2 ** 20 ? [2 ** 20, "MiB"] : [2 ** 10, "KiB"];
    return size < 1024 ? `${bytes} B` : `${bytes < 0 ? "-" : ""}${digits(size / divisor)} ${unit}`;
  },
  count: (count) => {
    const [value, prefix] = scaled(count);
    return prefix === "" ? String(value) : fixed(value, 3) + prefix;
  },
  rate: (rate) => {
    const [value, prefix] = scaled(rate);
    return digits(value) + prefix;
  },
  change: (nanos) => (nanos < 0 ? "−" : "+") + UNITS.time(Math.abs(nanos)),
};

// Whether a value of the unit is an index of a name.
function isName(unit) {
  return unit === "name" || unit === "function";
}

function isText(unit) {
  return unit === "text" || unit === "word" || isName(unit);
}

function format(unit, value) {
  return value === null || value === undefined ? "--" : UNITS[unit](value);
}
