// Numbers as people read them, and elements made from text that is never parsed as HTML.

/** @param {number | null | undefined} ns @param {number} digits */
export function micros(ns, digits = 3) {
  if (ns === null || ns === undefined) return "–";
  return (ns / 1000).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Three significant digits, as `figures` of analysis/forms.py: at most four decimals, whole above a thousand. @param {number} value */
export function figures(value) {
  if (value === 0) return "0";
  const power = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(3)))));
  const digits = Math.min(Math.max(2 - power, 0), 4);
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** The same without zeros at the end. @param {number} value */
export function three(value) {
  const text = figures(value);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** A time with the unit that fits, as `duration` of analysis/forms.py. @param {number} ns */
export function time(ns) {
  let value = ns, unit = "ns";
  for (const larger of ["µs", "ms", "s"]) {
    if (Math.abs(value) < 999.5) break;
    value /= 1000;
    unit = larger;
  }
  return `${three(value)} ${unit}`;
}

/** A moment on an axis whose marks are so far apart: no digit is lost that tells two marks apart. @param {number} ns @param {number} step */
export function moment(ns, step) {
  const [unit, size] = /** @type {[string, number]} */ (ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ns >= 1e3 ? ["µs", 1e3] : ["ns", 1]);
  const digits = Math.max(Math.ceil(Math.log10(size / step) - 1e-9), 0);
  return `${(ns / size).toLocaleString("en-US", { minimumFractionDigits: Math.min(digits, 6), maximumFractionDigits: Math.min(digits, 6) })} ${unit}`;
}

/** @param {number | null | undefined} share */
export function percent(share) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)}%`;
}

/** @param {number | null | undefined} number */
export function whole(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/**
 * An element; a child that is text stays text. Names that begin with `on` are listeners.
 * @param {string} tag @param {Record<string, any>} attributes @param {(Node | string | null | undefined)[]} children
 * @returns {any}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  for (const child of children) if (child !== null && child !== undefined) made.append(child);
  return made;
}

/** Text with `names` between backticks as code. @param {string} text @returns {(Node | string)[]} */
export function worded(text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return [text]; // one without its other half is a backtick
  return parts.map((part, n) => (n % 2 ? element("code", {}, part) : part));
}

/** Puts children into an element in place of what it has; null is nothing. @param {any} box @param {(Node | string | null | undefined)[]} children */
export function fill(box, ...children) {
  box.replaceChildren(...children.filter(child => child !== null && child !== undefined));
}

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} tag @param {Record<string, any>} attributes @param {(Node | string)[]} children */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
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
