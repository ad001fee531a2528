// A bar between two parts of the page, which the mouse and the arrow keys move.

import { element } from "./format.js";

const STEP = 16; // pixels of an arrow key

/**
 * `moved` gets how far in pixels it was moved since the drag began, and whether that is the end of it.
 * @param {"x" | "y"} along @param {string} label @param {() => void} begin @param {(by: number) => void} moved
 */
export function splitter(along, label, begin, moved) {
  const bar = element("div", {
    class: `splitter ${along}`,
    role: "separator",
    tabindex: "0",
    "aria-label": label,
    "aria-orientation": along === "x" ? "vertical" : "horizontal",
    title: label,
  });
  /** @type {number | null} */
  let from = null;
  const place = (/** @type {PointerEvent} */ event) => (along === "x" ? event.clientX : event.clientY);
  bar.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    from = place(event);
    begin();
    bar.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  bar.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (from !== null) moved(place(event) - from);
  });
  for (const end of ["pointerup", "pointercancel"])
    bar.addEventListener(end, () => {
      from = null;
    });
  bar.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const by = { ArrowUp: -STEP, ArrowLeft: -STEP, ArrowDown: STEP, ArrowRight: STEP }[event.key];
    if (by === undefined) return;
    begin();
    moved(by);
    event.preventDefault();
    event.stopPropagation();
  });
  return bar;
}
