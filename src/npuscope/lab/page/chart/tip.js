// What hovers beside a mark: the first line is its name, all of it is text. One for the whole app.

import { element } from "../format.js";

/** @type {HTMLElement | null} */
let box = null;
/** What the pointer was on when it was shown: elsewhere it goes. @type {EventTarget | null} */
let under = null;

function tipBox() {
  if (box === null) {
    box = /** @type {HTMLElement} */ (element("div.tip", { role: "status", hidden: "" }));
    document.addEventListener("pointermove", (event) => {
      under ??= event.target;
      if (event.target !== under) hideTip();
    });
    for (const event of ["wheel", "keydown", "pointerdown"])
      document.addEventListener(event, hideTip, { capture: true });
    for (const event of ["blur", "resize"]) addEventListener(event, hideTip);
    document.documentElement.addEventListener("pointerleave", hideTip);
  }
  if (!box.isConnected) document.body.append(box);
  return box;
}

/** Shows lines beside a rectangle of the window. @param {(string | null | undefined)[]} lines @param {{left: number, top: number, bottom: number}} beside @param {EventTarget | null} on */
export function showTip(lines, beside, on = null) {
  const tip = tipBox();
  under = on;
  tip.replaceChildren(...lines.filter(Boolean).map((line, n) => element(n ? "div" : "b", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(beside.left, innerWidth - width - 8))}px`;
  const above = beside.top - height - 8;
  tip.style.top = `${above > 8 ? above : Math.min(beside.bottom + 8, innerHeight - height - 8)}px`;
}

export function hideTip() {
  if (box !== null) box.hidden = true;
}

/**
 * Marks that tell about themselves under the pointer and, one after another with the arrow keys, without one.
 * @param {{mark: any, lines: (string | null | undefined)[], act?: () => void}[]} marks in the order of the arrow keys
 */
export function telling(marks) {
  marks.forEach(({ mark, lines, act }, n) => {
    mark.setAttribute("tabindex", n === 0 ? "0" : "-1");
    mark.setAttribute("role", act ? "button" : "img");
    mark.setAttribute("aria-label", lines.filter(Boolean).join("; "));
    const show = () => showTip(lines, mark.getBoundingClientRect());
    for (const event of ["pointerenter", "focus"]) mark.addEventListener(event, show);
    for (const event of ["pointerleave", "blur"]) mark.addEventListener(event, hideTip);
    if (act) mark.addEventListener("click", act);
    mark.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (event.key === "Escape") hideTip();
      if (event.key === "Enter" && act) act();
      const next = step === undefined ? undefined : marks[n + step];
      if (step !== undefined) {
        event.preventDefault();
        event.stopPropagation();
      }
      if (next) {
        mark.setAttribute("tabindex", "-1");
        next.mark.setAttribute("tabindex", "0");
        next.mark.focus();
      }
    });
  });
}
