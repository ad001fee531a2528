// The sheet that says what keys and the mouse do.

import { element } from "./format.js";
import { KEYS } from "./keys.js";

/** @type {[string, string][]} */
const MOUSE = [
  ["drag", "move"],
  ["Ctrl + wheel", "zoom"],
  ["Shift + wheel", "move left, right"],
  ["click", "select a slice; fold a group by its title"],
  ["double click", "zoom to a slice or an idle time"],
  ["Shift + drag", "select a range of time"],
  ["hover", "what it is; why it is idle"],
];

export function helpSheet() {
  const list = (/** @type {[string, string][]} */ rows) =>
    element("dl", ...rows.flatMap(([key, text]) => [element("dt", key), element("dd", text)]));
  const close = element("button", { "aria-label": "Close" }, "close");
  const sheet = element(
    "dialog.help",
    { "aria-label": "Keyboard and mouse" },
    element("h2", "Keyboard"),
    list(KEYS),
    element("h2", "Mouse, on the timeline"),
    list(MOUSE),
    close,
  );
  close.addEventListener("click", () => sheet.close());
  sheet.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "?") {
      sheet.close();
      event.preventDefault();
      event.stopPropagation();
    }
  });
  return sheet;
}
