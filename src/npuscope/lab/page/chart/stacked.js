// Horizontal bars of parts, each with its words: what a total is made of.

import { clipped, svg } from "../format.js";
import { drawn, sheet } from "./frame.js";
import { telling } from "./tip.js";

const ROW = 22,
  LETTER = 7;

/** @param {{label: string, value: number, text: string, color?: string, parts?: {value: number, color: string, label: string}[]}[]} rows @param {{width?: number}} options */
export function stacked(rows, { width: widest = 720 } = {}) {
  const most = Math.max(...rows.map((row) => row.value), 1e-12),
    names = Math.max(...rows.map((row) => row.label.length), 1),
    words = Math.max(...rows.map((row) => row.text.length), 1);
  const draw = (/** @type {number} */ whole) => {
    const width = Math.min(whole, widest),
      left = Math.min(names * LETTER + 12, width * 0.42),
      page = sheet(width, rows.length * ROW + 4);
    const room = Math.max(width - left - Math.min(words * LETTER + 10, width * 0.36), 40);
    /** @type {{mark: any, lines: string[]}[]} */
    const marks = [];
    rows.forEach((row, n) => {
      const top = n * ROW + 3;
      page.append(
        svg(
          "text",
          { x: left - 8, y: top + 12, "text-anchor": "end" },
          clipped(row.label, Math.round((left - 12) / LETTER)),
        ),
      );
      let x = left;
      for (const part of row.parts ?? [
        { value: row.value, color: row.color ?? "", label: `${row.label}: ${row.text}` },
      ]) {
        const length = Math.max((part.value / most) * room, 0),
          mark = svg("rect", { x, y: top, width: length, height: ROW - 7, fill: part.color });
        marks.push({ mark, lines: [part.label] });
        page.append(mark);
        x += length;
      }
      page.append(
        svg(
          "text.soft",
          { x: x + 6, y: top + 12 },
          clipped(row.text, Math.max(Math.floor((width - x - 6) / LETTER), 8)),
        ),
      );
    });
    telling(marks);
    return page;
  };
  return drawn(rows.map((row) => row.label).join(", "), draw);
}
