// The whole run in a strip: how many core lanes were busy over time, the part in sight, and hits of a search.

import { element } from "../format.js";
import { themed } from "../colors.js";
import { show } from "./moves.js";

const HIGH = 34,
  BINS = 1024;

/** Busy core lanes over time, as a share. @param {import("./model.js").Model} model */
function busyOver(model) {
  const sum = new Float64Array(BINS),
    { begins, start, dur } = model.slices,
    core = new Set(model.timeline.core_lanes),
    size = model.window / BINS;
  for (let row = 0; row < model.rows; row++) {
    const [lane, depth] = model.timeline.rows[row];
    if (depth > 0 || !core.has(lane)) continue;
    for (let i = begins[row]; i < begins[row + 1]; i++) {
      const end = start[i] + dur[i],
        first = Math.min(Math.floor(start[i] / size), BINS - 1),
        last = Math.min(Math.floor(end / size), BINS - 1);
      if (first === last) {
        sum[first] += dur[i];
        continue;
      }
      sum[first] += (first + 1) * size - start[i];
      for (let bin = first + 1; bin < last; bin++) sum[bin] += size;
      sum[last] += end - last * size;
    }
  }
  return sum.map((busy) => Math.min(busy / size / Math.max(core.size, 1), 1));
}

export class Minimap {
  /** @param {import("../types").Store} store */
  constructor(store) {
    this.store = store;
    /** @type {import("./model.js").Model | null} */
    this.model = null;
    /** @type {{slices: Uint32Array} | null} */
    this.found = null;
    this.canvas = element("canvas", {
      role: "img",
      "aria-label": "The whole run: busy core lanes over time, and the part in sight",
    });
    this.box = element("div.minimap", this.canvas);
    this.queued = false;
    new ResizeObserver(() => this.draw()).observe(this.box);
    const move = (/** @type {PointerEvent} */ event) => {
      const box = this.canvas.getBoundingClientRect(),
        [first, last] = store.full(),
        [from, to] = store.state.window;
      const middle = first + ((event.clientX - box.left) / box.width) * (last - first);
      show(store, middle - (to - from) / 2, middle + (to - from) / 2);
    };
    this.canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
      this.canvas.setPointerCapture(event.pointerId);
      move(event);
    });
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
      if (event.buttons) move(event);
    });
  }

  /** @param {import("./model.js").Model} model */
  build(model) {
    this.model = model;
    this.draw();
  }

  draw() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.paint();
    });
  }

  paint() {
    const width = this.box.clientWidth,
      scale = devicePixelRatio || 1;
    if (this.model === null || width === 0) return;
    const model = this.model,
      busy = model.once("busy over time", () => busyOver(model));
    if (this.canvas.width !== Math.round(width * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = HIGH * scale;
    }
    const paper = this.canvas.getContext("2d"),
      [first, last] = this.store.full(),
      [from, to] = this.store.state.window;
    const x = (/** @type {number} */ moment) => ((moment - first) / (last - first)) * width;
    paper.setTransform(scale, 0, 0, scale, 0, 0);
    paper.clearRect(0, 0, width, HIGH);
    paper.fillStyle = themed("--counter");
    const wide = x(model.window) / busy.length;
    for (let bin = 0; bin < busy.length; bin++)
      paper.fillRect(bin * wide, HIGH - busy[bin] * (HIGH - 4), wide + 0.5, HIGH);
    if (this.found !== null) {
      paper.fillStyle = themed("--hit");
      let drawn = -1;
      for (const slice of this.found.slices) {
        const at = Math.floor(x(model.slices.start[slice]));
        if (at !== drawn) {
          paper.fillRect(at, 0, 1.5, 6);
          drawn = at;
        }
      }
    }
    paper.fillStyle = `${themed("--accent")}2e`;
    paper.strokeStyle = themed("--accent");
    paper.lineWidth = 1.5;
    paper.fillRect(x(from), 0, Math.max(x(to) - x(from), 2), HIGH);
    paper.strokeRect(x(from) + 0.75, 0.75, Math.max(x(to) - x(from) - 1.5, 2), HIGH - 1.5);
  }
}
