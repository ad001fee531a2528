// The task graph: a box per kernel, which opens into its tasks; edges by kind; what waits for nothing, and what races.

import { clipped, duration, element, svg, whole } from "../format.js";
import { seriesColor, themed } from "../colors.js";
import { legend, si } from "../chart/frame.js";
import { hideTip, showTip } from "../chart/tip.js";
import { partsOf } from "../parts.js";

const BOX = 176,
  HIGH = 46,
  GAP = 78,
  BETWEEN = 20,
  EDGE = 16;
const TASK = 46,
  TASK_HIGH = 18,
  PER_ROW = 6,
  HEAD = 48;
const READABLE = 0.8, // of a drawing's size: below, it is as wide as the panel and scrolls
  LARGEST = 1.15;
const MOST_TASKS = 240,
  MOST_LINES = 3000;
const UNITS = /** @type {Record<string, [string, number]>} */ ({
  AIC: ["cube (AIC)", 0],
  AIV: ["vector (AIV)", 2],
  MIX: ["both (MIX)", 6],
  none: ["no work", 13],
});
const DASHES = /** @type {Record<string, string>} */ ({ creator: "2 4", raw: "", waw: "7 4", explicit: "1 0" });
const HUES = /** @type {Record<string, number>} */ ({ creator: 7, raw: 4, waw: 1, explicit: 3 });

/** The marks of a drawing that a selector names. @param {Element} box @param {string} selector @returns {SVGElement[]} */
const within = (box, selector) => [.../** @type {NodeListOf<SVGElement>} */ (box.querySelectorAll(selector))];

/** @typedef {{x: number, y: number, w: number, h: number}} Place */
/** Where boxes stand, whether ranks go downwards, how large it all is. @typedef {{places: Map<string, Place>, down: boolean, size: [number, number]}} Layout */

/** What the run says of kernels: their core time, their time on the critical path, and which follow one another on it. @typedef {{core: Map<string, number>, path: Map<string, number>, steps: Set<string>}} Times */

/** @param {import("../types").Run | undefined} run @returns {Times} */
function timesOf(run) {
  /** @type {Times} */
  const found = { core: new Map(), path: new Map(), steps: new Set() };
  if (!run) return found;
  const { slices, kernels, device_kernels: known, path, chain } = run.timeline,
    sums = new Float64Array(kernels.length);
  for (let i = 0; i < slices.kernel.length; i++) sums[slices.kernel[i]] += slices.dur[i];
  for (let kernel = 0; kernel < known; kernel++) found.core.set(kernels[kernel], sums[kernel]);
  let before = "";
  for (let i = 0; chain && i < path.start.length; i++) {
    if (path.part[i] !== 0) continue; // a wait
    const kernel = kernels[path.kernel[i]];
    found.path.set(kernel, (found.path.get(kernel) ?? 0) + path.end[i] - path.start[i]);
    if (before !== "" && before !== kernel) found.steps.add(`${before}>${kernel}`);
    before = kernel;
  }
  return found;
}

class TaskGraph {
  /** @param {any} program @param {any} store */
  constructor(program, store) {
    this.program = program;
    this.store = store;
    this.opened = new Set();
    this.times = timesOf(store.run());
    this.all = false; // also edges that a longer way implies
    /** @type {Map<string, any>} */
    this.nodes = new Map(program.nodes.map((/** @type {any} */ node) => [node.kernel, node]));
    /** @type {Map<number, string>} */
    this.kernelOf = new Map(
      program.nodes.flatMap((/** @type {any} */ node) =>
        node.tasks.map((/** @type {number} */ task) => [task, node.kernel]),
      ),
    );
    this.world = svg("g.world");
    this.sheet = svg(
      "svg.graph",
      {
        tabindex: "0",
        role: "group",
        "aria-label":
          "Task graph: drag to move, Ctrl and wheel to zoom; Tab goes from kernel to kernel, Enter opens one",
      },
      this.world,
    );
    this.at = { x: 0, y: 0, scale: 1 };
    this.moved = false;
    /** @type {Layout} */
    this.drawn = { places: new Map(), down: false, size: [1, 1] };
    const act = (/** @type {string} */ words, /** @type {string} */ label, /** @type {() => void} */ what) =>
      element("button", { "aria-label": label, title: label, onclick: what }, words);
    const implied = element("input", { type: "checkbox", "aria-label": "Also edges that follow from others" });
    implied.addEventListener("change", () => {
      this.all = implied.checked;
      this.draw();
    });
    this.note = element("p.soft.graph-note", { "aria-live": "polite" });
    this.box = element(
      "section.graph-panel",
      element(
        "div.tools",
        act("+", "Zoom in", () => this.zoom(1.3)),
        act("−", "Zoom out", () => this.zoom(1 / 1.3)),
        act("fit", "All of it", () => this.fit()),
        act("close all", "Close all kernels", () => {
          this.opened.clear();
          this.draw();
        }),
        element("label", implied, " also edges that follow from others"),
      ),
      this.sheet,
      this.key(),
      this.note,
      this.remarks(),
      ...partsOf(program.parts ?? []),
    );
    this.listen();
    this.draw();
    let wide = 0;
    this.observer = new ResizeObserver(() => {
      if (this.moved || this.sheet.clientWidth === wide) return; // its height follows from what is drawn
      wide = this.sheet.clientWidth;
      this.draw();
    });
    this.observer.observe(this.sheet);
  }

