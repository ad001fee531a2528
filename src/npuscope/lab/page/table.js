// Tables that sort by a click on a heading.

import { change, clipped, element, figures, percent, significant, times, whole } from "./format.js";

const NAME = 60; // characters of a name

const inColumn = (/** @type {number} */ value) => figures(value, 4); // decimals of a cell far below the largest

// How a value that is there reads, by the names of table/formats.py.
/** @type {Record<string, (value: any) => string>} */
export const SHOW = {
  text: String,
  words: (value) => value.text, // words that Python made, with the value that they are sorted by
  list: (value) => value.join(", "),
  flag: (value) => (value ? "yes" : "no"),
  count: whole,
  number: (value) => (Number.isInteger(value) ? whole(value) : significant(value)),
  ns: inColumn,
  bytes: inColumn,
  flops: inColumn,
  share: percent,
  change,
  ratio: times,
  fits: (value) => (value ? "yes" : "does not fit"),
  shape: (value) => value.join("×") || "one",
  turns: (value) =>
    value
      .filter((/** @type {any} */ one) => one.of > 1)
      .map((/** @type {any} */ one) => `${one.turn + 1} of ${one.of}`)
      .join(", "),
};

/** @param {any} column @param {any} row */
function cell(column, row) {
  const value = row[column.key];
  if (value === null || value === undefined) return "–";
  return column.words?.[value] ?? SHOW[column.show](typeof value === "number" ? value / (column.per ?? 1) : value);
}

// One row upright: a line per column that has a value.
/** @param {any[]} columns @param {any} row */
export function facts(columns, row) {
  const lines = columns.map((column) => [column.title, cell(column, row)]).filter(([, value]) => value !== "–");
  return element(
    "table",
    element("tbody", ...lines.map(([name, value]) => element("tr", element("td", name), element("td.number", value)))),
  );
}

// Columns come from Python: {key, title, show, right, per, words, meaning}: `per` is the heading's unit. `dots` colours cells by key; `picked` is called with a chosen row.
/** @param {any[]} columns @param {any[]} rows @param {{sorted?: string | null, falling?: boolean, picked?: ((row: any) => void) | null, dots?: Record<string, (row: any) => string>, most?: number}} options */
export function sortable(columns, rows, { sorted = null, falling = true, picked = null, dots = {}, most = 2000 } = {}) {
  const body = element("tbody");
  const heads = columns.map((column) =>
    element(
      "th",
      {
        class: column.right ? "number" : "",
        scope: "col",
        tabindex: "0",
        title: column.meaning ?? (column.title.length > 28 ? column.title : null),
      },
      column.title,
    ),
  );
  /** @type {string | null} */
  let key = sorted;
  let down = falling;
  const fill = () => {
    const by = key,
      order = by === null ? rows : [...rows].sort((a, b) => compare(a[by], b[by]) * (down ? -1 : 1));
    body.replaceChildren(
      ...order.slice(0, most).map((row) => {
        const cells = columns.map((column) => {
          const text = cell(column, row),
            name = !column.right,
            color = dots[column.key];
          const dot = color ? element("span.dot", { style: `background:${color(row)}` }) : null;
          return element(
            "td",
            { class: name ? "name" : "number", title: name && text.length > NAME ? text : null },
            dot,
            name ? clipped(text, NAME) : text,
          );
        });
        const line = element("tr", { class: picked ? "pick" : "", tabindex: picked ? "-1" : null }, ...cells);
        if (picked) {
          const act = () => {
            const chosen = !line.classList.contains("chosen");
            for (const other of body.children) other.classList.remove("chosen");
            line.classList.toggle("chosen", chosen);
            picked(chosen ? row : null);
          };
          line.addEventListener("click", act);
          line.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
            const next = { ArrowDown: line.nextElementSibling, ArrowUp: line.previousElementSibling }[event.key];
            if (event.key === "Enter") act();
            else if (next === undefined) return;
            else next?.focus();
            event.preventDefault();
            event.stopPropagation();
          });
        }
        return line;
      }),
    );
    if (picked) body.firstElementChild?.setAttribute("tabindex", "0"); // arrows go on from there
    heads.forEach((head, i) => {
      if (columns[i].key === key) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  };
  heads.forEach((head, i) => {
    const act = () => {
      down = columns[i].key === key ? !down : columns[i].right;
      key = columns[i].key;
      fill();
    };
    head.addEventListener("click", act);
    head.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") act();
    });
  });
  fill();
  const table = element("table", element("thead", element("tr", ...heads)), body);
  const left = rows.length > most ? element("p.soft", `the first ${whole(most)} of ${whole(rows.length)} rows`) : null;
  return element("div", element("div.scroll", table), left);
}

/** @param {any} x @param {any} y */
function compare(x, y) {
  const a = x?.text === undefined ? x : (x.value ?? x.text),
    b = y?.text === undefined ? y : (y.value ?? y.text);
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return a < b ? -1 : 1;
}
