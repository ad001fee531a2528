// Numbers as people read them, and elements made from text that is never parsed as HTML.

export function micros(ns, digits = 3) {
  if (ns === null || ns === undefined) return "–";
  return (ns / 1000).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function time(ns) {
  const size = Math.abs(ns);
  if (size >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
  if (size >= 1e6) return `${(ns / 1e6).toFixed(3)} ms`;
  if (size >= 1e3) return `${(ns / 1e3).toFixed(2)} µs`;
  return `${Math.round(ns)} ns`;
}

export function percent(share) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)}%`;
}

export function whole(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// What does not fit is left out of the middle, since many names begin alike.
export function clipped(text, most) {
  if (text.length <= most) return text;
  const end = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - end)}…${text.slice(text.length - end)}`;
}