  key() {
    const { program } = this,
      units = [...new Set(program.nodes.map((/** @type {any} */ node) => node.unit))];
    const kinds = Object.keys(program.kinds).filter((kind) =>
      program.edges.some((/** @type {any} */ edge) => edge.origins[kind]),
    );
    const note = [
      "a line is as wide as its edges are many",
      program.false ? "dashed red: tasks wait though they touch different elements" : "",
      this.times.steps.size ? "orange: the critical path" : "",
      program.races.length ? "⚡ a race: nothing orders the two" : "",
    ]
      .filter(Boolean)
      .join(" · ");
    return legend(
      [
        ...units.map((unit) => ({ name: UNITS[unit][0], color: seriesColor(UNITS[unit][1]) })),
        ...kinds.map((kind) => ({ name: `${kind}: ${program.kinds[kind]}`, color: seriesColor(HUES[kind]) })),
      ],
      note,
    );
  }

  remarks() {
    const { program } = this,
      back = program.edges.filter((/** @type {any} */ edge) => edge.back),
      lines = [];
    const sum = (/** @type {any[]} */ edges) => edges.reduce((total, edge) => total + edge.count, 0);
    if (back.length)
      lines.push(
        `Drawn as arcs beside the boxes: ${whole(sum(back))} edges to a kernel itself or to an earlier one (the next layer, the next step).`,
      );
    if (program.false) lines.push(`${whole(program.false)} edges order tasks that touch different elements.`);
    for (const race of program.races) lines.push(`Race: ${race.text}. ${race.remedy}`);
    if (program.tasks.left_out)
      lines.push(`${whole(program.tasks.left_out)} edges between tasks are not in this page.`);
    return lines.length ? element("ul.notes", ...lines.map((line) => element("li", line))) : null;
  }

  /** Where every box stands: ranks of kernels from left to right or from top to bottom, whichever can be drawn larger. */
  layout() {
    const ranks = /** @type {any[][]} */ ([]);
    for (const node of this.program.nodes) (ranks[node.column] ??= []).push(node);
    const width = this.sheet.clientWidth || 1000,
      height = this.sheet.clientHeight || 500;
    const ways = [this.laid(ranks, false), this.laid(ranks, true)].map((way) => ({
      ...way,
      fits: Math.min(width / way.size[0], height / way.size[1], LARGEST),
      wide: Math.min(width / way.size[0], LARGEST),
    }));
    const [across, down] = ways;
    if (Math.max(across.fits, down.fits) >= READABLE) this.drawn = down.fits > across.fits ? down : across;
    else this.drawn = down.wide > across.wide ? down : across;
  }

