// What the timeline says of the thing under the mouse.

import { duration, micros, significant, whole } from "../format.js";
import { counterAt } from "./counters.js";

/** Why a lane idled, as one sentence. @param {import("./model.js").Model} model @param {number} i */
export function whyIdle(model, i) {
  const { reason, kernel, blocker } = model.bubbles,
    { kernels, reasons } = model.timeline,
    words = reasons[reason[i]];
  const named = (/** @type {number} */ place, /** @type {string} */ otherwise) =>
    place < 0 ? otherwise : kernels[place];
  const parts = words.sentence.split(/(\{next\}|\{for\})/);
  const sentence = parts
    .map((part) =>
      part === "{next}" ? named(kernel[i], "Nothing") : part === "{for}" ? named(blocker[i], "what it needs") : part,
    )
    .join("");
  return { title: words.title, sentence };
}

/** @param {import("./view.js").View} view @param {any} found @returns {string[] | null} */
export function tipOf(view, found) {
  const { model, timeline } = view,
    { slices, bubbles } = model;
  if (found.kind === "slice") {
    const lane = model.laneOf(found.row),
      lines = [
        `${duration(slices.dur[found.i])} on ${lane.name}, from ${micros(slices.start[found.i])} µs for ${micros(slices.dur[found.i])} µs`,
      ];
    const task = slices.task[found.i];
    if (slices.drawn && slices.drawn[found.i] > 1)
      lines.push(`${whole(slices.drawn[found.i])} short slices drawn as one`);
    else if (task >= 0)
      lines.push(
        `task ${timeline.tasks[task]}${slices.block && slices.block[found.i] >= 0 ? `, block ${slices.block[found.i]}` : ""}`,
      );
    return [model.name(found.i), ...lines];
  }
  if (found.kind === "bubble") {
    const why = whyIdle(model, found.i);
    return [`Idle ${duration(bubbles.dur[found.i])}: ${why.title}`, why.sentence, model.laneOf(found.row).name];
  }
  if (found.kind === "band")
    return [
      found.track.spans[found.i][2],
      `${duration(found.track.spans[found.i][1] - found.track.spans[found.i][0])}, from ${duration(found.track.spans[found.i][0])}`,
    ];
  if (found.kind === "counter") {
    const counter = timeline.counters[found.i],
      value = counterAt(counter, found.moment);
    return value === null ? null : [counter.name, `${significant(value)} at ${duration(found.moment)}`];
  }
  return null;
}
