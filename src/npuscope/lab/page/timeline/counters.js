// A counter as a filled step line: a value holds until the next sample; of a pixel's samples the largest is drawn.

import { lowerBound } from "./model.js";
import { themed } from "../colors.js";
import { significant } from "../format.js";

/** @param {import("../types").CounterTrack} counter @param {number} moment */
export function counterAt(counter, moment) {
  const i = lowerBound(counter.time, moment + 1e-6, 0, counter.time.length) - 1;
  return i < 0 ? null : counter.value[i];
}

/** The mean over a stretch. @param {import("../types").CounterTrack} counter @param {number} from @param {number} to */
export function counterMean(counter, from, to) {
  const { time, value } = counter;
  let i = Math.max(lowerBound(time, from + 1e-6, 0, time.length) - 1, 0),
    sum = 0;
  if (time.length === 0 || to <= from) return counterAt(counter, from);
  for (; i < time.length && time[i] < to; i++) {
    const begin = Math.max(time[i], from),
      end = Math.min(i + 1 < time.length ? time[i + 1] : to, to);
    if (end > begin) sum += value[i] * (end - begin);
  }
  return sum / (to - from);
}

/** @param {import("./view.js").View} view @param {CanvasRenderingContext2D} paper @param {any} track */
export function paintCounter(view, paper, track) {
  const counter = view.timeline.counters[track.place],
    { time, value, most } = counter;
  const top = view.head + track.top - view.box.scrollTop + 3,
    high = track.height - 6,
    ground = top + high;
  const left = view.names,
    wide = view.width - left,
    perPixel = (view.to - view.from) / wide,
    ceiling = most > 0 ? most : 1;
  let i = Math.max(lowerBound(time, view.from, 0, time.length) - 1, 0);
  paper.fillStyle = themed("--counter");
  paper.beginPath();
  paper.moveTo(left, ground);
  let held = time.length && time[i] <= view.from ? value[i] : 0;
  for (let x = 0; x < wide; x++) {
    const end = view.from + (x + 1) * perPixel;
    let shown = held;
    while (i < time.length && time[i] < end) {
      held = value[i];
      if (held > shown) shown = held;
      i++;
    }
    const y = ground - (Math.max(shown, 0) / ceiling) * high;
    paper.lineTo(left + x, y);
    paper.lineTo(left + x + 1, y);
  }
  paper.lineTo(left + wide, ground);
  paper.closePath();
  paper.fill();
  paper.fillStyle = themed("--ink");
  paper.font = "10px system-ui, sans-serif";
  paper.textBaseline = "top";
  paper.strokeStyle = themed("--ground");
  paper.lineWidth = 3;
  paper.lineJoin = "round";
  paper.strokeText(`most ${significant(most)}`, left + 4, top); // readable where the counter is high
  paper.fillText(`most ${significant(most)}`, left + 4, top);
}
