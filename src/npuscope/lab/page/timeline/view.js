// One run's timeline on a canvas: as high as its box, scrolled by the box, drawn anew at every move.

import { clipped, element, moment } from "../format.js";
import { inkOn, kernelColors, rgb, softened, themed } from "../colors.js";
import { lowerBound } from "./model.js";
import { layoutOf, pairHeight } from "./layout.js";
import { paintRow, pixel } from "./raster.js";
import { paintArrows, paintCause, paintPath, paintPins } from "./overlays.js";
import { paintCounter } from "./counters.js";

const LOW = 330; // pixels of a box in which counters would leave no room for lanes
const AXIS = 22,
  BAND = 16,
  LETTER = 6.1,
  NAME = 11, // high at least, to be read
  FEWEST_LETTERS = 3,
  IDLE = 3; // pixels
export const SHORTEST_NS = 20; // of a view

export class View {
  /** @param {import("./model.js").Model} model @param {import("../types").Store} store */
  constructor(model, store) {
    this.model = model;
    this.timeline = model.timeline;
    this.store = store;
    /** @type {{flags: boolean[], slices: Uint32Array} | null} */
    this.found = null;
    /** @type {[number, number] | null} */
    this.ranging = null; // while it is drawn with the mouse
    this.canvas = element("canvas", { role: "img", "aria-label": `Timeline of ${model.run.name}` });
    this.spacer = element("div.spacer");
    this.box = element("div.lanes", { tabindex: "-1" }, this.canvas, this.spacer);
    this.image = document.createElement("canvas");
    this.width = 0;
    this.height = 0;
    this.frame = 0;
    this.frames = 0;
    this.queued = false;
    this.pair = [store.run(), store.beside()].flatMap((run) => (run ? [run.timeline] : []));
    this.head = AXIS + BAND * Math.max(...this.pair.map((timeline) => timeline.bands.length)); // equal heads: the same room
    this.low = false;
    this.names = 128;
    this.labels = 0;
    this.arrows = 0;
    this.tall = 0;
    this.laidFor = 0;
    /** @type {import("./layout.js").Track[]} */
    this.tracks = [];
    /** @type {number[]} */
    this.tops = [];
    /** @type {Int32Array} */
    this.ofRow = new Int32Array(0);
    /** @type {Map<string, number>} */
    this.widths = new Map();
    this.lay();
    this.box.addEventListener("scroll", () => this.draw());
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.box);
  }

  destroy() {
    this.observer.disconnect();
    this.box.remove();
  }

  /** The tracks anew, after folding. */
  lay() {
    const { folded, shown, lanes } = this.store.state;
    const each = pairHeight(this.pair, folded, lanes, this.laidFor);
    const made = layoutOf(this.timeline, folded, shown.counters, this.low, lanes, this.laidFor, each);
    this.tracks = made.tracks;
    this.ofRow = made.ofRow;
    this.tall = made.height;
    this.tops = this.tracks.map((track) => track.top);
    this.resize();
  }

  resize() {
    const width = this.box.clientWidth,
      height = this.box.clientHeight,
      scale = devicePixelRatio || 1;
    if (width === 0 || height === 0) return;
    this.width = width;
    this.height = height;
    const room = height - this.head - 8;
    if (this.low !== height < LOW || this.laidFor !== room) {
      this.low = height < LOW;
      this.laidFor = room;
      this.lay();
      return;
    }
    this.names = width < 600 ? 72 : 128;
    this.canvas.style.height = `${height}px`;
    if (this.canvas.width !== Math.round(width * scale)) this.canvas.width = Math.round(width * scale);
    if (this.canvas.height !== Math.round(height * scale)) this.canvas.height = Math.round(height * scale);
    this.spacer.style.height = `${Math.max(this.head + this.tall + 8 - height, 0)}px`;
    this.draw();
  }

  get from() {
    return this.store.state.window[0];
  }
  get to() {
    return this.store.state.window[1];
  }
  /** @param {number} moment */
  x(moment) {
    return this.names + ((moment - this.from) / (this.to - this.from)) * (this.width - this.names);
  }
  /** @param {number} x */
  moment(x) {
    return this.from + ((x - this.names) / (this.width - this.names)) * (this.to - this.from);
  }
  /** Top of a track on the canvas. @param {number} place */
  y(place) {
    return this.head + this.tracks[place].top - this.box.scrollTop;
  }
  /** Top of a row on the canvas, or of the group it is folded into. @param {number} row */
  rowY(row) {
    if (this.ofRow[row] >= 0) return this.y(this.ofRow[row]);
    const unit = this.model.laneOf(row).unit,
      place = this.tracks.findIndex((track) => track.id === unit);
    return place < 0 ? -100 : this.y(place);
  }
  /** @param {number} row */
  rowHeight(row) {
    return this.ofRow[row] >= 0 ? this.tracks[this.ofRow[row]].height - 2 : 18;
  }

  /** Brings a row into sight. @param {number} row */
  reveal(row) {
    if (this.ofRow[row] < 0) return;
    const track = this.tracks[this.ofRow[row]],
      room = this.height - this.head;
    if (track.top < this.box.scrollTop || track.top + track.height > this.box.scrollTop + room)
      this.box.scrollTop = track.top - room / 2;
  }

  draw() {
    if (this.queued || !this.width) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.paint();
    });
  }

  palette() {
    const { shown, selection } = this.store.state,
      ground = rgb(themed("--ground"));
    return {
      kernels: this.model.once("colours", () =>
        Uint32Array.from(kernelColors(this.timeline).all, (color) => pixel(rgb(color))),
      ),
      reasons: Uint32Array.from(this.timeline.reasons, (one) => pixel(softened(one.id, ground))),
      dim: pixel(rgb(themed("--dim"))),
      flags: this.found?.flags ?? null,
      marked: this.model.marks(selection),
      bubbles: shown.bubbles,
    };
  }

  paint() {
    const began = performance.now(),
      paper = this.canvas.getContext("2d"),
      scale = devicePixelRatio || 1;
    paper.setTransform(scale, 0, 0, scale, 0, 0);
    paper.clearRect(0, 0, this.width, this.height);
    const seen = this.seen(),
      palette = this.palette();
    this.paintMarks(paper);
    this.paintRows(paper, seen, palette, scale);
    paper.save();
    paper.beginPath();
    paper.rect(this.names, this.head, this.width - this.names, this.height - this.head);
    paper.clip();
    for (const track of seen) if (track.kind === "counter") paintCounter(this, paper, track);
    this.paintLabels(paper, seen, palette);
    const { shown, selection } = this.store.state;
    if (shown.path && this.timeline.chain) paintPath(this, paper);
    if (selection?.kind === "cause") paintCause(this, paper, selection.cause);
    if (selection?.kind === "slice" && selection.run === this.model.run.id) {
      if (shown.arrows) paintArrows(this, paper, selection.slice);
      this.outline(paper, selection.slice);
    }
    paper.restore();
    this.paintRange(paper);
    this.paintHead(paper);
    this.paintNames(paper, seen);
    paintPins(this, paper);
    this.frame = performance.now() - began;
    if (this.frames++ === 0) performance.mark("npuscope first drawn");
  }

  /** The tracks that can be seen. */
  seen() {
    const from = this.box.scrollTop,
      to = from + this.height - this.head;
    const first = Math.max(lowerBound(this.tops, from, 0, this.tops.length) - 1, 0);
    const found = [];
    for (let place = first; place < this.tracks.length && this.tracks[place].top < to; place++)
      found.push(this.tracks[place]);
    return found;
  }

  /** @param {CanvasRenderingContext2D} paper @param {any[]} seen @param {any} palette @param {number} scale */
  paintRows(paper, seen, palette, scale) {
    const rows = seen.filter((track) => track.row >= 0),
      wide = Math.max(Math.round((this.width - this.names) * scale), 1);
    if (rows.length === 0) return;
    const count = rows.length;
    if (this.image.width !== wide || this.image.height < 2 * count) {
      this.image.width = wide;
      this.image.height = Math.max(2 * count, this.image.height);
    }
    const ink = /** @type {CanvasRenderingContext2D} */ (this.image.getContext("2d")),
      image = ink.createImageData(wide, 2 * count),
      out = new Uint32Array(image.data.buffer);
    rows.forEach((track, n) =>
      paintRow(this.model, track.row, out, n * wide, (count + n) * wide, wide, this.from, this.to, palette),
    );
    ink.putImageData(image, 0, 0);
    paper.imageSmoothingEnabled = false;
    const room = this.width - this.names;
    rows.forEach((track, n) => {
      const top = this.head + track.top - this.box.scrollTop;
      const idle = Math.min(IDLE, Math.max(Math.floor(track.height / 3), 1));
      if (palette.bubbles)
        paper.drawImage(this.image, 0, count + n, wide, 1, this.names, top + track.height - 1 - idle, room, idle);
      paper.drawImage(this.image, 0, n, wide, 1, this.names, top + 1, room, track.height - 2);
    });
  }

  /** Names on slices that are wide enough. @param {CanvasRenderingContext2D} paper @param {any[]} seen @param {any} palette */
  paintLabels(paper, seen, palette) {
    const { begins, start, dur, kernel } = this.model.slices,
      perPixel = (this.to - this.from) / (this.width - this.names),
      least = (FEWEST_LETTERS * LETTER + 6) * perPixel,
      colors = kernelColors(this.timeline).all,
      names = this.model.names;
    paper.font = "11px system-ui, sans-serif";
    paper.textBaseline = "middle";
    this.labels = 0;
    for (const track of seen) {
      if (track.row < 0 || track.height < NAME) continue;
      const longest = this.model.longest[track.row];
      if (longest < least) continue;
      const last = begins[track.row + 1],
        middle = this.head + track.top - this.box.scrollTop + track.height / 2;
      let i = lowerBound(start, this.from - longest, begins[track.row], last);
      if (lowerBound(start, this.to, i, last) - i > 20000) continue; // so many are narrow
      for (; i < last && start[i] < this.to; i++) {
        if (dur[i] < least) continue;
        const left = Math.max(this.x(start[i]), this.names),
          right = Math.min(this.x(start[i] + dur[i]), this.width),
          name = names.short[kernel[i]];
        const wide = this.wide(paper, name),
          room = wide <= right - left - 5 ? name.length : Math.floor((name.length * (right - left - 5)) / wide - 0.6);
        if (room < Math.min(FEWEST_LETTERS, name.length)) continue;
        const dimmed =
          (palette.flags !== null && !palette.flags[kernel[i]]) || (palette.marked !== null && !palette.marked(i));
        paper.fillStyle = dimmed ? themed("--soft") : inkOn(colors[kernel[i]]);
        paper.fillText(names.fit(kernel[i], room), left + 3, middle);
        this.labels++;
      }
    }
  }

  /** How wide a name is, measured once. @param {CanvasRenderingContext2D} paper @param {string} name */
  wide(paper, name) {
    let found = this.widths.get(name);
    if (found === undefined) {
      found = paper.measureText(name.slice(0, 200)).width * Math.max(name.length / 200, 1);
      this.widths.set(name, found);
    }
    return found;
  }

  /** @param {CanvasRenderingContext2D} paper @param {number} slice */
  outline(paper, slice) {
    const { start, dur } = this.model.slices,
      row = this.model.rowOf(slice),
      left = this.x(start[slice]);
    paper.strokeStyle = themed("--ink");
    paper.lineWidth = 2;
    paper.strokeRect(
      left - 1,
      this.rowY(row),
      Math.max((dur[slice] / (this.to - this.from)) * (this.width - this.names), 1) + 2,
      this.rowHeight(row) + 2,
    );
  }

  /** The lines of the axis, below everything. @param {CanvasRenderingContext2D} paper */
  paintMarks(paper) {
    paper.strokeStyle = themed("--line");
    paper.lineWidth = 1;
    for (const mark of this.marks()) {
      const x = Math.round(this.x(mark)) + 0.5;
      paper.beginPath();
      paper.moveTo(x, AXIS - 5);
      paper.lineTo(x, this.height);
      paper.stroke();
    }
  }

  marks() {
    const rough = (this.to - this.from) / Math.max((this.width - this.names) / 110, 1),
      power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? 10 * power,
      found = [];
    for (let mark = Math.ceil(this.from / step) * step; mark < this.to; mark += step) found.push(mark);
    return found;
  }

  /** The axis and the bands, over what is scrolled. @param {CanvasRenderingContext2D} paper */
  paintHead(paper) {
    paper.fillStyle = themed("--ground");
    paper.fillRect(0, 0, this.width, this.head);
    paper.font = "11px system-ui, sans-serif";
    paper.textBaseline = "middle";
    paper.fillStyle = themed("--soft");
    paper.strokeStyle = themed("--line");
    const marks = this.marks(),
      step = marks.length > 1 ? marks[1] - marks[0] : this.to - this.from;
    for (const mark of marks) {
      const x = this.x(mark);
      paper.beginPath();
      paper.moveTo(Math.round(x) + 0.5, AXIS - 6);
      paper.lineTo(Math.round(x) + 0.5, AXIS);
      paper.stroke();
      if (x < this.width - 50) paper.fillText(moment(mark, step), x + 3, 10);
    }
    this.timeline.bands.forEach((band, n) => this.paintBand(paper, band, AXIS + n * BAND));
  }

  /** @param {CanvasRenderingContext2D} paper @param {import("../types").Band} band @param {number} top */
  paintBand(paper, band, top) {
    const shades = [themed("--band"), themed("--band-other")];
    paper.fillStyle = themed("--soft");
    paper.fillText(clipped(band.title, 18), 6, top + BAND / 2);
    paper.save();
    paper.beginPath();
    paper.rect(this.names, top, this.width - this.names, BAND);
    paper.clip();
    let drawn = -Infinity;
    band.spans.forEach(([start, end, name], n) => {
      if (end < this.from || start > this.to) return;
      const left = this.x(start),
        right = this.x(end);
      if (right - drawn < 1) return;
      drawn = right;
      paper.fillStyle = shades[n % 2];
      paper.fillRect(left, top + 1, Math.max(right - left - 1, 1), BAND - 2);
      const room = Math.floor((Math.min(right, this.width) - Math.max(left, this.names) - 6) / LETTER);
      if (room >= FEWEST_LETTERS) {
        paper.fillStyle = themed("--ink");
        paper.fillText(clipped(name, room), Math.max(left, this.names) + 3, top + BAND / 2);
      }
    });
    paper.restore();
  }

  /** @param {CanvasRenderingContext2D} paper */
  paintRange(paper) {
    const { selection } = this.store.state,
      range = this.ranging ?? (selection?.kind === "range" ? [selection.start, selection.end] : null);
    if (range === null) return;
    const left = Math.max(this.x(range[0]), this.names),
      right = Math.min(this.x(range[1]), this.width);
    if (right <= left) return;
    paper.fillStyle = `${themed("--accent")}29`;
    paper.fillRect(left, this.head, right - left, this.height);
    paper.fillStyle = themed("--accent");
    paper.fillRect(left, this.head, 1.5, this.height);
    paper.fillRect(right - 1.5, this.head, 1.5, this.height);
  }

  /** @param {CanvasRenderingContext2D} paper @param {any[]} seen */
  paintNames(paper, seen) {
    paper.save();
    paper.beginPath();
    paper.rect(0, this.head, this.width, this.height - this.head);
    paper.clip();
    paper.fillStyle = themed("--ground");
    paper.fillRect(0, this.head, this.names - 2, this.height);
    paper.textBaseline = "middle";
    let named = -Infinity;
    for (const track of seen) {
      const top = this.head + track.top - this.box.scrollTop,
        middle = top + track.height / 2;
      if (track.kind === "group" || track.kind === "unused") {
        const folded = this.store.state.folded.includes(track.id);
        paper.fillStyle = themed("--panel");
        if (track.kind === "group") paper.fillRect(0, top, this.width, track.height - 1);
        paper.fillStyle = themed(track.kind === "group" ? "--ink" : "--accent");
        paper.font = track.kind === "group" ? "600 12px system-ui, sans-serif" : "11px system-ui, sans-serif";
        paper.fillText(`${track.kind === "group" ? (folded ? "▸ " : "▾ ") : "   "}${track.name}`, 6, middle);
      } else {
        if (track.name === "" || top < named) continue;
        named = top + NAME; // of lower lanes every second or third has its name
        paper.fillStyle = themed("--soft");
        paper.font = "11px system-ui, sans-serif";
        const full = this.wide(paper, track.name),
          room = this.names - 12;
        paper.fillText(
          full <= room ? track.name : clipped(track.name, Math.max(Math.floor((track.name.length * room) / full), 4)),
          6,
          middle,
        );
      }
    }
    paper.restore();
  }

  /**
   * What lies under a point of the canvas.
   * @param {number} x @param {number} y
   * @returns {{kind: "slice" | "bubble" | "lane" | "group" | "unused" | "counter" | "band", i: number, row: number, track: any, moment: number} | null}
   */
  at(x, y) {
    const moment = this.moment(x);
    if (y < this.head) {
      const place = Math.floor((y - AXIS) / BAND),
        band = this.timeline.bands[place];
      const i =
        band && x >= this.names ? band.spans.findLastIndex(([start, end]) => start <= moment && moment <= end) : -1;
      return i < 0 ? null : { kind: "band", i, row: place, track: band, moment };
    }
    const depth = y - this.head + this.box.scrollTop,
      place = lowerBound(this.tops, depth + 0.001, 0, this.tops.length) - 1,
      track = this.tracks[place];
    if (track === undefined || depth >= track.top + track.height) return null;
    if (track.kind !== "lane" && track.kind !== "row")
      return { kind: track.kind, i: track.place, row: -1, track, moment };
    if (x < this.names) return { kind: "lane", i: -1, row: track.row, track, moment };
    const slack = (2 * (this.to - this.from)) / (this.width - this.names);
    const slice = this.model.sliceAt(track.row, moment, slack);
    if (slice >= 0) return { kind: "slice", i: slice, row: track.row, track, moment };
    const bubble = this.model.bubbleAt(track.row, moment);
    return bubble >= 0
      ? { kind: "bubble", i: bubble, row: track.row, track, moment }
      : { kind: "lane", i: -1, row: track.row, track, moment };
  }
}
