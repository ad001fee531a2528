// The parts of a report (lab/payload/parts.py): headings, sentences, notes, tables, charts.

import { element, whole, worded } from "./format.js";
import { chart } from "./chart.js";
import { sortable } from "./table.js";

/** @param {any} part @param {((row: any) => void) | null} picked */
function shown(part, picked) {
  if (part.part === "heading") return element(`h${Math.min(part.level + 1, 4)}`, {}, part.text);
  if (part.part === "say") return element("p", { class: part.strong ? "verdict" : null }, ...worded(part.text));
  if (part.part === "notes")
    return part.lines.length
      ? element("ul.notes", ...part.lines.map((/** @type {string} */ line) => element("li", ...worded(line))))
      : null;
  if (part.part === "chart") return chart(part.spec);
  if (part.rows.length === 0) return element("p.soft", "Nothing.");
  const more = part.left_out > 0 ? element("p.soft", `… and ${whole(part.left_out)} more rows`) : null;
  return element("div", sortable(part.columns, part.rows, { picked }), more);
}

/** `picked` is called with a row of a table that the reader chooses, or null. @param {any[]} parts @param {((row: any) => void) | null} picked */
export function partsOf(parts, picked = null) {
  return parts.map((part) => shown(part, picked)).filter((one) => one !== null);
}
