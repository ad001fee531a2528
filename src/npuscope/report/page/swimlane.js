// The timeline: lanes of slices on a canvas, zoomed by pixels, so that a frame costs what is visible and no more.

import { clipped, element, time, micros } from "./format.js";
import { kernelColor, reasonColor, themed } from "./colors.js";

const GAP = 2, AXIS = 22, FEWEST_NS = 20;
export const NAMES = 92; // pixels for the lanes' names

// The first position in [low, high) whose value is at least `wanted`.
function lowerBound(values, wanted, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}

// Where each lane's entries begin in a table sorted by lane, then start.
function begins(lanes, count) {
  const places = new Uint32Array(count + 1);
  for (const lane of lanes) places[lane + 1]++;
  for (let lane = 0; lane < count; lane++) places[lane + 1] += places[lane];
  return places;
}

export class Swimlane {
  constructor(timeline, title) {
    this.timeline = timeline;
    this.lanes = timeline.lanes;
    this.slices = timeline.slices;
    this.bubbles = timeline.bubbles;
    this.row = this.lanes.length <= 16 ? 24 : 13; // pixels of a lane
    this.sliceBegins = begins(this.slices.lane, this.lanes.length);
    this.bubbleBegins = begins(this.bubbles.lane, this.lanes.length);
    this.longest = this.#longest();
    this.full = [0, Math.max(timeline.window, 1)];
    this.view = [...this.full];
    this.matched = null; // kernels found by a search, as flags
    this.shown = { bubbles: true, path: timeline.chain };
    this.followers = []; // other swimlanes that share this one's view
    this.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": `Timeline of ${title}` });
    this.box = element("div", { class: "lanes" }, this.canvas);
    this.tip = element("div", { class: "tip", role: "tooltip", hidden: "" });
    document.body.append(this.tip);
    this.#listen();
    new ResizeObserver(() => this.#resize()).observe(this.box);
  }

  // The longest slice of each lane, so that a search for what is visible can look back far enough.
  #longest() {
    const longest = new Float64Array(this.lanes.length);
    const { lane, dur } = this.slices;
    for (let i = 0; i < lane.length; i++) if (dur[i] > longest[lane[i]]) longest[lane[i]] = dur[i];
    return longest;
  }

  setFull(full) { this.full = full; this.setView(full[0], full[1]); }

  setView(start, end, told = true) {
    const [first, last] = this.full;
    const length = Math.min(Math.max(end - start, FEWEST_NS), last - first);
    start = Math.min(Math.max(start, first), last - length);
    this.view = [start, start + length];
    this.tip.hidden = true;
    this.draw();
    if (told) for (const other of this.followers) other.setView(start, start + length, false);
  }

  zoom(factor, at = 0.5) {
    const [start, end] = this.view, length = (end - start) * factor, pivot = start + (end - start) * at;
    this.setView(pivot - length * at, pivot + length * (1 - at));
  }

  pan(share) {
    const [start, end] = this.view, by = (end - start) * share;
    this.setView(start + by, end + by);
  }

  // Kernels whose names contain the text stay coloured; returns how many slices match.
  search(text) {
    const wanted = text.trim().toLowerCase();
    if (wanted === "") { this.matched = null; this.draw(); return null; }
    this.matched = this.timeline.kernels.map(name => name.toLowerCase().includes(wanted));
    this.draw();
    let count = 0;
    for (const kernel of this.slices.kernel) if (this.matched[kernel]) count++;
    return count;
  }

  // Zoom to the next match after the middle of the view.
  nextMatch() {
    if (this.matched === null) return;
    const middle = (this.view[0] + this.view[1]) / 2;
    const { start, dur, kernel } = this.slices;
    let best = -1, first = -1;
    for (let i = 0; i < start.length; i++) {
      if (!this.matched[kernel[i]]) continue;
      if (first < 0 || start[i] < start[first]) first = i;
      if (start[i] + dur[i] / 2 > middle && (best < 0 || start[i] < start[best])) best = i;
    }
    const found = best >= 0 ? best : first;
    if (found < 0) return;
    const width = Math.max(dur[found] * 8, 1000), center = start[found] + dur[found] / 2;
    this.setView(center - width / 2, center + width / 2);
  }

