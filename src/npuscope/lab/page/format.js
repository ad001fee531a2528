// Numbers as people read them, and elements made from text that is never parsed as HTML.

/** @param {number | null | undefined} ns @param {number} digits */
export function micros(ns, digits = 3) {
  if (ns === null || ns === undefined) return "–";
  return (ns / 1000).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** @param {number} ns */
export function time(ns) {
  const size = Math.abs(ns);
  if (size >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
  if (size >= 1e6) return `${(ns / 1e6).toFixed(3)} ms`;
  if (size >= 1e3) return `${(ns / 1e3).toFixed(2)} µs`;
  return `${Math.round(ns)} ns`;
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

// What does not fit is left out of the middle, since many names begin alike.
/** @param {string} text @param {number} most */
export function clipped(text, most) {
  if (text.length <= most) return text;
  if (most < 10) return `${text.slice(0, most - 1)}…`; // too little room for both ends
  const end = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - end)}…${text.slice(text.length - end)}`;
}
