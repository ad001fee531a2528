// Tables that sort by a click on a heading.

import { element, micros, percent, whole } from "./format.js";

export const SHOW = {
  text: value => (value === null || value === undefined ? "–" : String(value)),
  count: whole,
  ns: value => micros(value),
  share: percent,
  ratio: value => (value === null || value === undefined ? "–" : `${value.toFixed(2)}×`),
  number: value => (value === null || value === undefined ? "–" : value.toLocaleString("en-US", { maximumFractionDigits: 2 })),
};

// Columns are {key, title, show, dot?}; `picked` is called with a row when somebody chooses it.
export function sortable(columns, rows, { sorted = null, falling = true, picked = null, most = 2000 } = {}) {
  const body = element("tbody");
  const heads = columns.map(column => element("th", { class: column.show === "text" ? "" : "number", scope: "col", tabindex: "0" }, column.title));
  let key = sorted, down = falling;
  const fill = () => {
    const order = key === null ? rows : [...rows].sort((a, b) => compare(a[key], b[key]) * (down ? -1 : 1));
    body.replaceChildren(...order.slice(0, most).map(row => {
      const cells = columns.map(column => {
        const text = SHOW[column.show](row[column.key]);
        const dot = column.dot ? element("span", { class: "dot", style: `background:${column.dot(row)}` }) : null;
        const name = column.show === "text";
        return element("td", { class: name ? "name" : "number", title: name && text.length > 40 ? text : null }, dot, text);
      });
      const line = element("tr", { class: picked ? "pick" : "" }, ...cells);
      if (picked) line.addEventListener("click", () => {
        const chosen = !line.classList.contains("chosen");
        for (const other of body.children) other.classList.remove("chosen");
        line.classList.toggle("chosen", chosen);
        picked(chosen ? row : null);
      });
      return line;
    }));
    heads.forEach((head, i) => {
      if (columns[i].key === key) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  };
  heads.forEach((head, i) => {
    const act = () => { down = columns[i].key === key ? !down : columns[i].show !== "text"; key = columns[i].key; fill(); };
    head.addEventListener("click", act);
    head.addEventListener("keydown", event => { if (event.key === "Enter") act(); });
  });
  fill();
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
  const left = rows.length > most ? element("p", { class: "soft" }, `the first ${whole(most)} of ${whole(rows.length)} rows`) : null;
  return element("div", {}, element("div", { class: "scroll" }, table), left);
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return a < b ? -1 : 1;
}