  /** @param {any[][]} ranks @param {boolean} down @returns {Layout} */
  laid(ranks, down) {
    /** @type {Map<string, Place>} */
    const places = new Map(),
      gap = down ? GAP * 0.6 : GAP;
    const size = (/** @type {any} */ node) => {
      if (!this.opened.has(node.kernel)) return [BOX, HIGH];
      const shown = Math.min(node.tasks.length, MOST_TASKS),
        rows = Math.ceil(shown / PER_ROW);
      return [
        Math.max(BOX, Math.min(shown, PER_ROW) * TASK + 14),
        HEAD + rows * (TASK_HIGH + 4) + (node.tasks.length > MOST_TASKS ? 18 : 6),
      ];
    };
    const side = down ? 0 : 1; // of a size: across the ranks
    const across = ranks.map((rank) => rank.reduce((sum, node) => sum + size(node)[side] + BETWEEN, -BETWEEN)),
      most = Math.max(...across, 1);
    let along = EDGE;
    ranks.forEach((rank, n) => {
      let at = EDGE + (most - across[n]) / 2,
        deepest = 0;
      for (const node of rank) {
        const [w, h] = size(node);
        places.set(node.kernel, down ? { x: at, y: along, w, h } : { x: along, y: at, w, h });
        at += (down ? w : h) + BETWEEN;
        deepest = Math.max(deepest, down ? h : w);
      }
      along += deepest + gap;
    });
    const length = along - gap + EDGE,
      breadth = most + 2 * EDGE + 40;
    return { places, down, size: down ? [breadth, length] : [length, breadth] };
  }

  /** The box of a kernel. @param {string} kernel */
  boxOf(kernel) {
    return /** @type {Place} */ (this.drawn.places.get(kernel));
  }

  /** The box of a task inside its open kernel, else the kernel's. @param {number} task */
  placeOf(task) {
    const kernel = /** @type {string} */ (this.kernelOf.get(task)),
      box = this.boxOf(kernel);
    const number = this.opened.has(kernel) ? this.nodes.get(kernel).tasks.indexOf(task) : -1;
    if (number < 0 || number >= MOST_TASKS) return box;
    return {
      x: box.x + 7 + (number % PER_ROW) * TASK,
      y: box.y + HEAD + Math.floor(number / PER_ROW) * (TASK_HIGH + 4),
      w: TASK - 4,
      h: TASK_HIGH,
    };
  }

  draw() {
    if (this.program.nodes.length === 0) {
      this.world.replaceChildren(svg("text", { x: 20, y: 30 }, "No tasks."));
      return;
    }
    this.layout();
    this.world.replaceChildren(
      ...this.lines(),
      ...this.races(),
      ...this.program.nodes.map((/** @type {any} */ node) => this.node(node)),
    );
    this.mark(this.store.state);
    if (!this.moved) this.fit();
  }

  lines() {
    const { program } = this,
      found = [];
    for (const edge of program.edges) {
      const decides = this.times.steps.has(`${edge.src}>${edge.dst}`);
      if (edge.implied && !this.all && !edge.false && !decides) continue;
      if (this.opened.has(edge.src) || this.opened.has(edge.dst)) continue; // their tasks' own are drawn
      const why = Object.entries(edge.origins).map(
        ([kind, count]) => `${whole(count)} × ${kind}: ${program.kinds[kind]}`,
      );
      const kind = Object.keys(edge.origins).sort((a, b) => edge.origins[b] - edge.origins[a])[0];
      found.push(
        this.line(
          this.boxOf(edge.src),
          this.boxOf(edge.dst),
          kind,
          1 + Math.log10(edge.count),
          edge.false > 0,
          edge.back,
          [
            `${edge.dst} waits for ${edge.src}`,
            `${whole(edge.count)} edges`,
            ...why,
            edge.false ? `${whole(edge.false)} of them join tasks that touch different elements` : null,
            decides ? "the critical path goes here" : null,
          ],
          "",
          decides,
        ),
      );
    }
    if (this.opened.size) found.push(...this.taskLines());
    return found;
  }

  taskLines() {
    const { src, dst, kind, false: wrong } = this.program.tasks,
      kinds = Object.keys(this.program.kinds),
      found = [];
    for (let i = 0; i < src.length && found.length < MOST_LINES; i++) {
      const from = this.kernelOf.get(src[i]),
        to = this.kernelOf.get(dst[i]);
      if (!this.opened.has(from) && !this.opened.has(to)) continue;
      const named = kinds.filter((_, n) => kind[i] & (1 << n));
      found.push(
        this.line(
          this.placeOf(src[i]),
          this.placeOf(dst[i]),
          named[0],
          1,
          wrong[i] === 1,
          false,
          [
            `task ${dst[i]} of ${to} waits for task ${src[i]} of ${from}`,
            ...named.map((one) => `${one}: ${this.program.kinds[one]}`),
            wrong[i] ? "they touch different elements" : null,
          ],
          `${src[i]} ${dst[i]}`,
        ),
      );
    }
    return found;
  }

