// A row of slices at every coarseness: of each stretch of time how busy it was, with what most, and why it idled.
// A frame then costs as much as it has pixels, however many slices there are.

const FEW = 4096; // slices of a row that are drawn one by one

/** @typedef {{size: number, busy: Float32Array, most: Float32Array, kernel: Uint32Array, idle: Float32Array, reason: Uint8Array}} Level */

/** Adds a stretch to the buckets it covers. @param {number} start @param {number} end @param {number} size @param {number} count @param {(bucket: number, part: number) => void} add */
function spread(start, end, size, count, add) {
  const first = Math.min(Math.floor(start / size), count - 1),
    last = Math.min(Math.floor(end / size), count - 1);
  if (first === last) {
    add(first, end - start);
    return;
  }
  add(first, (first + 1) * size - start);
  for (let bucket = first + 1; bucket < last; bucket++) add(bucket, size);
  if (end > last * size) add(last, end - last * size);
}

/** @param {number} count @param {number} size @returns {Level} */
function empty(count, size) {
  return {
    size,
    busy: new Float32Array(count),
    most: new Float32Array(count),
    kernel: new Uint32Array(count),
    idle: new Float32Array(count),
    reason: new Uint8Array(count),
  };
}

/** Two neighbours as one. @param {Level} fine @returns {Level} */
function coarser(fine) {
  const count = fine.busy.length >> 1,
    level = empty(count, fine.size * 2);
  for (let i = 0; i < count; i++) {
    const a = 2 * i,
      b = a + 1;
    level.busy[i] = fine.busy[a] + fine.busy[b];
    const same = fine.kernel[a] === fine.kernel[b],
      left = fine.most[a] >= fine.most[b];
    level.kernel[i] = left ? fine.kernel[a] : fine.kernel[b];
    level.most[i] = same ? fine.most[a] + fine.most[b] : Math.max(fine.most[a], fine.most[b]);
    const why = fine.idle[a] >= fine.idle[b];
    level.reason[i] = why ? fine.reason[a] : fine.reason[b];
    level.idle[i] =
      fine.reason[a] === fine.reason[b] ? fine.idle[a] + fine.idle[b] : Math.max(fine.idle[a], fine.idle[b]);
  }
  return level;
}

/**
 * The levels of a row, the finest first; none where it has few slices.
 * @param {import("./model.js").Model} model @param {number} row @returns {Level[]}
 */
export function levelsOf(model, row) {
  const { begins, start, dur, kernel } = model.slices,
    first = begins[row],
    last = begins[row + 1];
  if (last - first <= FEW) return [];
  const count = 2 ** Math.ceil(Math.log2((last - first) / 2)),
    fine = empty(count, model.window / count);
  for (let i = first; i < last; i++) {
    const which = kernel[i];
    spread(start[i], start[i] + dur[i], fine.size, count, (bucket, part) => {
      fine.busy[bucket] += part;
      if (part > fine.most[bucket]) {
        fine.most[bucket] = part;
        fine.kernel[bucket] = which;
      }
    });
  }
  const idle = model.bubbles;
  for (let i = idle.begins[row]; i < idle.begins[row + 1]; i++) {
    const why = idle.reason[i];
    spread(idle.start[i], idle.start[i] + idle.dur[i], fine.size, count, (bucket, part) => {
      if (part > fine.idle[bucket]) {
        fine.idle[bucket] = part;
        fine.reason[bucket] = why;
      }
    });
  }
  const levels = [fine];
  while (levels[levels.length - 1].busy.length > 256) levels.push(coarser(levels[levels.length - 1]));
  return levels;
}
