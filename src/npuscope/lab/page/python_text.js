// Python in colours: each line of a text as parts, which are shown as text.

import { element } from "./format.js";

const WORDS = new Set(
  (
    "and as assert async await break class continue def del elif else except finally for from global if import in is " +
    "lambda match nonlocal not or pass raise return try while with yield case None True False"
  ).split(" "),
);
const TOKEN = new RegExp(
  [
    "(?<comment>#.*)",
    "[rbfu]{0,2}(?<long>\"\"\"|''')",
    "(?<text>[rbfu]{0,2}(?:\"(?:\\\\.|[^\"\\\\])*\"?|'(?:\\\\.|[^'\\\\])*'?))",
    "(?<mark>@[\\w.]+)",
    "(?<number>\\b\\d[\\w.]*)",
    "(?<word>[A-Za-z_]\\w*)",
  ].join("|"),
  "gi",
);

/** @typedef {{kind: string, text: string}} Part */

/**
 * The parts of a line; `open` is the quote of a text that began on a line before, "" for none.
 * @param {string} line @param {string} open @returns {{parts: Part[], open: string}}
 */
function partsOfLine(line, open) {
  /** @type {Part[]} */
  const parts = [];
  let at = 0,
    named = false; // after def or class
  const add = (/** @type {string} */ kind, /** @type {number} */ end) => {
    if (end > at) parts.push({ kind, text: line.slice(at, end) });
    at = Math.max(at, end);
  };
  const close = (/** @type {number} */ from) => {
    const end = line.indexOf(open, from);
    add("text", end < 0 ? line.length : end + 3);
    if (end >= 0) open = "";
  };
  if (open) close(0);
  while (!open && at < line.length) {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(line);
    if (!found?.groups) break;
    const { comment, long, text, mark, number, word } = found.groups,
      end = TOKEN.lastIndex;
    add("", found.index);
    if (long) {
      open = long;
      close(end);
    } else if (comment || text || mark || number)
      add(comment ? "comment" : text ? "text" : mark ? "mark" : "number", end);
    else {
      add(WORDS.has(word) ? "keyword" : named ? "name" : "", end);
      named = word === "def" || word === "class";
    }
  }
  add(open ? "text" : "", line.length);
  return { parts, open };
}

/** The parts of every line. @param {string[]} lines @returns {Part[][]} */
export function highlighted(lines) {
  let open = "";
  return lines.map((line) => {
    const found = partsOfLine(line, open);
    open = found.open;
    return found.parts;
  });
}

/** @param {Part[]} parts */
export function coloured(parts) {
  return parts.map((part) => (part.kind ? element("span", { class: `py-${part.kind}` }, part.text) : part.text));
}