  /** @param {any} a @param {any} b @param {string} kind @param {number} wide @param {boolean} wrong @param {boolean} back @param {any[]} lines @param {string} tasks @param {boolean} decides */
  line(a, b, kind, wide, wrong, back, lines, tasks = "", decides = false) {
    const d = this.way(a, b, back);
    const mark = svg("path", {
      d,
      class: `edge${wrong ? " false" : ""}${decides ? " decides" : ""}`,
      stroke: wrong ? themed("--bad") : seriesColor(HUES[kind]),
      "stroke-width": wide.toFixed(1),
      "stroke-dasharray": wrong ? "6 4" : DASHES[kind],
      "data-tasks": tasks,
      "data-kind": kind,
    });
    const wider = svg("path.reach", { d }); // thin lines are hard to point at
    for (const one of [mark, wider]) {
      one.addEventListener("pointerenter", (/** @type {PointerEvent} */ event) => {
        mark.classList.add("over");
        showTip(lines, { left: event.clientX + 10, top: event.clientY, bottom: event.clientY + 12 });
      });
      one.addEventListener("pointerleave", () => {
        mark.classList.remove("over");
        hideTip();
      });
    }
    return svg("g", wider, mark);
  }

  /** From one box to another: along the ranks, or around them where it leads back. @param {any} a @param {any} b @param {boolean} back */
  way(a, b, back) {
    if (this.drawn.down) {
      const x0 = a.x + a.w / 2,
        y0 = a.y + a.h,
        x1 = b.x + b.w / 2,
        y1 = b.y,
        right = Math.max(a.x + a.w, b.x + b.w) + 30;
      if (back || y1 < y0)
        return `M${a.x + a.w} ${a.y + a.h / 2}C${right} ${a.y + a.h / 2} ${right} ${b.y + b.h / 2} ${b.x + b.w} ${b.y + b.h / 2 + (a === b ? 12 : 0)}`;
      const bend = Math.max(GAP / 4, (y1 - y0) / 2);
      return `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}`;
    }
    const x0 = a.x + a.w,
      y0 = a.y + a.h / 2,
      x1 = b.x,
      y1 = b.y + b.h / 2,
      low = Math.max(a.y + a.h, b.y + b.h) + 26;
    if (back || x1 < x0)
      return `M${a.x + a.w / 2 + (a === b ? 16 : 0)} ${a.y + a.h}C${a.x + a.w / 2 + (a === b ? 16 : 0)} ${low} ${b.x + b.w / 2} ${low} ${b.x + b.w / 2} ${b.y + b.h}`;
    const bend = Math.max(GAP / 2, (x1 - x0) / 2);
    return `M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}`;
  }

  races() {
    return this.program.races.flatMap((/** @type {any} */ race) => {
      const [first, later] = race.tasks,
        a = first >= 0 ? this.placeOf(first) : this.boxOf(race.dst),
        b = this.placeOf(later);
      if (!a || !b) return [];
      const x0 = a.x + a.w / 2,
        y0 = a.y,
        x1 = b.x + b.w / 2,
        y1 = b.y,
        top = Math.min(y0, y1) - 34;
      const mark = svg(
        "g.race",
        svg("path.edge", {
          d: `M${x0} ${y0}C${x0} ${top} ${x1} ${top} ${x1} ${y1}`,
          stroke: themed("--bad"),
          "stroke-width": 2.5,
        }),
        svg("text.bolt", { x: (x0 + x1) / 2, y: top + 14, "text-anchor": "middle" }, "⚡"),
      );
      mark.addEventListener("pointerenter", (/** @type {PointerEvent} */ event) =>
        showTip([`Race of ${race.src} and ${race.dst}`, race.text, race.remedy, `${whole(race.count)} pairs`], {
          left: event.clientX + 10,
          top: event.clientY,
          bottom: event.clientY + 12,
        }),
      );
      mark.addEventListener("pointerleave", hideTip);
      return [mark];
    });
  }

