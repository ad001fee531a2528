// From one total to another, step by step: what makes it longer, what makes it shorter.

import { clipped, duration, element, svg } from "../format.js";
import { themed } from "../colors.js";
import { drawn, figure, sheet } from "./frame.js";
import { telling } from "./tip.js";

const ROW = 24,
  LETTER = 6.7;

/** @param {any} spec */
export function waterfall(spec) {
  const change = (/** @type {number} */ ns) => `${ns > 0 ? "+" : ""}${duration(ns)}`;
  /** @type {{name: string, low: number, high: number, kind: string, text: string}[]} */
  const rows = [{ name: spec.names[0], low: 0, high: spec.from, kind: "--accent", text: duration(spec.from) }];
  let level = spec.from;
  for (const { name, ns } of spec.steps) {
    rows.push({
      name,
      low: Math.min(level, level + ns),
      high: Math.max(level, level + ns),
      kind: ns > 0 ? "--bad" : "--good",
      text: change(ns),
    });
    level += ns;
  }
  rows.push({ name: spec.names[1], low: 0, high: spec.to, kind: "--accent", text: duration(spec.to) });
  const most = Math.max(...rows.map((row) => row.high), 1),
    lows = rows.slice(1, -1).map((row) => row.low);
  const cut =
    lows.length && Math.min(...lows, spec.from, spec.to) > most * 0.85
      ? Math.min(...lows, spec.from, spec.to) - most * 0.05
      : 0; // small steps show
  const draw = (/** @type {number} */ width) => {
    const left = Math.min(Math.max(...rows.map((row) => row.name.length)) * LETTER + 12, width * 0.4),
      room = width - left - 84,
      page = sheet(width, rows.length * ROW);
    const x = (/** @type {number} */ ns) => left + (Math.max(ns - cut, 0) / (most - cut)) * room;
    const marks = rows.map((row, n) => {
      const top = n * ROW;
      const mark = svg(
        "g.bar",
        svg("rect.row", { x: 0, y: top, width, height: ROW }),
        svg(
          "text",
          { x: left - 8, y: top + 16, "text-anchor": "end" },
          clipped(row.name, Math.round((left - 12) / LETTER)),
        ),
        svg("rect", {
          x: x(row.low),
          y: top + 4,
          width: Math.max(x(row.high) - x(row.low), 1.5),
          height: ROW - 8,
          fill: themed(row.kind),
        }),
        svg("text.soft", { x: x(row.high) + 6, y: top + 16 }, row.text),
      );
      if (n + 1 < rows.length)
        mark.append(
          svg("line.grid", {
            x1: x(row.kind === "--good" ? row.low : row.high),
            x2: x(row.kind === "--good" ? row.low : row.high),
            y1: top + 4,
            y2: top + ROW + 4,
          }),
        );
      return { mark, lines: [row.name, row.text] };
    });
    page.append(...marks.map((one) => one.mark));
    telling(marks);
    return page;
  };
  return figure(
    spec.title ?? "",
    drawn(spec.title ?? "From A to B", draw),
    cut > 0 ? element("p.soft", `The axis begins at ${duration(cut)}.`) : null,
  );
}
