// One memory of one function: addresses upward, the line of instructions to the right, a rectangle per tile.

import { clipped, element, svg, whole } from "../format.js";
import { inkOn, seriesColor } from "../colors.js";
import { SHOW } from "../table.js";
import { hideTip, showTip } from "../chart/tip.js";

const LEFT = 74,
  RIGHT = 10,
  TOP = 16,
  HEIGHT = 260,
  LOOP = 15,
  AXIS = 18;
const LETTER = 6.6; // pixels of a letter, about

/** A drawn tile, or the ring before all tiles: its group, which holds the tile, and its description. @typedef {[SVGElement & {tile?: any}, string[]]} Shape */

/** @param {any} tile */
function shapeOf(tile) {
  return `[${tile.shape.join(", ")}] ${tile.dtype}`;
}

/** Tiles by the largest that has their name, for their colours. @param {any[]} spaces @returns {Map<string, number>} */
export function rankTiles(spaces) {
  /** @type {Map<string, number>} */
  const largest = new Map();
  for (const tile of spaces.flatMap((space) => space.tiles))
    largest.set(tile.name, Math.max(tile.bytes, largest.get(tile.name) ?? 0));
  return new Map([...largest].sort((a, b) => b[1] - a[1]).map(([name], rank) => [name, rank]));
}

export class MemoryMap {
  /** @param {any} space @param {any} body @param {Map<string, number>} ranks @param {(tile: any) => void} pick */
  constructor(space, body, ranks, pick) {
    this.space = space;
    this.body = body;
    this.ranks = ranks;
    this.pick = pick;
    this.close = false; // zoomed to what is used
    this.current = 0; // the shape that Tab comes to
    this.width = 0;
    /** @type {{file: string, line: number} | null} */
    this.line = null;
    /** @type {Shape[]} */
    this.shapes = [];
    this.box = element("div.map");
    this.observer = new ResizeObserver(() => {
      if (this.box.clientWidth !== this.width) this.draw();
    });
    this.observer.observe(this.box);
  }

  destroy() {
    this.observer.disconnect();
  }

  get top() {
    return this.close ? Math.max(this.space.used, 1) : Math.max(this.space.limit, this.space.used);
  }
  /** @param {number} half places, by halves */
  x(half) {
    return LEFT + ((this.width - LEFT - RIGHT) * half) / (2 * Math.max(this.body.places.length, 1));
  }
  /** @param {number} address */
  y(address) {
    return TOP + HEIGHT * (1 - address / this.top);
  }

  draw() {
    this.width = this.box.clientWidth;
    if (!this.width) return;
    const { space, body } = this;
    const levels = 1 + Math.max(-1, ...body.loops.map((/** @type {any} */ loop) => loop.depth));
    const height = TOP + HEIGHT + AXIS + levels * LOOP + 4;
    const picture = svg("svg", {
      width: this.width,
      height,
      viewBox: `0 0 ${this.width} ${height}`,
      role: "group",
      "aria-label": `${space.space}: ${space.tiles.length} tiles; arrow keys go from one to the next`,
    });
    picture.append(...this.ground(), ...body.loops.flatMap((/** @type {any} */ loop) => this.loop(loop)));
    this.shapes = [];
    if (space.reserved) this.shapes.push(this.ring());
    for (const tile of space.tiles) this.shapes.push(this.tile(tile));
    picture.append(...this.shapes.map(([group]) => group), ...this.limits());
    this.shapes.forEach(([group, lines], n) => this.listen(group, lines, n));
    this.box.replaceChildren(picture);
    this.markLine(this.line);
  }

