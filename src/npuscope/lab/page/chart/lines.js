// Series over places with words (commits, layers): points with intervals, joined or not.

import { clipped, svg } from "../format.js";
import { seriesColor } from "../colors.js";
import { drawn, figure, grid, legend, scale, sheet } from "./frame.js";
import { telling } from "./tip.js";

const LEFT = 70,
  RIGHT = 16,
  TOP = 24,
  BOTTOM = 40,
  HIGH = 300;

/** @param {any} spec */
export function lines(spec) {
  const points = spec.series.flatMap((/** @type {any} */ one) => one.points),
    labels = spec.x.labels;
  const most = Math.max(...points.map((/** @type {any} */ point) => Math.max(point.y, point.high ?? 0)), 1e-12);
  const least = Math.min(...points.map((/** @type {any} */ point) => Math.min(point.y, point.low ?? point.y)), most);
  const from = least > most * 0.6 ? least - (most - least) : 0; // differences show where all are much alike
  const draw = (/** @type {number} */ width) => {
    const page = sheet(width, HIGH),
      step = (width - LEFT - RIGHT) / Math.max(labels.length, 1);
    const x = (/** @type {number} */ place) => LEFT + (place + 0.5) * step,
      y = scale(spec.y, [Math.max(from, 0), most * 1.02], [HIGH - BOTTOM, TOP], 5);
    const every = Math.max(1, Math.ceil(labels.length / ((width - LEFT) / 84)));
    const ticks = labels
      .map((/** @type {string} */ text, /** @type {number} */ n) => ({ at: x(n), text: clipped(text, 13) }))
      .filter((/** @type {any} */ _, /** @type {number} */ n) => n % every === 0);
    page.append(
      ...grid(y.ticks, "y", [LEFT, width - RIGHT]),
      svg("text.soft", { x: LEFT, y: 12 }, from > 0 ? `${spec.y.title} (the axis does not begin at 0)` : spec.y.title),
      ...ticks.map((/** @type {any} */ tick) =>
        svg(
          "text.soft",
          {
            x: Math.min(Math.max(tick.at, 3.4 * tick.text.length), width - 3.4 * tick.text.length),
            y: HIGH - BOTTOM + 16,
            "text-anchor": "middle",
          },
          tick.text,
        ),
      ),
      svg("text.soft", { x: (LEFT + width) / 2, y: HIGH - 6, "text-anchor": "middle" }, spec.x.title),
    );
    /** @type {any[]} */
    const marks = [];
    spec.series.forEach((/** @type {any} */ one, /** @type {number} */ n) => {
      const color = seriesColor(n);
      if (one.joined)
        page.append(
          svg("polyline", {
            points: one.points.map((/** @type {any} */ point) => `${x(point.x)},${y.at(point.y)}`).join(" "),
            fill: "none",
            stroke: color,
            "stroke-width": 2,
          }),
        );
      for (const point of one.points) {
        if (point.high !== null && point.high !== undefined)
          page.append(
            svg("line", {
              x1: x(point.x),
              x2: x(point.x),
              y1: y.at(point.low),
              y2: y.at(point.high),
              stroke: color,
              "stroke-opacity": 0.4,
              "stroke-width": 5,
            }),
          );
        marks.push({
          mark: svg("circle", {
            cx: x(point.x),
            cy: y.at(point.y),
            r: 4.5,
            fill: color,
            class: point.marked ? "point marked" : "point",
          }),
          lines: [point.name, ...(point.text ?? [])],
        });
      }
    });
    page.append(...marks.map((one) => one.mark));
    telling(marks);
    return page;
  };
  const names = spec.series.map((/** @type {any} */ one, /** @type {number} */ n) => ({
    name: one.name,
    color: seriesColor(n),
  }));
  return figure(spec.title, drawn(spec.title, draw), legend(names, spec.note));
}
