// Numbers as people read them, by the rules and names of table/formats.py (tests/table/numbers.json has cases for
// both), and elements made from text that is never parsed as HTML.

const NOTHING = "–";
const ROUNDED = 999.5; // what three digits would show as 1,000

/**
 * With so many decimals, thousands apart and ties to even, as Python writes it.
 * @param {number} value @param {number} digits
 */
function fixed(value, digits) {
  const scaled = Math.abs(value) * 10 ** digits,
    below = Math.floor(scaled);
  const isTie = Number.isInteger(value * 2 ** (digits + 1)) && scaled - below === 0.5;
  const rounded = isTie && below % 2 === 0 ? (Math.sign(value) * below) / 10 ** digits : value;
  const [units, decimals] = rounded.toFixed(digits).split(".");
  const grouped = units.replace(/\B(?=(\d{3})+$)/g, ",");
  return decimals === undefined ? grouped : `${grouped}.${decimals}`;
}

/** Microseconds with all digits. @param {number | null | undefined} ns @param {number} digits */
export function micros(ns, digits = 3) {
  return ns === null || ns === undefined ? NOTHING : fixed(ns / 1000, digits);
}

/** Three significant digits with their zeros, at most so many decimals. @param {number} value @param {number} most */
export function figures(value, most = 100) {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? NOTHING : value > 0 ? "∞" : "-∞";
  const power = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(3)))));
  const digits = Math.min(Math.max(2 - power, 0), most);
  const text = fixed(value, digits);
  return /[1-9]/.test(text) ? text : `<${fixed(10 ** -digits, digits)}`;
}

/** The same without zeros that say nothing. @param {number} value */
export function significant(value) {
  const text = figures(value);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** A time with the unit that fits. @param {number | null | undefined} ns */
export function duration(ns) {
  if (ns === null || ns === undefined) return NOTHING;
  let value = ns,
    unit = "ns";
  for (const larger of ["µs", "ms", "s"]) {
    if (Math.abs(value) < ROUNDED) break;
    value /= 1000;
    unit = larger;
  }
  return `${significant(value)} ${unit}`;
}

/**
 * A moment on an axis whose marks are so far apart: no digit is lost that tells two marks apart.
 * @param {number} ns @param {number} step
 */
export function moment(ns, step) {
  const [unit, size] = /** @type {[string, number]} */ (
    ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ns >= 1e3 ? ["µs", 1e3] : ["ns", 1]
  );
  const digits = Math.max(Math.ceil(Math.log10(size / step) - 1e-9), 0);
  return `${fixed(ns / size, Math.min(digits, 6))} ${unit}`;
}

/** A share of one with one decimal. @param {number | null | undefined} share */
export function percent(share) {
  if (share === null || share === undefined) return NOTHING;
  return Math.abs(share) < 9.9995 ? `${fixed(100 * share, 1)}%` : `${significant(100 * share)}%`;
}

/** A relative change with its sign. @param {number | null | undefined} share */
export function change(share) {
  return `${share !== null && share !== undefined && share >= 0 ? "+" : ""}${percent(share)}`;
}

/** A ratio with three digits. @param {number | null | undefined} ratio */
export function times(ratio) {
  if (ratio === null || ratio === undefined) return NOTHING;
  const size = Math.abs(ratio);
  return `${1 <= size && size < 9.995 ? fixed(ratio, 2) : significant(ratio)}x`;
}

/** @param {number | null | undefined} number */
export function whole(number) {
  return number === null || number === undefined ? NOTHING : fixed(number, 0);
}

/**
 * Attributes, where there are some, and children go into an element whose tag may have classes: `p.soft`. A child that
 * is text stays text, null is nothing. Names that begin with `on` are listeners.
 * @param {Element} made @param {string[]} classes @param {any[]} parts
 * @returns {any}
 */
function filled(made, classes, parts) {
  const [attributes, children] = parts[0]?.constructor === Object ? [parts[0], parts.slice(1)] : [{}, parts];
  if (classes.length) made.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** @param {string} tag @param {any[]} parts attributes, children */
export function element(tag, ...parts) {
  const [name, ...classes] = tag.split(".");
  return filled(document.createElement(name), classes, parts);
}

/** Text with `names` between backticks as code. @param {string} text @returns {(Node | string)[]} */
export function worded(text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return [text]; // one without its other half is a backtick
  return parts.map((part, n) => (n % 2 ? element("code", part) : part));
}

/** Puts children into an element in place of what it has; null is nothing. @param {any} box @param {(Node | string | null | undefined)[]} children */
export function fill(box, ...children) {
  box.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} tag @param {any[]} parts attributes, children */
export function svg(tag, ...parts) {
  const [name, ...classes] = tag.split(".");
  return filled(document.createElementNS(SVG, name), classes, parts);
}

/** What does not fit is left out of the end. @param {string} text @param {number} most */
export function clippedEnd(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

// What does not fit is left out of the middle, since many names begin alike.
/** @param {string} text @param {number} most */
export function clipped(text, most) {
  if (text.length <= most) return text;
  const end = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - end)}…${text.slice(text.length - end)}`;
}