  ground() {
    const { space } = this,
      parts = [];
    const area = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ name) =>
      svg("rect", {
        x: LEFT,
        y: this.y(to),
        width: this.width - LEFT - RIGHT,
        height: Math.max(this.y(from) - this.y(to), 0),
        class: name,
      });
    parts.push(area(0, Math.min(space.limit, this.top), "free"));
    if (this.top > space.limit) parts.push(area(space.limit, this.top, "beyond"));
    const places = this.body.places.length;
    const every = Math.max(1, Math.ceil(places / Math.max((this.width - LEFT) / 70, 1)));
    for (let place = 0; place < places; place += every)
      if (this.x(2 * place) < this.width - 30)
        parts.push(svg("text.soft", { x: this.x(2 * place), y: TOP + HEIGHT + 13 }, String(place)));
    return parts;
  }

  limits() {
    const { space } = this,
      parts = [];
    const line = (
      /** @type {number} */ address,
      /** @type {string} */ name,
      /** @type {string} */ words,
      /** @type {boolean} */ below,
    ) => [
      svg("line", { x1: LEFT - 6, x2: this.width - RIGHT, y1: this.y(address), y2: this.y(address), class: name }),
      svg("text", { x: LEFT - 8, y: this.y(address) + (below ? 12 : 4), "text-anchor": "end", class: name }, words),
    ];
    const near = Math.abs(this.y(space.used) - this.y(space.limit)) < 14;
    parts.push(...line(0, "soft", "0", false));
    if (this.top >= space.limit)
      parts.push(...line(space.limit, "limit", whole(space.limit), near && space.used > space.limit));
    if (!(near && space.used <= space.limit) || this.close)
      parts.push(...line(space.used, space.used > space.limit ? "bad" : "soft", whole(space.used), false));
    return parts;
  }

  /** @param {any} loop */
  loop(loop) {
    const from = this.x(2 * loop.start),
      to = this.x(2 * loop.end + 2),
      y = TOP + HEIGHT + AXIS + loop.depth * LOOP;
    const bar = svg(
      "rect.loop",
      { x: from, y, width: Math.max(to - from - 1, 1), height: LOOP - 3, rx: 2 },
      svg("title", loop.text),
    );
    const room = Math.floor((to - from) / LETTER) - 1;
    return room > 4 ? [bar, svg("text.soft.small", { x: from + 4, y: y + LOOP - 6 }, clipped(loop.text, room))] : [bar];
  }

  /** @returns {Shape} */
  ring() {
    const { space } = this,
      last = 2 * this.body.places.length - 1;
    const group = this.shape(0, last, 0, space.reserved, "ring", "url(#hatch)", "ring between the cores");
    group.prepend(
      svg(
        "pattern",
        { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect.hatch.ground", { width: 6, height: 6 }),
        svg("rect.hatch", { width: 2.5, height: 6 }),
      ),
    );
    return [
      group,
      ["ring between cube and vector cores", `${whole(space.reserved)} B at the head of ${space.space}`, space.ring],
    ];
  }

  /** @param {any} tile @returns {Shape} */
  tile(tile) {
    const over = tile.address + tile.bytes > this.space.limit;
    const group = this.shape(
      tile.first,
      tile.last,
      tile.address,
      tile.bytes,
      over ? "tile-box over" : "tile-box",
      seriesColor(this.ranks.get(tile.name) ?? 0),
      tile.name,
    );
    group.dataset.storage = tile.storage;
    group.tile = tile;
    const room = tile.room > tile.bytes ? ` in a buffer of ${whole(tile.room)} B` : "";
    const lines = [
      `${tile.name} ${shapeOf(tile)}`,
      `${whole(tile.bytes)} B at ${whole(tile.address)}${room}`,
      `made at ${tile.place}`,
      tile.source,
      `needed from ${this.at(tile.first)} to ${this.at(tile.last)}`,
    ];
    const turns = SHOW.turns(tile.turns);
    if (turns) lines.push(`turn ${turns} in flight, ${tile.copies} copies`);
    if (over) lines.push(`ends beyond the ${whole(this.space.limit)} B there are`);
    return [group, lines];
  }

  /** @param {number} half */
  at(half) {
    const place = half >> 1,
      one = this.body.places[place];
    return one ? `${place} ${one[0]} (${one[1]})` : `${place}, the edge of a loop`;
  }

  /** @param {number} first @param {number} last @param {number} address @param {number} bytes @param {string} name @param {string} fill @param {string} words @returns {Shape[0]} */
  shape(first, last, address, bytes, name, fill, words) {
    const x = this.x(first),
      width = Math.max(this.x(last + 1) - x - 1, 2);
    const y = this.y(address + bytes),
      height = Math.max(this.y(address) - y - 1, 2);
    const group = /** @type {SVGElement} */ (
      svg("g", { class: name, tabindex: -1, role: "img" }, svg("rect", { x, y, width, height, fill, rx: 2 }))
    );
    const room = Math.floor((width - 6) / LETTER);
    if (room > 2 && height > 13)
      group.append(
        svg(
          "text",
          { x: x + 4, y: y + Math.min(height / 2, 40) + 4, style: fill.startsWith("#") ? `fill: ${inkOn(fill)}` : "" },
          clipped(words, room),
        ),
      );
    return group;
  }

  /** @param {Shape[0]} group @param {string[]} lines @param {number} number */
  listen(group, lines, number) {
    group.setAttribute("aria-label", lines.filter(Boolean).join("; "));
    group.setAttribute("tabindex", number === this.current ? "0" : "-1");
    const show = () => {
      this.mark(group.dataset.storage ?? null);
      showTip(lines, group.getBoundingClientRect());
    };
    const hide = () => {
      this.mark(null);
      hideTip();
    };
    group.addEventListener("pointerenter", show);
    group.addEventListener("pointerleave", hide);
    group.addEventListener("focus", show);
    group.addEventListener("blur", hide);
    if (group.tile) group.addEventListener("click", () => this.pick(group.tile));
    group.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && group.tile) this.pick(group.tile);
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (step === undefined) return;
      event.preventDefault();
      this.go(number + step);
    });
  }

  /** @param {number} number */
  go(number) {
    if (number < 0 || number >= this.shapes.length) return;
    this.shapes[this.current][0].setAttribute("tabindex", "-1");
    this.current = number;
    this.shapes[number][0].setAttribute("tabindex", "0");
    this.shapes[number][0].focus();
  }

  /** The tiles that lie in one buffer. @param {string | null} storage */
  mark(storage) {
    for (const [group] of this.shapes)
      group.classList.toggle("same", storage !== null && group.dataset.storage === storage);
  }

  /** The tiles that a line makes. @param {{file: string, line: number} | null} line */
  markLine(line) {
    this.line = line;
    for (const [group] of this.shapes)
      group.classList.toggle(
        "of-line",
        line !== null && group.tile?.file === line.file && group.tile?.line === line.line,
      );
  }
}
