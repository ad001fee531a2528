// Points over two axes, each with its name under the pointer, below lines that are limits.

import { svg } from "../format.js";
import { seriesColor } from "../colors.js";
import { drawn, figure, grid, legend, scale, sheet } from "./frame.js";
import { telling } from "./tip.js";

const LEFT = 62,
  RIGHT = 16,
  TOP = 22,
  BOTTOM = 40,
  DECADES = 1000; // of a logarithmic axis, at least

/** @param {any} spec */
export function scatter(spec) {
  const points = spec.points,
    ends = spec.lines.flatMap((/** @type {any} */ line) => [line.from, line.to]);
  const reach = (/** @type {number} */ axis) => {
    const own = points.map((/** @type {any} */ point) => (axis ? point.y : point.x));
    const all = [
      ...own,
      ...ends.map((/** @type {any} */ end) => end[axis]).filter((/** @type {any} */ value) => value !== null),
    ];
    const [least, most] = [Math.min(...own), Math.max(...all)],
      room = (most - least) / 20;
    if (!(axis ? spec.y : spec.x).log) return /** @type {[number, number]} */ ([least - room, most + room]);
    const corner = axis ? least : Math.min(least, ...spec.lines.map((/** @type {any} */ line) => line.from[0])),
      wider = Math.max(2, Math.sqrt((DECADES * corner) / most)); // a single point has room on both sides
    return /** @type {[number, number]} */ ([corner / wider, most * wider]);
  };
  const [across, up] = [reach(0), reach(1)];
  const draw = (/** @type {number} */ width) => {
    const height = Math.min(520, Math.max(320, width * 0.55)),
      page = sheet(width, height);
    const x = scale(spec.x, across, [LEFT, width - RIGHT], width / 110),
      y = scale(spec.y, up, [height - BOTTOM, TOP], 8);
    const inside = (/** @type {number} */ value) => Math.max(LEFT, Math.min(width - RIGHT, value));
    page.append(
      ...grid(x.ticks, "x", [TOP, height - BOTTOM]),
      ...grid(y.ticks, "y", [LEFT, width - RIGHT]),
      svg("text.soft", { x: (LEFT + width - RIGHT) / 2, y: height - 8, "text-anchor": "middle" }, spec.x.title),
      svg("text.soft", { x: LEFT, y: 12 }, spec.y.title),
    );
    // words that are there: no two on one another
    /** @type {{left: number, right: number, top: number, bottom: number}[]} */
    const taken = [];
    const free = (/** @type {(typeof taken)[0]} */ box) =>
      !taken.some(
        (one) => box.left < one.right && one.left < box.right && box.top < one.bottom && one.top < box.bottom,
      );
    for (const line of spec.lines) {
      const x0 = inside(x.at(line.from[0])),
        x1 = line.to[0] === null ? width - RIGHT : inside(x.at(line.to[0]));
      const flat = line.from[1] === line.to[1],
        y0 = Math.min(y.at(line.from[1]), height - BOTTOM),
        y1 = y.at(line.to[1]);
      page.append(svg("line.roof", { x1: x0, y1: y0, x2: x1, y2: y1 }));
      if (flat) page.append(svg("text.halo", { x: x1 - 4, y: y1 - 5, "text-anchor": "end" }, line.name));
      if (flat) taken.push({ left: x1 - 6.6 * line.name.length, right: x1, top: y1 - 16, bottom: y1 });
      else
        page.append(svg("text.halo", { x: (x0 + x1) / 2 - 6, y: (y0 + y1) / 2 - 8, "text-anchor": "end" }, line.name));
    }
    const marks = points.map((/** @type {any} */ point) => {
      const radius = 4 + 20 * Math.sqrt(point.size ?? 0);
      const mark = svg("circle.point", {
        cx: x.at(point.x),
        cy: y.at(point.y),
        r: radius,
        fill: seriesColor(point.group ?? 0),
      });
      return { mark, lines: [point.name, ...(point.text ?? [])] };
    });
    page.append(...marks.map((/** @type {any} */ one) => one.mark));
    // the names of the largest: to the right, to the left, below or above, wherever there is room first
    for (const point of points.slice(0, 12)) {
      const radius = 4 + 20 * Math.sqrt(point.size ?? 0),
        long = 6.6 * point.name.length,
        [cx, cy] = [x.at(point.x), y.at(point.y)];
      const ways = [
        [cx + radius + 4, cy - 6],
        [cx - radius - 4 - long, cy - 6],
        [cx - long / 2, cy + radius + 2],
        [cx - long / 2, cy - radius - 15],
      ];
      const box = ways
        .map(([left, top]) => ({ left, right: left + long, top, bottom: top + 13 }))
        .find(
          (one) =>
            one.left > LEFT && one.right < width - RIGHT && one.top > TOP && one.bottom < height - BOTTOM && free(one),
        );
      if (box === undefined) continue;
      taken.push(box);
      page.append(svg("text.halo.small", { x: box.left, y: box.top + 10 }, point.name));
    }
    telling(marks);
    return page;
  };
  const names = spec.groups.map((/** @type {string} */ name, /** @type {number} */ n) => ({
    name,
    color: seriesColor(n),
  }));
  return figure(spec.title, drawn(spec.title, draw), legend(names, spec.note));
}
