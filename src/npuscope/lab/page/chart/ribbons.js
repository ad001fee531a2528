// Rows of calls on one time axis, coloured by kind; what a call is, is shown under the pointer.

import { element } from "../format.js";
import { themed } from "../colors.js";
import { drawn, figure, legend } from "./frame.js";
import { hideTip, showTip } from "./tip.js";

// from too short (blue) over right (grey-green) to too long (red): by lightness too, for the colour-blind
const KINDS = ["#08519c", "#3182bd", "#9ecae1", "#c7d3c0", "#fdbe85", "#e6550d", "#8c2d04"];
const ROW = 46,
  GAP = 26;

/** @param {any} spec */
export function ribbons(spec) {
  const color = (/** @type {number} */ kind) => KINDS[kind] ?? themed("--ink");
  const canvas = element("canvas", { tabindex: "0" });
  const draw = (/** @type {number} */ width) => {
    const ratio = devicePixelRatio || 1,
      height = spec.rows.length * (ROW + GAP);
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const paper = canvas.getContext("2d");
    paper.setTransform(ratio, 0, 0, ratio, 0, 0);
    paper.clearRect(0, 0, width, height);
    paper.font = "13px system-ui, sans-serif";
    spec.rows.forEach((/** @type {any} */ row, /** @type {number} */ n) => {
      const top = n * (ROW + GAP) + GAP - 4,
        share = width / spec.span;
      paper.fillStyle = themed("--ink");
      paper.fillText(row.name, 2, top - 6);
      for (let i = 0; i < row.start.length; i++) {
        paper.fillStyle = color(row.kind[i]);
        paper.fillRect(row.start[i] * share, top, Math.max(row.dur[i] * share, 0.5), ROW);
      }
    });
    return canvas;
  };
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const area = canvas.getBoundingClientRect(),
      row = spec.rows[Math.floor((event.clientY - area.top) / (ROW + GAP))];
    const at = ((event.clientX - area.left) / area.width) * spec.span,
      slack = spec.span / area.width;
    if (!row) return hideTip();
    let low = 0,
      high = row.start.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.start[middle] <= at + slack) low = middle + 1;
      else high = middle;
    }
    for (let i = low - 1; i >= Math.max(0, low - 40); i--) {
      if (row.start[i] + row.dur[i] + slack >= at)
        return showTip([row.text[i], spec.kinds[row.kind[i]]], {
          left: event.clientX + 12,
          top: event.clientY,
          bottom: event.clientY + 14,
        });
    }
    hideTip();
  });
  canvas.addEventListener("pointerleave", hideTip);
  const names = spec.kinds.map((/** @type {string} */ name, /** @type {number} */ n) => ({ name, color: color(n) }));
  return figure(spec.title, drawn(spec.title, draw), legend(names, spec.note));
}
