// The parts of a report (lab/payload/parts.py): headings, sentences, notes, tables, charts.

import { element } from "./format.js";
import { chart } from "./chart.js";
import { sortable } from "./table.js";

/** @param {any} part */
function shown(part) {
  if (part.part === "heading") return element(`h${Math.min(part.level + 1, 4)}`, {}, part.text);
  if (part.part === "say") return element("p", { class: part.strong ? "verdict" : null }, part.text);
  if (part.part === "notes") return part.lines.length ? element("ul", { class: "notes" }, ...part.lines.map((/** @type {string} */ line) => element("li", {}, line))) : null;
  if (part.part === "chart") return chart(part.spec);
  if (part.rows.length === 0) return element("p", { class: "soft" }, "Nothing.");
  const more = part.left_out > 0 ? element("p", { class: "soft" }, `… and ${part.left_out.toLocaleString("en-US")} more rows`) : null;
  return element("div", {}, sortable(part.columns, part.rows), more);
}

/** @param {any[]} parts */
export function partsOf(parts) {
  return parts.map(shown).filter(one => one !== null);
}