  #resize() {
    const width = this.box.clientWidth, height = AXIS + this.lanes.length * this.row + 4;
    const scale = window.devicePixelRatio || 1;
    this.width = width; this.height = height;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * scale); this.canvas.height = Math.round(height * scale);
    this.draw();
  }

  x(moment) { return NAMES + (moment - this.view[0]) / (this.view[1] - this.view[0]) * (this.width - NAMES); }
  y(lane) { return AXIS + lane * this.row; }
  moment(x) { return this.view[0] + (x - NAMES) / (this.width - NAMES) * (this.view[1] - this.view[0]); }

  draw() {
    if (this.queued || !this.width) return;
    this.queued = true;
    requestAnimationFrame(() => { this.queued = false; this.#paint(); });
  }

  #paint() {
    const began = performance.now();
    const paper = this.canvas.getContext("2d"), scale = window.devicePixelRatio || 1;
    paper.setTransform(scale, 0, 0, scale, 0, 0);
    paper.clearRect(0, 0, this.width, this.height);
    this.dim = themed("--dim");
    this.#paintAxis(paper);
    paper.save();
    paper.beginPath(); paper.rect(NAMES, 0, this.width - NAMES, this.height); paper.clip();
    if (this.shown.bubbles) this.#paintTable(paper, this.bubbles, this.bubbleBegins, null, i => reasonColor(this.timeline.reasons[this.bubbles.reason[i]]), 0.42);
    this.#paintTable(paper, this.slices, this.sliceBegins, this.longest, i => this.#sliceColor(i), 1);
    if (this.shown.path) this.#paintPath(paper);
    paper.restore();
    this.#paintNames(paper);
    this.frame = performance.now() - began;
  }

  #sliceColor(i) {
    const kernel = this.slices.kernel[i];
    return this.matched !== null && !this.matched[kernel] ? this.dim : kernelColor(this.timeline.ranks[kernel]);
  }

  // Entries narrower than a pixel share it: after drawing one, go on at the first that is wider or begins later.
  #paintTable(paper, table, places, longest, color, alpha) {
    const [from, to] = this.view, perPixel = (to - from) / (this.width - NAMES);
    const { start, dur } = table, depth = table.depth;
    paper.globalAlpha = alpha;
    let used = null;
    for (let lane = 0; lane < this.lanes.length; lane++) {
      const last = places[lane + 1], reach = longest === null ? 0 : longest[lane];
      let i = longest === null
        ? Math.max(lowerBound(start, from, places[lane], last) - 1, places[lane])
        : lowerBound(start, from - reach, places[lane], last);
      const top = this.y(lane);
      while (i < last && start[i] < to) {
        const end = start[i] + dur[i];
        if (end < from) { i++; continue; }
        const x = this.x(start[i]), width = dur[i] / perPixel;
        const style = color(i);
        if (style !== used) { paper.fillStyle = style; used = style; }
        const inner = depth !== undefined && depth[i] > 0;
        paper.fillRect(x, top + (inner ? this.row / 2 : 0), Math.max(width, 1) - (width > 4 ? 0.6 : 0), inner ? this.row / 2 - GAP : this.row - GAP);
        const nextPixel = start[i] + perPixel;
        i++;
        if (width < 1) while (i < last && start[i] < nextPixel && dur[i] < perPixel) i++;
      }
    }
    paper.globalAlpha = 1;
  }

  #paintPath(paper) {
    const { lane, start, end, part } = this.timeline.path, ink = themed("--ink");
    paper.strokeStyle = ink; paper.lineWidth = 1.4;
    const [from, to] = this.view;
    let first = lowerBound(end, from, 0, end.length), x = -10, before = null;
    for (let i = first; i < start.length && start[i] < to; i++) {
      if (part[i] !== 0 || lane[i] < 0) continue; // a wait, or a lane that is not drawn
      const left = this.x(start[i]), right = this.x(end[i]);
      if (right - x < 0.5) continue;
      x = right;
      const y = this.y(lane[i]);
      if (before !== null) {
        paper.globalAlpha = 0.55;
        paper.beginPath(); paper.moveTo(before[0], before[1]); paper.lineTo(left, y + this.row / 2); paper.stroke();
        paper.globalAlpha = 1;
      }
      paper.strokeRect(left, y - 0.5, Math.max(right - left, 1), this.row - GAP + 1);
      before = [right, y + this.row / 2];
    }
  }

  #paintAxis(paper) {
    const [from, to] = this.view, rough = (to - from) / Math.max((this.width - NAMES) / 110, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
    paper.fillStyle = themed("--soft"); paper.strokeStyle = themed("--line"); paper.lineWidth = 1;
    paper.font = "11px system-ui, sans-serif"; paper.textBaseline = "middle";
    for (let mark = Math.ceil(from / step) * step; mark < to; mark += step) {
      const x = this.x(mark);
      paper.beginPath(); paper.moveTo(x, AXIS - 5); paper.lineTo(x, this.height); paper.stroke();
      if (x < this.width - 60) paper.fillText(time(mark), x + 3, 10);
    }
  }

  #paintNames(paper) {
    paper.fillStyle = themed("--ground"); paper.fillRect(0, AXIS - 2, NAMES - 2, this.height);
    paper.fillStyle = themed("--soft"); paper.font = "10.5px system-ui, sans-serif"; paper.textBaseline = "middle";
    this.lanes.forEach((lane, i) => {
      paper.fillText(clipped(lane.name, 15), 4, this.y(i) + this.row / 2 - 1);
    });
  }

  // What lies under a point of the canvas: a slice, else a bubble, else nothing.
  at(x, y) {
    const lane = Math.floor((y - AXIS) / this.row);
    if (lane < 0 || lane >= this.lanes.length || x < NAMES) return null;
    const moment = this.moment(x), slack = (this.view[1] - this.view[0]) / (this.width - NAMES);
    const { start, dur } = this.slices;
    let i = lowerBound(start, moment + slack, this.sliceBegins[lane], this.sliceBegins[lane + 1]) - 1;
    for (; i >= this.sliceBegins[lane] && start[i] >= moment - this.longest[lane] - slack; i--) {
      if (start[i] + dur[i] >= moment - slack) return { kind: "slice", i, lane };
    }
    i = lowerBound(this.bubbles.start, moment, this.bubbleBegins[lane], this.bubbleBegins[lane + 1]) - 1;
    if (i >= this.bubbleBegins[lane] && this.bubbles.start[i] + this.bubbles.dur[i] >= moment) return { kind: "bubble", i, lane };
    return null;
  }

  describe({ kind, i, lane }) {
    const name = this.lanes[lane].name, kernels = this.timeline.kernels;
    if (kind === "slice") {
      const s = this.slices, lines = [`on ${name}, from ${micros(s.start[i])} µs for ${micros(s.dur[i])} µs`];
      if (s.task) lines.push(`task ${s.task[i]}`);
      if (s.before && s.before[i] >= 0) lines.push(`dispatch → start ${micros(s.before[i])} µs`);
      if (s.after && s.after[i] >= 0) lines.push(`end → finish ${micros(s.after[i])} µs`);
      if (s.drawn && s.drawn[i] > 1) lines.push(`${s.drawn[i]} short slices drawn as one`);
      return [kernels[s.kernel[i]], ...lines];
    }
    const b = this.bubbles, reason = this.timeline.reasons[b.reason[i]];
    const lines = [`${name} idle for ${micros(b.dur[i])} µs`];
    if (b.kernel[i] >= 0) lines.push(`next: ${kernels[b.kernel[i]]}`);
    if (b.blocker[i] >= 0) lines.push(`waited for: ${kernels[b.blocker[i]]}`);
    return [reason, ...lines];
  }

  #listen() {
    const canvas = this.canvas;
    let drag = null;
    canvas.addEventListener("pointerdown", event => { drag = { x: event.clientX, view: [...this.view] }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { drag = null; });
    canvas.addEventListener("pointermove", event => {
      if (drag !== null) {
        const by = (drag.x - event.clientX) / (this.width - NAMES) * (drag.view[1] - drag.view[0]);
        this.setView(drag.view[0] + by, drag.view[1] + by);
        return;
      }
      const box = canvas.getBoundingClientRect();
      this.#hover(this.at(event.clientX - box.left, event.clientY - box.top), event);
    });
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("dblclick", event => {
      const box = canvas.getBoundingClientRect(), found = this.at(event.clientX - box.left, event.clientY - box.top);
      if (found === null) return;
      const table = found.kind === "slice" ? this.slices : this.bubbles;
      const length = Math.max(table.dur[found.i], FEWEST_NS);
      this.setView(table.start[found.i] - length / 2, table.start[found.i] + 1.5 * length);
    });
    canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.shiftKey && document.activeElement !== canvas) return; // let the page scroll
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      if (event.shiftKey) this.pan((event.deltaY || event.deltaX) / 1000);
      else this.zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.max((event.clientX - box.left - NAMES) / (this.width - NAMES), 0));
    }, { passive: false });
    const keys = { w: () => this.zoom(0.7), s: () => this.zoom(1.4), a: () => this.pan(-0.25), d: () => this.pan(0.25) };
    const same = { ArrowUp: "w", ArrowDown: "s", ArrowLeft: "a", ArrowRight: "d", "+": "w", "-": "s" };
    canvas.addEventListener("keydown", event => {
      const act = event.key === "Escape" ? () => this.setView(...this.full) : keys[same[event.key] ?? event.key];
      if (act === undefined || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      act();
    });
  }

  #hover(found, event) {
    if (found === null) { this.tip.hidden = true; return; }
    const [title, ...lines] = this.describe(found);
    this.tip.replaceChildren(element("b", {}, title), ...lines.map(line => element("div", {}, line)));
    this.tip.hidden = false;
    const { width, height } = this.tip.getBoundingClientRect();
    this.tip.style.left = `${Math.min(event.clientX + 14, innerWidth - width - 8)}px`;
    this.tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
  }
}
