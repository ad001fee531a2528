// Horizontal bars with an interval and words beside each; the best has a mark.

import { clipped, svg } from "../format.js";
import { seriesColor } from "../colors.js";
import { drawn, figure, grid, legend, scale, sheet } from "./frame.js";
import { telling } from "./tip.js";

const ROW = 24,
  LETTER = 6.7,
  FOOT = 24;

/** Words that end where there is no more room. @param {string} text @param {number} most */
const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, Math.max(most - 1, 0))}…`);

/** @param {any} spec */
export function bars(spec) {
  const rows = spec.rows,
    most = Math.max(...rows.map((/** @type {any} */ row) => Math.max(row.value, row.high ?? 0)), 1e-12);
  const draw = (/** @type {number} */ width) => {
    const longest = Math.max(...rows.map((/** @type {any} */ row) => row.name.length));
    const left = Math.min(longest * LETTER * 1.12 + 34, width * 0.42),
      words = width > 900 ? 430 : 0;
    const page = sheet(width, rows.length * ROW + FOOT);
    const x = scale({ form: spec.form }, [0, most], [left, width - 16 - words], (width - words - left) / 90);
    page.append(...grid(x.ticks, "x", [0, rows.length * ROW]));
    const marks = rows.map((/** @type {any} */ row, /** @type {number} */ n) => {
      const top = n * ROW,
        end = x.at(row.value),
        far = Math.max(end, row.high === null ? 0 : x.at(row.high));
      const mark = svg(
        "g",
        { class: row.best ? "bar best" : "bar" },
        svg("rect.row", { x: 0, y: top, width, height: ROW }),
        svg(
          "text",
          { x: left - 8, y: top + 16, "text-anchor": "end" },
          `${row.best ? "★ " : ""}${clipped(row.name, Math.floor((left - 30) / (row.best ? LETTER * 1.12 : LETTER)))}`,
        ),
        svg("rect", {
          x: left,
          y: top + 4,
          width: Math.max(end - left, 1),
          height: ROW - 8,
          fill: seriesColor(row.group ?? 0),
        }),
      );
      if (row.low !== null && row.low !== undefined) {
        const low = x.at(row.low),
          high = x.at(row.high),
          middle = top + ROW / 2;
        mark.append(
          svg("path.interval", {
            d: `M${low} ${middle}H${high}M${low} ${middle - 4}v8M${high} ${middle - 4}v8`,
          }),
        );
      }
      if (words)
        mark.append(
          svg("text.soft", { x: far + 8, y: top + 16 }, cut(row.text, Math.floor((width - far - 10) / LETTER))),
        );
      return { mark, lines: [row.name, row.text] };
    });
    page.append(...marks.map((/** @type {any} */ one) => one.mark));
    telling(marks);
    return page;
  };
  const names = spec.groups.map((/** @type {string} */ name, /** @type {number} */ n) => ({
    name,
    color: seriesColor(n),
  }));
  return figure(spec.title, drawn(spec.title, draw), legend(names, spec.note));
}
