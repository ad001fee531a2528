// What all charts share: a drawing as wide as its place, axes with round ticks, a legend, a note.

import { duration, element, svg } from "../format.js";
import { hideTip } from "./tip.js";

const PREFIXES = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
  [1, ""],
];

/** A number of three digits with its prefix: 1.05 T. @param {number} value */
export function si(value) {
  const size = Math.abs(value);
  for (const [unit, prefix] of /** @type {[number, string][]} */ (PREFIXES))
    if (size >= unit) return `${+(value / unit).toPrecision(3)}${prefix ? ` ${prefix}` : ""}`;
  return value === 0 ? "0" : `${+value.toPrecision(3)}`;
}

/** How values of an axis read. @type {Record<string, (value: number) => string>} */
export const READS = { ns: duration, si, number: (value) => `${+value.toPrecision(4)}` };

/** Round places between two values, about so many. @param {number} low @param {number} high @param {number} count */
export function roundSteps(low, high, count) {
  const raw = (high - low) / Math.max(count, 1),
    power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw * 0.999) ?? raw;
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step)
    found.push(+value.toPrecision(12));
  return found;
}

/**
 * A scale from values to pixels.
 * @param {{form?: string, log?: boolean}} axis @param {[number, number]} values @param {[number, number]} pixels @param {number} ticks
 */
export function scale(axis, values, pixels, ticks) {
  const to = axis.log ? Math.log10 : (/** @type {number} */ value) => value;
  let [low, high] = values.map(to);
  if (!(high > low)) {
    low -= 0.5;
    high += 0.5;
  }
  const at = (/** @type {number} */ value) => pixels[0] + ((to(value) - low) / (high - low)) * (pixels[1] - pixels[0]);
  const reads = READS[axis.form ?? "number"];
  const places = axis.log ? powers(low, high, ticks) : roundSteps(low, high, ticks);
  return { at, ticks: places.map((value) => ({ at: at(value), text: reads(value) })) };
}

/** @param {number} low @param {number} high @param {number} most */
function powers(low, high, most) {
  const every = Math.max(1, Math.ceil((high - low) / most)),
    found = [];
  for (let power = Math.ceil(low); power <= high; power += every) found.push(10 ** power);
  return found;
}

/**
 * A drawing that is made again where its place changes its width, so that its words stay readable.
 * @param {string} title @param {(width: number) => any} draw
 */
export function drawn(title, draw) {
  const place = element("div.drawn");
  let width = 0;
  const paint = () => {
    const now = Math.round(place.clientWidth);
    if (now === 0 || now === width) return;
    width = now;
    hideTip();
    const made = draw(width);
    made.setAttribute("role", "group");
    made.setAttribute("aria-label", title);
    place.replaceChildren(made);
  };
  new ResizeObserver(paint).observe(place);
  return place;
}

/** @param {number} width @param {number} height */
export function sheet(width, height) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
}

/**
 * Grid lines and their words along x or y.
 * @param {{at: number, text: string}[]} ticks @param {"x" | "y"} along @param {[number, number]} across pixels of the other axis
 */
export function grid(ticks, along, across) {
  return ticks.flatMap(({ at, text }) =>
    along === "x"
      ? [
          svg("line.grid", { x1: at, x2: at, y1: across[0], y2: across[1] }),
          svg("text.soft", { x: at, y: across[1] + 15, "text-anchor": "middle" }, text),
        ]
      : [
          svg("line.grid", { y1: at, y2: at, x1: across[0], x2: across[1] }),
          svg("text.soft", { x: across[0] - 6, y: at + 4, "text-anchor": "end" }, text),
        ],
  );
}

/** @param {{name: string, color: string}[]} entries @param {string} note */
export function legend(entries, note = "") {
  return element(
    "div.legend",
    ...entries.map(({ name, color }) => element("span", element("span.dot", { style: `background:${color}` }), name)),
    note ? element("span", note) : null,
  );
}

/** A chart with its title and what explains it. @param {string} title @param {any[]} children */
export function figure(title, ...children) {
  return element("figure.chart", title ? element("figcaption", title) : null, ...children);
}
