// A run's timeline as arrays to look things up in: what lies where, who belongs to which task, who waits for whom.

import { Names } from "./names.js";

/** @typedef {import("../types").Timeline} Timeline */

/** The first place in [low, high) whose value is at least `wanted`. @param {ArrayLike<number>} values @param {number} wanted @param {number} low @param {number} high */
export function lowerBound(values, wanted, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Entries by group, as rows of one array: `of(group)` has their places. @param {ArrayLike<number>} groups @param {number} count */
function grouped(groups, count) {
  const begins = new Uint32Array(count + 1);
  for (let i = 0; i < groups.length; i++) if (groups[i] >= 0) begins[groups[i] + 1]++;
  for (let g = 0; g < count; g++) begins[g + 1] += begins[g];
  const next = begins.slice(),
    places = new Uint32Array(begins[count]);
  for (let i = 0; i < groups.length; i++) if (groups[i] >= 0) places[next[groups[i]]++] = i;
  return { of: (/** @type {number} */ group) => places.subarray(begins[group], begins[group + 1]) };
}

export class Model {
  /** @param {import("../types").Run} run */
  constructor(run) {
    const timeline = run.timeline;
    this.run = run;
    this.timeline = timeline;
    this.slices = timeline.slices;
    this.bubbles = timeline.bubbles;
    this.rows = timeline.rows.length;
    this.window = Math.max(timeline.window, 1);
    this.longest = this.#longest();
    /** @type {Map<string, any>} */
    this.kept = new Map();
  }

  /** Computed when first asked for. @template T @param {string} name @param {() => T} make @returns {T} */
  once(name, make) {
    if (!this.kept.has(name)) this.kept.set(name, make());
    return this.kept.get(name);
  }

  // The longest slice of each row, so that a search for what is visible looks back far enough.
  #longest() {
    const longest = new Float64Array(this.rows),
      { begins, dur } = this.slices;
    for (let row = 0; row < this.rows; row++) {
      let most = 0;
      for (let i = begins[row]; i < begins[row + 1]; i++) if (dur[i] > most) most = dur[i];
      longest[row] = most;
    }
    return longest;
  }

  /** The row of a slice. @param {number} slice */
  rowOf(slice) {
    const { begins } = this.slices;
    let row = lowerBound(begins, slice + 1, 0, begins.length) - 1;
    while (begins[row + 1] <= slice) row++;
    return row;
  }

  /** @param {number} row */
  laneOf(row) {
    return this.timeline.lanes[this.timeline.rows[row][0]];
  }

  /** The first row of every lane. */
  get rowOfLane() {
    return this.once("rowOfLane", () => {
      const first = new Int32Array(this.timeline.lanes.length).fill(-1);
      this.timeline.rows.forEach(([lane, depth], row) => {
        if (depth === 0) first[lane] = row;
      });
      return first;
    });
  }

  /** The slice of a row at a moment, within `slack`; -1 for none. @param {number} row @param {number} moment @param {number} slack */
  sliceAt(row, moment, slack) {
    const { begins, start, dur } = this.slices;
    let best = -1,
      away = Infinity;
    for (
      let i = lowerBound(start, moment + slack, begins[row], begins[row + 1]) - 1;
      i >= begins[row] && start[i] >= moment - this.longest[row] - slack;
      i--
    ) {
      const end = start[i] + dur[i],
        off = moment < start[i] ? start[i] - moment : moment > end ? moment - end : 0;
      if (off <= slack && off < away) {
        best = i;
        away = off;
        if (off === 0) break;
      }
    }
    return best;
  }

  /** The idle time of a row at a moment; -1 for none. @param {number} row @param {number} moment */
  bubbleAt(row, moment) {
    const { begins, start, dur } = this.bubbles;
    const i = lowerBound(start, moment, begins[row], begins[row + 1]) - 1;
    return i >= begins[row] && start[i] + dur[i] >= moment ? i : -1;
  }

  /** @param {number} slice */
  name(slice) {
    return this.timeline.kernels[this.slices.kernel[slice]];
  }

  /** Short names of the kernels, by their numbers. */
  get names() {
    return this.once("names", () => new Names(this.timeline.kernels));
  }

  /** The device's kernels by their numbers, those with most core time first. */
  get heaviest() {
    return this.once("heaviest", () => {
      const { kernel, dur } = this.slices,
        sums = new Float64Array(this.timeline.device_kernels);
      for (let i = 0; i < kernel.length; i++) if (kernel[i] < sums.length) sums[kernel[i]] += dur[i];
      return [...sums.keys()].sort((a, b) => sums[b] - sums[a]);
    });
  }

  /** The slices of a task, by its place among the tasks. @param {number} task */
  slicesOfTask(task) {
    return this.once("byTask", () => grouped(this.slices.task, this.timeline.tasks.length)).of(task);
  }

  /** Places of tasks that a task waits for. @param {number} task @returns {{task: number, kind: string}[]} */
  producers(task) {
    return this.#ends("dst", "src", task);
  }

  /** Places of tasks that wait for it. @param {number} task */
  consumers(task) {
    return this.#ends("src", "dst", task);
  }

  /** @param {"src" | "dst"} at @param {"src" | "dst"} other @param {number} task */
  #ends(at, other, task) {
    const edges = this.timeline.edges,
      found = new Map();
    for (const edge of this.once(`edges ${at}`, () => grouped(edges[at], this.timeline.tasks.length)).of(task)) {
      const end = edges[other][edge];
      if (end !== task && !found.has(end)) found.set(end, { task: end, kind: edges.kinds[edges.kind[edge]] });
    }
    return [...found.values()];
  }

  /** What the store keeps of a slice. @param {number} slice @returns {import("../types").Selection} */
  selection(slice) {
    const { task, block, body, site } = this.slices,
      place = site && site[slice] >= 0 ? this.timeline.sites[site[slice]] : null;
    return {
      kind: "slice",
      run: this.run.id,
      slice,
      kernel: this.name(slice),
      task: task[slice] < 0 ? null : this.timeline.tasks[task[slice]],
      block: block && block[slice] >= 0 ? block[slice] : null,
      body: body ? body[slice] : -1,
      file: place?.file ?? null,
      line: place?.line ?? null,
    };
  }

  /** The slice of this run that is most like one of another: the same kernel, task and block, else kernel and block, else -1. @param {import("../types").Selection & {kind: "slice"}} other */
  alike(other) {
    const place = this.timeline.kernels.indexOf(other.kernel),
      { kernel, task, block } = this.slices;
    let best = -1,
      score = -1;
    for (let i = 0; place >= 0 && i < kernel.length; i++) {
      if (kernel[i] !== place) continue;
      const sameTask = task[i] >= 0 && this.timeline.tasks[task[i]] === other.task,
        sameBlock = (block ? block[i] : -1) === (other.block ?? -1);
      const points = (sameTask ? 2 : 0) + (sameBlock ? 1 : 0);
      if (points > score) {
        best = i;
        score = points;
        if (points === 3) break;
      }
    }
    return best;
  }

  /** The slices whose kernel has the text in its name, by start. @param {string} text */
  search(text) {
    const wanted = text.trim().toLowerCase();
    if (wanted === "") return null;
    const { kernel, start } = this.slices;
    const flags = this.timeline.kernels.map((name) => name.toLowerCase().includes(wanted));
    /** @type {number[]} */
    const hits = [];
    for (let i = 0; i < kernel.length; i++) if (flags[kernel[i]]) hits.push(i);
    const order = Float64Array.from(hits, (i) => start[i]),
      places = Uint32Array.from(hits.keys()).sort((a, b) => order[a] - order[b]);
    return { flags, slices: Uint32Array.from(places, (place) => hits[place]) };
  }

  /** Slices that a selection marks, as a test of one slice; null where it marks none. @param {import("../types").Selection | null} selection */
  marks(selection) {
    const { kernel, site, body, task } = this.slices,
      { kernels, sites, tasks } = this.timeline;
    if (selection?.kind === "kernel") {
      const place = kernels.indexOf(selection.kernel);
      return (/** @type {number} */ i) => kernel[i] === place;
    }
    if (selection?.kind === "task")
      return (/** @type {number} */ i) => task[i] >= 0 && tasks[task[i]] === selection.task;
    if (selection?.kind === "line") {
      const bodies = new Set(selection.bodies ?? []);
      const flags = sites.map((one) => one.file === selection.file && one.line === selection.line);
      return (/** @type {number} */ i) =>
        (site !== undefined && site[i] >= 0 && flags[site[i]]) || (body !== undefined && bodies.has(body[i]));
    }
    return null;
  }
}
