// What is drawn over the slices: the critical path, arrows from producers and to consumers, the stretches of a cause.

import { themed } from "../colors.js";
import { clippedEnd } from "../format.js";
import { lowerBound } from "./model.js";

const MOST_ARROWS = 300,
  LATE = "late peer"; // the kind of an edge from the rank that came last (payload/all_ranks.py)

/** @param {import("./view.js").View} view @param {CanvasRenderingContext2D} paper */
export function paintPath(view, paper) {
  const { lane, start, end, part } = view.timeline.path,
    first = view.model.rowOfLane;
  paper.strokeStyle = themed("--ink");
  paper.lineWidth = 1.3;
  let reached = -10;
  /** @type {[number, number] | null} */
  let before = null;
  for (let i = lowerBound(end, view.from, 0, end.length); i < start.length && start[i] < view.to; i++) {
    if (part[i] !== 0 || lane[i] < 0) continue; // a wait, or a lane that is not drawn
    const left = view.x(start[i]),
      right = view.x(end[i]),
      row = first[lane[i]];
    if (right - reached < 0.7) continue;
    reached = right;
    const top = view.rowY(row),
      high = view.rowHeight(row);
    if (before !== null) {
      paper.globalAlpha = 0.5;
      paper.beginPath();
      paper.moveTo(before[0], before[1]);
      paper.lineTo(left, top + high / 2);
      paper.stroke();
      paper.globalAlpha = 1;
    }
    paper.strokeRect(left, top + 0.5, Math.max(right - left, 1), high + 1);
    before = [right, top + high / 2];
  }
}

/** The slice of a task that an arrow touches: the last that ended, or the first that began. Its submission counts only where it has no other. @param {import("./model.js").Model} model @param {number} task @param {boolean} last */
export function endOf(model, task, last) {
  const { start, dur, kernel } = model.slices;
  let best = -1;
  const all = model.slicesOfTask(task),
    work = all.filter((/** @type {number} */ i) => kernel[i] < model.timeline.device_kernels);
  for (const i of work.length ? work : all) {
    if (best < 0 || (last ? start[i] + dur[i] > start[best] + dur[best] : start[i] < start[best])) best = i;
  }
  return best;
}

/** @param {import("./view.js").View} view @param {CanvasRenderingContext2D} paper @param {number} slice */
export function paintArrows(view, paper, slice) {
  const { model } = view,
    { start, dur, task } = model.slices;
  view.arrows = 0;
  if (task[slice] < 0) return;
  const mine = (/** @type {number} */ i, /** @type {boolean} */ end) => {
    const row = model.rowOf(i);
    return [view.x(start[i] + (end ? dur[i] : 0)), view.rowY(row) + view.rowHeight(row) / 2 + 1];
  };
  const draw = (/** @type {number[]} */ from, /** @type {number[]} */ to, /** @type {string} */ color) => {
    const bend = Math.max(Math.abs(to[0] - from[0]) / 2, 18);
    paper.strokeStyle = color;
    paper.fillStyle = color;
    paper.lineWidth = 1.6;
    paper.beginPath();
    paper.moveTo(from[0], from[1]);
    paper.bezierCurveTo(from[0] + bend, from[1], to[0] - bend, to[1], to[0], to[1]);
    paper.stroke();
    paper.beginPath();
    paper.moveTo(to[0], to[1]);
    paper.lineTo(to[0] - 7, to[1] - 4);
    paper.lineTo(to[0] - 7, to[1] + 4);
    paper.closePath();
    paper.fill();
    view.arrows++;
  };
  // a rank that waits was let go by the one that came last: at the moment it came
  const late = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ color) => {
    const [x, y] = mine(from, false),
      row = model.rowOf(to);
    draw([x, y], [x, view.rowY(row) + view.rowHeight(row) / 2 + 1], color);
  };
  for (const one of model.producers(task[slice]).slice(0, MOST_ARROWS)) {
    const end = endOf(model, one.task, one.kind !== LATE);
    if (end < 0) continue;
    if (one.kind === LATE) late(end, slice, themed("--producer"));
    else draw(mine(end, true), mine(slice, false), themed("--producer"));
  }
  for (const one of model.consumers(task[slice]).slice(0, MOST_ARROWS)) {
    const begin = endOf(model, one.task, false);
    if (begin < 0) continue;
    if (one.kind === LATE) late(slice, begin, themed("--consumer"));
    else draw(mine(slice, true), mine(begin, false), themed("--consumer"));
  }
}

/** The stretches that show a cause: nanoseconds from the window's start, and the lane's place. @param {import("../types").Run} run @param {number} place @returns {[number, number, number | null][]} */
export function stretches(run, place) {
  const cause = run.diagnosis.causes[place],
    origin = run.timeline.origin;
  const lanes = run.timeline.lanes;
  return (cause?.where ?? []).map(([start, end, lane]) => [
    start - origin,
    end - origin,
    lane === null || lane === undefined ? null : lanes.findIndex((one) => one.lane === lane),
  ]);
}

/** The first cause with a stretch at a moment of a lane; -1 for none. @param {import("../types").Run} run @param {number} lane @param {number} moment */
export function causeAt(run, lane, moment) {
  return run.diagnosis.causes.findIndex((_, place) =>
    stretches(run, place).some(
      ([start, end, where]) => start <= moment && moment <= end && (where === null || where === lane),
    ),
  );
}

/** @param {import("./view.js").View} view @param {CanvasRenderingContext2D} paper @param {number} place */
export function paintCause(view, paper, place) {
  const strong = themed("--cause"),
    weak = themed("--cause-wide"),
    edge = themed("--hit");
  for (const [start, end, lane] of stretches(view.model.run, place)) {
    if (end < view.from || start > view.to) continue;
    const left = view.x(start),
      wide = Math.max(view.x(end) - left, 1.5),
      row = lane === null ? -1 : (view.model.rowOfLane[lane] ?? -1);
    paper.fillStyle = row < 0 ? weak : strong;
    if (row >= 0) {
      paper.fillRect(left, view.rowY(row), wide, view.rowHeight(row) + 2);
      continue;
    }
    paper.fillRect(left, view.head, wide, view.height - view.head);
    paper.fillStyle = edge;
    paper.fillRect(left, view.head, wide, 4);
    if (wide > 6) {
      paper.fillRect(left, view.head, 1.5, view.height);
      paper.fillRect(left + wide - 1.5, view.head, 1.5, view.height);
    }
  }
}

/** The reader's pins: a flag with its number on the axis, and lines down from it. @param {import("./view.js").View} view @param {CanvasRenderingContext2D} paper */
export function paintPins(view, paper) {
  view.store.state.pins.forEach((pin, n) => {
    const left = view.x(pin.start),
      right = view.x(pin.end);
    if (right < view.names || left > view.width) return;
    const from = Math.max(left, view.names),
      text = `${n + 1} ${pin.text}`,
      font = "600 11px system-ui, sans-serif";
    paper.font = font;
    paper.fillStyle = themed("--hit");
    paper.fillRect(from, view.head - 3, Math.max(Math.min(right, view.width) - from, 2), 3);
    for (const x of [left, right]) if (x >= view.names) paper.fillRect(x - 0.5, view.head, 1, view.height - view.head);
    const wide = Math.min(paper.measureText(text).width + 8, 180);
    paper.fillRect(from, view.head, wide, 15);
    paper.fillStyle = themed("--ground");
    paper.textBaseline = "middle";
    paper.fillText(clippedEnd(text, 28), from + 4, view.head + 8);
  });
}
