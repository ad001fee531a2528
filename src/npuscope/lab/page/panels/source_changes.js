// Lines of source that differ between two versions.

import { element } from "../format.js";

/** @param {any[]} files as lab/payload/source_changes.py has them */
export function changedLines(files) {
  return element(
    "div",
    ...files.map((file) =>
      element(
        "div.changed",
        element("h3.source", file.name),
        element(
          "table.diff",
          element(
            "tbody",
            ...file.lines.map((/** @type {[number, number, string, string]} */ [before, after, kind, text]) =>
              element(
                "tr",
                { class: kind === "+" ? "added" : kind === "-" ? "taken" : "" },
                element("td.number.soft", before ? String(before) : ""),
                element("td.number.soft", after ? String(after) : ""),
                element("td", kind),
                element("td.source", text),
              ),
            ),
          ),
        ),
        file.left_out ? element("p.soft", `… and ${file.left_out} more lines`) : null,
      ),
    ),
  );
}

/** Two texts' lines: equal ends are left away, the middle is shown as taken and added. @param {string} old @param {string} text */
function middle(old, text) {
  const a = old.split("\n"),
    b = text.split("\n");
  let top = 0,
    bottom = 0;
  while (top < a.length && top < b.length && a[top] === b[top]) top++;
  while (bottom < a.length - top && bottom < b.length - top && a[a.length - 1 - bottom] === b[b.length - 1 - bottom])
    bottom++;
  return [
    ...a.slice(top, a.length - bottom).map((line, n) => [top + n + 1, 0, "-", line]),
    ...b.slice(top, b.length - bottom).map((line, n) => [0, top + n + 1, "+", line]),
  ];
}

/** Files by their paths, before and after. @param {Record<string, string>} old @param {Record<string, string>} now */
export function changes(old, now) {
  const differ = Object.keys({ ...old, ...now }).filter((file) => old[file] !== now[file]);
  return changedLines(
    differ.map((file) => ({
      name: file.split("/").pop(),
      lines: middle(old[file] ?? "", now[file] ?? ""),
      left_out: 0,
    })),
  );
}