  /** @param {any} node */
  node(node) {
    const { x, y, w, h } = this.boxOf(node.kernel),
      open = this.opened.has(node.kernel),
      color = seriesColor(UNITS[node.unit][1]);
    const times = `${whole(node.tasks.length)} task${node.tasks.length === 1 ? "" : "s"}${node.blocks === node.tasks.length ? "" : `, ${whole(node.blocks)} blocks`}`;
    const core = this.times.core.get(node.kernel),
      path = this.times.path.get(node.kernel);
    const below =
      core === undefined ? times : path ? `${duration(path)} of the path` : `${duration(core)} core, ${times}`;
    const lines = [
      node.kernel,
      `${times} on ${UNITS[node.unit][0]}`,
      core === undefined ? null : `${duration(core)} of core time, ${duration(path ?? 0)} of the critical path`,
      `${si(node.flops)} FLOP, ${si(node.gm_read)}B read, ${si(node.gm_written)}B written`,
      `submitted at ${node.file}:${node.line}`,
      open ? null : "double click or Enter opens its tasks",
    ];
    const group = svg(
      "g",
      {
        class: `node${open ? " open" : ""}${path ? " decides" : ""}`,
        tabindex: "0",
        role: "button",
        "aria-expanded": String(open),
        "aria-label": lines.filter(Boolean).join("; "),
        "data-kernel": node.kernel,
      },
      svg("rect.box", {
        x,
        y,
        width: w,
        height: h,
        rx: 7,
        stroke: color,
        fill: color,
        "fill-opacity": open ? 0.12 : 0.9,
      }),
      svg(
        "text",
        { x: x + 10, y: y + 19, class: open ? "name" : "name on" },
        clipped(node.kernel, Math.floor((w - 40) / 7)),
      ),
      svg(
        "text",
        { x: x + 10, y: y + 36, class: open ? "soft" : "on small" },
        clipped(below, Math.floor((w - 16) / 6.4)),
      ),
      svg("text", { x: x + w - 18, y: y + 19, class: open ? "sign" : "sign on" }, open ? "−" : "+"),
    );
    if (open) {
      node.tasks.slice(0, MOST_TASKS).forEach((/** @type {number} */ task) => {
        const place = this.placeOf(task);
        const one = svg(
          "g.task",
          {
            "data-task": task,
            tabindex: "-1",
            role: "button",
            "aria-label": `task ${task} of ${node.kernel}`,
          },
          svg("rect", {
            x: place.x,
            y: place.y,
            width: place.w,
            height: place.h,
            rx: 4,
            fill: color,
            "fill-opacity": 0.85,
          }),
          svg("text.on.small", { x: place.x + place.w / 2, y: place.y + 13, "text-anchor": "middle" }, String(task)),
        );
        one.addEventListener("click", (/** @type {MouseEvent} */ event) => {
          event.stopPropagation();
          this.store.set({ selection: { kind: "task", task } });
        });
        group.append(one);
      });
      if (node.tasks.length > MOST_TASKS)
        group.append(
          svg("text.soft", { x: x + 10, y: y + h - 8 }, `and ${whole(node.tasks.length - MOST_TASKS)} more`),
        );
    }
    const toggle = () => {
      if (open) this.opened.delete(node.kernel);
      else this.opened.add(node.kernel);
      hideTip();
      this.draw();
      within(this.world, `[data-kernel="${CSS.escape(node.kernel)}"]`)[0]?.focus();
    };
    group.addEventListener("dblclick", (/** @type {MouseEvent} */ event) => {
      event.stopPropagation();
      toggle();
    });
    within(group, ".sign")[0]?.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      event.stopPropagation();
      toggle();
    });
    group.addEventListener("click", () => this.store.set({ selection: { kind: "kernel", kernel: node.kernel } }));
    group.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") {
        event.stopPropagation();
        toggle();
      }
    });
    group.addEventListener("pointerenter", () => showTip(lines, group.getBoundingClientRect()));
    group.addEventListener("pointerleave", hideTip);
    return group;
  }

  /** @param {any} state */
  mark(state) {
    const { selection } = state,
      kernel = selection?.kind === "kernel" || selection?.kind === "slice" ? selection.kernel : null;
    const task = selection?.kind === "task" || selection?.kind === "slice" ? selection.task : null;
    const line = selection?.kind === "line" ? selection : null;
    for (const group of within(this.world, ".node")) {
      const node = this.nodes.get(group.dataset.kernel ?? "");
      group.classList.toggle(
        "chosen",
        node.kernel === kernel ||
          (line !== null && node.file === line.file && node.line === line.line) ||
          (task !== null && this.kernelOf.get(task) === node.kernel),
      );
    }
    for (const group of within(this.world, ".task"))
      group.classList.toggle("chosen", task !== null && Number(group.dataset.task) === task);
    for (const path of within(this.world, "path.edge"))
      path.classList.toggle("own", task !== null && (path.dataset.tasks ?? "").split(" ").includes(String(task)));
  }

  place() {
    this.world.setAttribute("transform", `translate(${this.at.x} ${this.at.y}) scale(${this.at.scale})`);
  }

  fit() {
    const width = this.sheet.clientWidth;
    if (!width) return;
    this.sheet.style.height = "";
    let height = this.sheet.clientHeight;
    const [wide, high] = this.drawn.size,
      all = Math.min(width / wide, height / high, LARGEST),
      scale = all >= READABLE ? all : Math.min(width / wide, LARGEST);
    if (high * scale > height) this.sheet.style.height = `${(height = Math.ceil(high * scale))}px`;
    this.at = { scale, x: (width - wide * scale) / 2, y: (height - high * scale) / 2 };
    this.moved = false;
    this.place();
  }

  /** @param {number} by @param {number} x @param {number} y what stays where it is */
  zoom(by, x = this.sheet.clientWidth / 2, y = this.sheet.clientHeight / 2) {
    const scale = Math.min(Math.max(this.at.scale * by, 0.05), 6),
      real = scale / this.at.scale;
    this.at = { scale, x: x - (x - this.at.x) * real, y: y - (y - this.at.y) * real };
    this.moved = true;
    this.place();
  }

  listen() {
    let from = /** @type {{x: number, y: number, id: number, moving: boolean} | null} */ (null);
    this.sheet.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
      from = { x: event.clientX, y: event.clientY, id: event.pointerId, moving: false };
    });
    this.sheet.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
      if (from === null) return;
      const dx = event.clientX - from.x,
        dy = event.clientY - from.y;
      if (!from.moving && Math.hypot(dx, dy) < 4) return;
      if (!from.moving) {
        this.sheet.setPointerCapture(from.id);
        from.moving = true;
        hideTip();
      }
      this.at.x += dx;
      this.at.y += dy;
      Object.assign(from, { x: event.clientX, y: event.clientY });
      this.moved = true;
      this.place();
    });
    for (const end of ["pointerup", "pointercancel"])
      this.sheet.addEventListener(end, () => {
        from = null;
      });
    this.sheet.addEventListener(
      "wheel",
      (/** @type {WheelEvent} */ event) => {
        if (!event.ctrlKey && !event.metaKey) return; // the panel scrolls
        event.preventDefault();
        const area = this.sheet.getBoundingClientRect();
        this.zoom(event.deltaY > 0 ? 1 / 1.15 : 1.15, event.clientX - area.left, event.clientY - area.top);
      },
      { passive: false },
    );
    this.sheet.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const step = 60,
        acts = /** @type {Record<string, () => void>} */ ({
          w: () => this.zoom(1.3),
          s: () => this.zoom(1 / 1.3),
          a: () => this.pan(step, 0),
          d: () => this.pan(-step, 0),
          ArrowLeft: () => this.pan(step, 0),
          ArrowRight: () => this.pan(-step, 0),
          ArrowUp: () => this.pan(0, step),
          ArrowDown: () => this.pan(0, -step),
          Escape: () => this.fit(),
        });
      const what = acts[event.key];
      if (!what || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      what();
    });
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    this.at.x += dx;
    this.at.y += dy;
    this.moved = true;
    this.place();
  }
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "graph",
  title: "Graph",
  group: "program",
  has: (/** @type {any} */ run, /** @type {any} */ state) => Boolean(state.shared.graph ?? run?.panels.graph),
  /** @param {HTMLElement} box @param {any} store */
  mount(box, store) {
    const found = store.run()?.panels.graph ?? store.state.shared.graph;
    const made = found.programs.map((/** @type {any} */ program) => ({
      program,
      graph: new TaskGraph(program, store),
    }));
    if (found.text) box.append(element("p.soft", found.text));
    for (const { program, graph } of made)
      box.append(...(made.length > 1 ? [element("h2", program.name)] : []), graph.box);
    return {
      update: (/** @type {any} */ state) => {
        for (const { graph } of made) graph.mark(state);
      },
      repaint: () => {
        for (const { graph } of made) graph.draw();
      },
      destroy: () => {
        for (const { graph } of made) graph.observer.disconnect();
      },
    };
  },
};
