// Moving through time: zoom about a point, pan, all of it; and to a slice.

import { SHORTEST_NS } from "./view.js";

/** @param {import("../types").Store} store @param {number} start @param {number} end */
export function show(store, start, end) {
  const [first, last] = store.full(),
    length = Math.min(Math.max(end - start, SHORTEST_NS), last - first);
  const begin = Math.min(Math.max(start, first), last - length),
    { window } = store.state;
  if (window[0] !== begin || window[1] !== begin + length) store.set({ window: [begin, begin + length] });
}

/** @param {import("../types").Store} store @param {number} factor @param {number} at */
export function zoom(store, factor, at = 0.5) {
  const [start, end] = store.state.window,
    length = (end - start) * factor,
    pivot = start + (end - start) * at;
  show(store, pivot - length * at, pivot + length * (1 - at));
}

/** @param {import("../types").Store} store @param {number} share */
export function pan(store, share) {
  const [start, end] = store.state.window,
    by = (end - start) * share;
  show(store, start + by, end + by);
}

/** A stretch in the middle of the view, which stays as long as it is unless the stretch needs more, or is hard to see. @param {import("../types").Store} store @param {number} start @param {number} end */
export function center(store, start, end) {
  const [from, to] = store.state.window,
    dur = Math.max(end - start, 1),
    length = to - from;
  const wanted = dur > length * 0.8 ? dur * 1.6 : dur < length / 400 ? dur * 60 : length;
  if (wanted === length && start >= from && end <= to) return;
  show(store, (start + end) / 2 - wanted / 2, (start + end) / 2 + wanted / 2);
}
