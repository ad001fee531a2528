// What a range of time holds: per kernel its core time, per reason the idle time of the core lanes, as Python adds them up.

import { lowerBound } from "./model.js";

/**
 * Times in nanoseconds, clipped to the range; the largest first.
 * @param {import("./model.js").Model} model @param {number} from @param {number} to
 */
export function totalsOf(model, from, to) {
  const { timeline, slices, bubbles } = model,
    run = new Float64Array(timeline.device_kernels),
    count = new Uint32Array(timeline.device_kernels);
  const idle = new Float64Array(timeline.reasons.length);
  for (let row = 0; row < model.rows; row++) {
    const last = slices.begins[row + 1];
    for (
      let i = lowerBound(slices.start, from - model.longest[row], slices.begins[row], last);
      i < last && slices.start[i] < to;
      i++
    ) {
      const begin = Math.max(slices.start[i], from),
        end = Math.min(slices.start[i] + slices.dur[i], to),
        kernel = slices.kernel[i];
      if (kernel >= run.length || end < from || (end === begin && slices.dur[i] > 0)) continue;
      run[kernel] += end - begin;
      count[kernel] += slices.drawn ? slices.drawn[i] : 1;
    }
    for (
      let i = Math.max(
        lowerBound(bubbles.start, from, bubbles.begins[row], bubbles.begins[row + 1]) - 1,
        bubbles.begins[row],
      );
      i < bubbles.begins[row + 1] && bubbles.start[i] < to;
      i++
    ) {
      idle[bubbles.reason[i]] += Math.max(
        Math.min(bubbles.start[i] + bubbles.dur[i], to) - Math.max(bubbles.start[i], from),
        0,
      );
    }
  }
  const kernels = [...run]
    .map((ns, n) => ({ name: timeline.kernels[n], ns, count: count[n] }))
    .filter((one) => one.count > 0);
  const reasons = [...idle].map((ns, n) => ({ ...timeline.reasons[n], ns })).filter((one) => one.ns > 0);
  return {
    kernels: kernels.sort((a, b) => b.ns - a.ns),
    reasons: reasons.sort((a, b) => b.ns - a.ns),
    exact: slices.drawn === undefined,
  };
}
