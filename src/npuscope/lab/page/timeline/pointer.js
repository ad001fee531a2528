// The mouse on a timeline: drag to move, wheel to zoom, click to choose, shift and drag for a range, double click to zoom in.

import { hideTip, showTip } from "../chart/tip.js";
import { pan, show, zoom } from "./moves.js";
import { tipOf } from "./words.js";

const STILL = 4; // pixels a click may move

/** @param {import("./view.js").View} view @param {import("./pane.js").Pane} pane */
export function listen(view, pane) {
  const { canvas, store } = view;
  /** @type {{x: number, y: number, top: number, window: [number, number], range: boolean, moved: boolean} | null} */
  let drag = null;
  const place = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return /** @type {[number, number]} */ ([event.clientX - box.left, event.clientY - box.top]);
  };
  canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    if (event.button !== 0) return;
    const [x] = place(event);
    drag = {
      x: event.clientX,
      y: event.clientY,
      top: view.box.scrollTop,
      window: store.state.window,
      range: event.shiftKey && x >= view.names,
      moved: false,
    };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    pane.pointer = Math.max((place(event)[0] - view.names) / (view.width - view.names), 0);
    if (drag === null) {
      hover(event);
      return;
    }
    const dx = event.clientX - drag.x,
      dy = event.clientY - drag.y;
    if (!drag.moved && Math.abs(dx) + Math.abs(dy) < STILL) return;
    drag.moved = true;
    hideTip();
    if (drag.range) {
      const box = canvas.getBoundingClientRect(),
        ends = [view.moment(drag.x - box.left), view.moment(event.clientX - box.left)].sort((a, b) => a - b);
      view.ranging = [Math.max(Math.round(ends[0]), 0), Math.round(ends[1])];
      view.draw();
      return;
    }
    const by = (-dx / (view.width - view.names)) * (drag.window[1] - drag.window[0]);
    show(store, drag.window[0] + by, drag.window[1] + by);
    view.box.scrollTop = drag.top - dy;
  });
  canvas.addEventListener("pointerup", (/** @type {PointerEvent} */ event) => {
    const was = drag;
    drag = null;
    if (was === null) return;
    if (view.ranging !== null) {
      const [start, end] = view.ranging;
      view.ranging = null;
      if (end > start) store.set({ selection: { kind: "range", start, end } });
      return;
    }
    if (!was.moved) click(event);
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
    view.ranging = null;
  });
  canvas.addEventListener("pointerleave", () => {
    pane.pointer = null;
    hideTip();
  });

  const click = (/** @type {PointerEvent} */ event) => {
    const found = view.at(...place(event));
    if (found === null) {
      store.set({ selection: null });
      return;
    }
    if (found.kind === "group" || found.kind === "unused") {
      const { folded } = store.state,
        { id } = found.track;
      store.set({ folded: folded.includes(id) ? folded.filter((one) => one !== id) : [...folded, id] });
    } else if (found.kind === "slice") pane.choose(view, found.i, false);
    else if (found.kind === "band") {
      const [start, end] = found.track.spans[found.i];
      store.set({ selection: { kind: "range", start, end } });
    } else pane.chooseEmpty(view, found);
  };

  canvas.addEventListener("dblclick", (/** @type {MouseEvent} */ event) => {
    const found = view.at(...place(event));
    if (found?.kind !== "slice" && found?.kind !== "bubble") return;
    const table = found.kind === "slice" ? view.model.slices : view.model.bubbles,
      length = Math.max(table.dur[found.i], 1);
    show(store, table.start[found.i] - length / 2, table.start[found.i] + 1.5 * length);
  });

  view.box.addEventListener(
    "wheel",
    (/** @type {WheelEvent} */ event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!event.ctrlKey && !event.shiftKey && !sideways) return; // lanes scroll
      event.preventDefault();
      const [x] = place(event);
      if (event.ctrlKey)
        zoom(
          store,
          Math.exp(Math.max(Math.min(event.deltaY, 150), -150) / 400),
          Math.max((x - view.names) / (view.width - view.names), 0),
        );
      else pan(store, (sideways ? event.deltaX : event.deltaY) / 1000);
    },
    { passive: false },
  );

  const hover = (/** @type {PointerEvent} */ event) => {
    const found = view.at(...place(event)),
      words = found === null ? null : tipOf(view, found);
    canvas.style.cursor =
      found === null
        ? "default"
        : found.kind === "slice" || found.kind === "group" || found.kind === "unused"
          ? "pointer"
          : "crosshair";
    if (words === null) hideTip();
    else showTip(words, { left: event.clientX + 14, top: event.clientY, bottom: event.clientY + 10 }, canvas);
  };
}
