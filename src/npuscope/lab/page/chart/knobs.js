// Every setting against time: a small chart each, all on one time axis, the best of all marked in each.

import { clipped, duration, element, svg } from "../format.js";
import { seriesColor } from "../colors.js";
import { drawn, figure, grid, scale, sheet } from "./frame.js";
import { telling } from "./tip.js";

const LEFT = 66,
  RIGHT = 12,
  TOP = 26,
  BOTTOM = 26,
  HIGH = 200;

/** @param {any} spec */
export function knobs(spec) {
  const all = spec.knobs.flatMap((/** @type {any} */ knob) => knob.points.map((/** @type {any} */ point) => point.y));
  const least = Math.min(...all),
    most = Math.max(...all),
    from = least > most * 0.5 ? Math.max(0, least - (most - least) * 0.4) : 0;
  const charts = spec.knobs.map((/** @type {any} */ knob) => {
    const draw = (/** @type {number} */ width) => {
      const page = sheet(width, HIGH),
        step = (width - LEFT - RIGHT) / knob.values.length;
      const x = (/** @type {number} */ place) => LEFT + (place + 0.5) * step,
        y = scale(spec.y, [from, most * 1.03], [HIGH - BOTTOM, TOP], 4);
      const room = Math.max(Math.floor(step / 6.8), 2);
      page.append(
        ...grid(y.ticks, "y", [LEFT, width - RIGHT]),
        svg("text.title", { x: 4, y: 14 }, knob.name),
        ...knob.values.map((/** @type {string} */ value, /** @type {number} */ n) =>
          svg("text.soft", { x: x(n), y: HIGH - 8, "text-anchor": "middle" }, clipped(value, room)),
        ),
      );
      const best = knob.best
        .map((/** @type {number | null} */ ns, /** @type {number} */ n) => (ns === null ? null : `${x(n)},${y.at(ns)}`))
        .filter(Boolean);
      page.append(svg("polyline", { points: best.join(" "), fill: "none", stroke: seriesColor(0), "stroke-width": 2 }));
      const marks = knob.points.map((/** @type {any} */ point) => {
        const mark = svg(
          "g",
          { class: point.best ? "best" : "" },
          svg("circle.point", {
            cx: x(point.x),
            cy: y.at(point.y),
            r: point.best ? 5 : 3.5,
            fill: seriesColor(point.best ? 5 : 0),
          }),
        );
        if (point.best) mark.append(svg("circle.ring", { cx: x(point.x), cy: y.at(point.y), r: 10 }));
        return { mark, lines: [point.name, duration(point.y), point.best ? "the best of all" : null] };
      });
      page.append(...marks.map((/** @type {any} */ one) => one.mark).reverse()); // the best on top
      telling(marks);
      return page;
    };
    const more = knob.left_out ? element("p.soft", `${knob.left_out} slower variants are not drawn`) : null;
    return element("div.knob", drawn(`${knob.name} against time`, draw), more);
  });
  return figure(spec.title, element("div.multiples", ...charts), element("p.soft", spec.note));
}
