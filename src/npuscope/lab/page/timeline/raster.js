// Rows of slices as rows of pixels: one line of an image each, which the view stretches to the height of its lanes. Idle
// time has a line of its own, which is drawn thin: it never looks like work.

import { lowerBound } from "./model.js";
import { levelsOf } from "./levels.js";

/** Colours as the image holds them. @typedef {{kernels: Uint32Array, reasons: Uint32Array, dim: number, flags: boolean[] | null, marked: ((i: number) => boolean) | null, bubbles: boolean}} Palette */

/** @param {[number, number, number]} rgb @param {number} alpha */
export function pixel([r, g, b], alpha = 255) {
  return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** A colour that lets the ground through. @param {number} color @param {number} share */
function faded(color, share) {
  return ((color & 0xffffff) | (Math.round(255 * share) << 24)) >>> 0;
}

/**
 * Paints a row into `width` pixels of `out` from `at` on, and its idle time from `idleAt` on.
 * @param {import("./model.js").Model} model @param {number} row @param {Uint32Array} out @param {number} at @param {number} idleAt @param {number} width
 * @param {number} from @param {number} to @param {Palette} palette
 */
export function paintRow(model, row, out, at, idleAt, width, from, to, palette) {
  const { begins, start } = model.slices,
    perPixel = (to - from) / width;
  const first = lowerBound(start, from - model.longest[row], begins[row], begins[row + 1]),
    last = lowerBound(start, to, first, begins[row + 1]);
  const plain = palette.flags === null && palette.marked === null;
  const levels = last - first > 2 * width && plain ? model.once(`levels ${row}`, () => levelsOf(model, row)) : [];
  const level = levels.findLast((/** @type {any} */ one) => one.size <= perPixel);
  if (level === undefined) {
    if (palette.bubbles) paintBubbles(model, row, out, idleAt, width, from, to, palette);
    paintSlices(model, out, at, width, from, perPixel, first, last, palette);
    return;
  }
  const idle = palette.bubbles ? palette.reasons : null,
    count = level.busy.length;
  for (let x = 0; x < width; x++) {
    const begin = Math.max(Math.floor((from + x * perPixel) / level.size), 0),
      end = Math.min(Math.max(Math.floor((from + (x + 1) * perPixel) / level.size), begin + 1), count);
    let busy = 0,
      most = -1,
      kernel = 0,
      longest = 0,
      reason = -1;
    for (let bucket = begin; bucket < end; bucket++) {
      busy += level.busy[bucket];
      if (level.most[bucket] > most) {
        most = level.most[bucket];
        kernel = level.kernel[bucket];
      }
      if (level.idle[bucket] > longest) {
        longest = level.idle[bucket];
        reason = level.reason[bucket];
      }
    }
    if (end <= begin) continue;
    const share = Math.min(busy / ((end - begin) * level.size), 1);
    if (busy > 0)
      out[at + x] = share >= 0.999 ? palette.kernels[kernel] : faded(palette.kernels[kernel], Math.max(share, 0.12));
    if (idle !== null && reason >= 0 && longest > 0) out[idleAt + x] = idle[reason];
  }
}

/** @param {import("./model.js").Model} model @param {number} row @param {Uint32Array} out @param {number} at @param {number} width @param {number} from @param {number} to @param {Palette} palette */
function paintBubbles(model, row, out, at, width, from, to, palette) {
  const { begins, start, dur, reason } = model.bubbles,
    perPixel = (to - from) / width;
  let i = Math.max(lowerBound(start, from, begins[row], begins[row + 1]) - 1, begins[row]);
  for (; i < begins[row + 1] && start[i] < to; i++) {
    const left = Math.max(Math.floor((start[i] - from) / perPixel), 0),
      right = Math.min(Math.max(Math.round((start[i] + dur[i] - from) / perPixel), left + 1), width);
    if (right > left) out.fill(palette.reasons[reason[i]], at + left, at + right);
  }
}

/** @param {import("./model.js").Model} model @param {Uint32Array} out @param {number} at @param {number} width @param {number} from @param {number} perPixel @param {number} first @param {number} last @param {Palette} palette */
function paintSlices(model, out, at, width, from, perPixel, first, last, palette) {
  const { start, dur, kernel } = model.slices,
    { flags, marked, kernels, dim } = palette;
  for (let i = first; i < last; i++) {
    const exact = (start[i] - from) / perPixel,
      wide = dur[i] / perPixel;
    if (exact + wide < 0) continue;
    const left = Math.max(Math.floor(exact), 0);
    let right = Math.min(Math.max(Math.floor(exact + wide), Math.floor(exact) + 1), width);
    if (wide >= 4 && right < width) right--; // neighbours stay apart
    if (right <= left) continue;
    const bright = (flags === null || flags[kernel[i]]) && (marked === null || marked(i));
    if (bright) out.fill(kernels[kernel[i]], at + left, at + right);
    // what is dimmed does not hide a hit in the same pixel
    else if (right - left > 1 || (flags === null && marked === null)) out.fill(dim, at + left, at + right);
    else if (out[at + left] >>> 24 < 255) out[at + left] = dim;
  }
}
