// Upright columns of parts, one beside the other, for many of a kind; marked ones have a flag.

import { clippedEnd, svg } from "../format.js";
import { seriesColor, themed } from "../colors.js";
import { READS, drawn, figure, grid, legend, scale, sheet } from "./frame.js";
import { telling } from "./tip.js";

const LEFT = 66,
  RIGHT = 8,
  TOP = 14,
  BOTTOM = 22,
  HIGH = 222,
  LETTER = 7;

/** @param {any} spec */
export function columns(spec) {
  const total = (/** @type {any} */ one) =>
    one.values.reduce((/** @type {number} */ sum, /** @type {number} */ value) => sum + value, 0);
  const most = Math.max(...spec.columns.map(total), 1e-12),
    reads = READS[spec.y.form];
  const color = (/** @type {number} */ n) => (n === spec.groups.length - 1 ? themed("--dim") : seriesColor(n));
  const draw = (/** @type {number} */ width) => {
    const page = sheet(width, HIGH),
      y = scale(spec.y, [0, most], [HIGH - BOTTOM, TOP], 4);
    page.append(...grid(y.ticks, "y", [LEFT, width - RIGHT]));
    const step = Math.min((width - LEFT - RIGHT) / Math.max(spec.columns.length, 1), 110);
    const longest = Math.max(...spec.columns.map((/** @type {any} */ one) => one.name.length), 1) * LETTER + 8,
      every = Math.max(1, Math.ceil(longest / step)); // as many names as there is room for
    spec.columns.forEach((/** @type {any} */ one, /** @type {number} */ n) => {
      if (n % every === 0 && step * every > 4 * LETTER)
        page.append(
          svg(
            "text.soft",
            { x: LEFT + n * step, y: HIGH - 6 },
            clippedEnd(one.name, Math.floor((step * every) / LETTER)),
          ),
        );
    });
    const marks = spec.columns.map((/** @type {any} */ one, /** @type {number} */ n) => {
      const mark = svg("g.column"),
        left = LEFT + n * step;
      let level = 0;
      one.values.forEach((/** @type {number} */ value, /** @type {number} */ part) => {
        const top = y.at(level + value);
        mark.append(
          svg("rect", {
            x: left,
            y: top,
            width: Math.max(step * 0.82, 0.5),
            height: Math.max(y.at(level) - top, 0),
            fill: color(part),
          }),
        );
        level += value;
      });
      if (one.marked)
        mark.append(
          svg("path.flag", {
            d: `M${left} ${y.at(level) - 8}h${Math.max(step * 0.82, 2)}v4h${-Math.max(step * 0.82, 2)}z`,
          }),
        );
      return {
        mark,
        lines: [
          one.name,
          ...one.text,
          ...spec.groups.map(
            (/** @type {string} */ name, /** @type {number} */ part) => `${name} ${reads(one.values[part])}`,
          ),
        ],
      };
    });
    page.append(...marks.map((/** @type {any} */ one) => one.mark));
    telling(marks);
    return page;
  };
  const names = spec.groups.map((/** @type {string} */ name, /** @type {number} */ n) => ({ name, color: color(n) }));
  if (spec.columns.some((/** @type {any} */ one) => one.marked))
    names.push({ name: "incomplete or disturbed", color: themed("--bad") });
  return figure(spec.title, drawn(spec.title, draw), legend(names, spec.note));
}
