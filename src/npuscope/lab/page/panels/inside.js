// Inside a block: its pipes as a timeline of their own. Who waits for whom, in which slot; what decides the end.

import { clipped, duration, element, percent, times, whole } from "../format.js";
import { seriesColor, themed, inkOn } from "../colors.js";
import { roundSteps } from "../chart/frame.js";
import { hideTip, showTip } from "../chart/tip.js";
import { partsOf } from "../parts.js";

const TENTHS = 10,
  NAMES = 84,
  ROW = 34,
  AXIS = 22,
  NONE = 255;
const PIPE_COLORS = [4, 2, 0, 1, 13, 4, 3, 1, 13]; // places in the palette: loads, into the cube, cube, stores, scalar; loads, vector, stores, scalar

/** As much of an instruction's name as fits: the op and its tile, else the tile. @param {string} name @param {number} letters */
const label = (name, letters) => (name.length <= letters ? name : clipped(name.split(" ").at(-1) ?? name, letters));

class Inside {
  /** @param {HTMLElement} box @param {any} store @param {any} found */
  constructor(box, store, found) {
    this.store = store;
    this.found = found;
    this.current = -1;
    this.chosen = -1;
    this.asked = -1; // the kind that the server makes
    /** @type {[number, number]} */
    this.window = [0, 1];
    /** The pipes that the block uses, and of each its first instruction and the one after its last. @type {number[]} */
    this.pipes = [];
    /** @type {Map<number, [number, number]>} */
    this.ranges = new Map();
    this.picker = element("select", { "aria-label": "Kind of block", id: "body" });
    this.choices();
    this.picker.addEventListener("change", () => this.show(Number(this.picker.value)));
    this.canvas = element("canvas", {
      tabindex: "0",
      role: "img",
      "aria-label":
        "Pipes of the block over time; W and S zoom, A and D move, arrow keys go from instruction to instruction",
    });
    this.place = element("div.lanes", this.canvas);
    this.head = element("p.sums");
    this.decides = element("div.decides");
    this.facts = element("div.instruction", { "aria-live": "polite" });
    this.reasons = element("div.reasons", { "aria-live": "polite" });
    const act = (/** @type {string} */ words, /** @type {string} */ label, /** @type {() => void} */ what) =>
      element("button", { "aria-label": label, title: label, onclick: what }, words);
    this.note = element("p.soft", { id: "not-here" });
    box.append(
      element(
        "div.inside",
        element(
          "div.tools",
          element("label", "block ", this.picker),
          act("+", "Zoom in (W)", () => this.zoom(0.5)),
          act("−", "Zoom out (S)", () => this.zoom(2)),
          act("fit", "The whole block (Esc)", () => this.whole()),
          act("why so long", "How its time came about, constant by constant", () => this.explain()),
        ),
        this.note,
        this.head,
        this.decides,
        this.place,
        found.bodies.length + found.left_out.length === 0
          ? null
          : element(
              "p.soft",
              "Outlined instructions decide when the block ends: shorten one of them and the block ends sooner. Drag to move, Ctrl and wheel to zoom, click an instruction for who it waited for.",
            ),
        this.facts,
        this.reasons,
      ),
    );
    this.listen();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.place);
    this.follow(store.state);
  }

  /** The list of kinds: those that are here, and those that are not. */
  choices() {
    const { bodies, left_out } = this.found;
    const option = (/** @type {any} */ body) =>
      element(
        "option",
        { value: body.body },
        `${body.kernel}: ${whole(body.blocks)} block${body.blocks === 1 ? "" : "s"} of ${duration(body.mean_ns)} (kind ${body.body})`,
      );
    this.picker.replaceChildren(
      ...bodies.map(option),
      ...(left_out.length
        ? [
            element(
              "optgroup",
              { label: this.store.state.live ? "made when asked for" : "not in this page" },
              ...left_out.map(option),
            ),
          ]
        : []),
    );
    if (this.current >= 0) this.picker.value = String(bodies[this.current].body);
  }

  /** A kind that the payload leaves out: the server is asked for it, a page says why. @param {any} body */
  async fetch(body) {
    const { of_one, of_all } = this.found.most,
      ask = this.store.state.live?.ask,
      run = this.store.run();
    const why =
      body.instructions > of_one
        ? `it has ${whole(body.instructions)} instructions, and a page takes at most ${whole(of_one)} of one kind`
        : `a page takes ${whole(of_all)} instructions, those of the kinds with most time`;
    this.picker.value = String(body.body);
    if (!ask) {
      this.note.textContent = `This kind of block of ${body.kernel} is not in this page: ${why}. \`npuscope lab\` with the program shows it.`;
      return;
    }
    if (this.asked === body.body) return;
    this.asked = body.body;
    this.note.textContent = `looking inside ${body.kernel} …`;
    try {
      const [made] = (await ask.panel(run.id, "inside", { body: body.body })).bodies;
      Object.assign(run.panels.inside, {
        bodies: [...run.panels.inside.bodies, made],
        left_out: run.panels.inside.left_out.filter((/** @type {any} */ one) => one.body !== body.body),
      });
      this.choices();
      this.note.textContent = "";
      this.show(body.body);
    } catch (error) {
      this.note.textContent = /** @type {Error} */ (error).message;
    }
    this.asked = -1;
  }

  /** How the time of the kernel's block came about: the server times it anew with other constants. */
  async explain() {
    const ask = this.store.state.live?.ask,
      { body } = this;
    if (!body) return;
    if (!ask) {
      this.reasons.textContent = `\`npuscope simulate PROGRAM.py --explain ${body.kernel}\` says how its time came about; so does \`npuscope lab PROGRAM.py\`.`;
      return;
    }
    this.reasons.textContent = `timing ${body.kernel} with other constants …`;
    try {
      const { parts } = await ask.panel(this.store.run().id, "why", { body: body.body });
      if (body === this.body) this.reasons.replaceChildren(...partsOf(parts));
    } catch (error) {
      this.reasons.textContent = /** @type {Error} */ (error).message;
    }
  }

  get body() {
    return this.found.bodies[this.current];
  }

  /** The block of the selected slice. @param {any} state */
  follow(state) {
    const wanted = state.selection?.kind === "slice" ? state.selection.body : -1;
    const place = this.found.bodies.findIndex((/** @type {any} */ body) => body.body === wanted);
    this.note.textContent = wanted >= 0 && place < 0 ? "The selected slice has no inside here." : "";
    if (wanted >= 0) this.show(wanted);
    if (this.current < 0 && this.found.bodies.length) this.show(this.found.bodies[0].body);
    const line = state.selection?.kind === "line" ? state.selection : null;
    this.marked = line === null ? null : line;
    this.draw();
  }

  /** @param {number} number */
  show(number) {
    const place = this.found.bodies.findIndex((/** @type {any} */ body) => body.body === number),
      missing = this.found.left_out.find((/** @type {any} */ body) => body.body === number);
    if (missing) {
      this.fetch(missing);
      return;
    }
    if (place >= 0) this.note.textContent = "";
    if (place < 0 || place === this.current) return;
    this.current = place;
    this.chosen = -1;
    this.picker.value = String(number);
    const { body } = this,
      waited = body.slow > 1.005 ? `, with memory ${times(body.slow)} as slow as alone on the chip` : "";
    this.pipes = /** @type {number[]} */ ([...new Set(body.pipe)]).sort((a, b) => a - b);
    this.ranges = new Map(this.pipes.map((pipe) => [pipe, [body.pipe.indexOf(pipe), body.pipe.lastIndexOf(pipe) + 1]]));
    this.head.textContent = `One of ${whole(body.blocks)} such block${body.blocks === 1 ? "" : "s"} of ${body.kernel}: ${whole(body.start.length)} instructions in ${duration(body.duration_ns)}${waited}.`;
    const parts = Object.entries(body.waits).sort((a, b) => b[1] - a[1]);
    this.decides.replaceChildren(
      element("span.soft", "What decides its end: "),
      ...parts.map(([name, ns]) =>
        element(
          "span.part",
          element("span.dot", { style: `background:${this.color(this.found.places.indexOf(name))}` }),
          `${name} ${percent(ns / body.duration_ns)}`,
        ),
      ),
    );
    this.facts.replaceChildren();
    this.reasons.replaceChildren();
    this.whole();
  }

  /** @param {number} pipe @returns {[number, number]} */
  rangeOf(pipe) {
    return this.ranges.get(pipe) ?? [0, 0];
  }

  /** @param {number} pipe */
  color(pipe) {
    return pipe < PIPE_COLORS.length ? seriesColor(PIPE_COLORS[pipe]) : themed("--soft");
  }

  whole() {
    this.window = [0, Math.max(this.body?.duration_ns * TENTHS, 1)];
    this.draw();
  }

  /** @param {number} by @param {number} at share of the width that stays */
  zoom(by, at = 0.5) {
    const [from, to] = this.window,
      full = this.body.duration_ns * TENTHS,
      span = Math.min(Math.max((to - from) * by, 20), full);
    const start = Math.min(Math.max(from + (to - from) * at - span * at, 0), full - span);
    this.window = [start, start + span];
    this.draw();
  }

  /** @param {number} share of the width */
  move(share) {
    const [from, to] = this.window,
      full = this.body.duration_ns * TENTHS,
      span = to - from;
    const start = Math.min(Math.max(from + span * share, 0), full - span);
    this.window = [start, start + span];
    this.draw();
  }

  draw() {
    const width = this.place.clientWidth,
      { body } = this;
    if (!width || !body) return;
    const ratio = devicePixelRatio || 1,
      height = AXIS + this.pipes.length * ROW + 4;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = `${height}px`;
    const paper = this.canvas.getContext("2d"),
      [from, to] = this.window,
      share = (width - NAMES) / (to - from);
    paper.setTransform(ratio, 0, 0, ratio, 0, 0);
    paper.clearRect(0, 0, width, height);
    paper.font = "11.5px system-ui, sans-serif";
    paper.textBaseline = "middle";
    const ink = themed("--ink"),
      soft = themed("--soft"),
      line = themed("--line");
    for (const tick of roundSteps(from / TENTHS, to / TENTHS, (width - NAMES) / 110)) {
      const x = NAMES + (tick * TENTHS - from) * share;
      paper.fillStyle = line;
      paper.fillRect(x, AXIS, 1, height);
      paper.fillStyle = soft;
      paper.fillText(duration(tick), x + 3, AXIS / 2);
    }
    this.pipes.forEach((pipe, n) => {
      const top = AXIS + n * ROW,
        [first, last] = this.rangeOf(pipe);
      paper.fillStyle = ink;
      paper.fillText(this.found.places[pipe], 6, top + ROW / 2);
      const color = this.color(pipe),
        words = inkOn(color);
      let drawn = -1;
      for (let i = first; i < last; i++) {
        const x = NAMES + (body.start[i] - from) * share,
          wide = body.dur[i] * share;
        if (x + wide < NAMES || x > width) continue;
        if (wide < 0.4 && x < drawn + 0.4 && i !== this.chosen) continue; // several in one place: one of them stands there
        drawn = x + wide;
        const left = Math.max(x, NAMES),
          room = Math.min(x + wide, width) - left;
        paper.globalAlpha = body.deciding[i] ? 1 : 0.55;
        paper.fillStyle = color;
        paper.fillRect(left, top + 4, Math.max(room - (wide > 3 ? 1 : 0), 0.5), ROW - 8);
        paper.globalAlpha = 1;
        if (body.deciding[i] && room > 2) {
          paper.strokeStyle = ink;
          paper.lineWidth = 1.2;
          paper.strokeRect(left + 0.5, top + 4.5, room - 2, ROW - 9);
        }
        if (this.marked && this.isOf(i, this.marked)) {
          paper.fillStyle = themed("--bad");
          paper.fillRect(left, top + ROW - 4, Math.max(room, 1), 3);
        }
        if (room > 30) {
          paper.fillStyle = words;
          paper.fillText(label(body.names[body.name[i]], Math.floor((room - 6) / 6.4)), left + 4, top + ROW / 2);
        }
      }
    });
    if (this.chosen >= 0) this.drawChosen(paper, from, share, width);
  }

  /** The chosen instruction, and the chain of those that it waited for. @param {any} paper @param {number} from @param {number} share @param {number} width */
  drawChosen(paper, from, share, width) {
    const { body } = this,
      accent = themed("--accent"),
      ink = themed("--ink");
    const y = (/** @type {number} */ i) => AXIS + this.pipes.indexOf(body.pipe[i]) * ROW + ROW / 2;
    const x = (/** @type {number} */ i, /** @type {boolean} */ end) =>
      NAMES + (body.start[i] + (end ? body.dur[i] : 0) - from) * share;
    paper.save();
    paper.beginPath();
    paper.rect(NAMES, 0, width - NAMES, this.canvas.height);
    paper.clip();
    let now = this.chosen;
    for (let steps = 0; steps < 6 && body.because[now] >= 0; steps++) {
      const before = body.because[now];
      paper.globalAlpha = 1 - steps * 0.14;
      paper.strokeStyle = accent;
      paper.lineWidth = 2;
      paper.beginPath();
      paper.moveTo(x(before, true), y(before));
      paper.lineTo(x(now, false), y(now));
      paper.stroke();
      paper.fillStyle = accent;
      paper.beginPath();
      paper.arc(x(now, false), y(now), 3, 0, 7);
      paper.fill();
      now = before;
    }
    paper.globalAlpha = 1;
    paper.strokeStyle = ink;
    paper.lineWidth = 2.5;
    paper.strokeRect(
      x(this.chosen, false),
      y(this.chosen) - ROW / 2 + 3,
      Math.max(body.dur[this.chosen] * share, 3),
      ROW - 6,
    );
    paper.restore();
  }

  /** @param {number} i @param {any} line */
  isOf(i, line) {
    const site = this.store.run().timeline.sites[this.body.site[i]];
    return site !== undefined && site.file === line.file && site.line === line.line;
  }

  /** The instruction at a place of the canvas, -1 for none. @param {PointerEvent | MouseEvent} event */
  at(event) {
    const area = this.canvas.getBoundingClientRect(),
      x = event.clientX - area.left,
      y = event.clientY - area.top - AXIS,
      { body } = this;
    const pipe = this.pipes[Math.floor(y / ROW)];
    if (pipe === undefined || y < 0 || x < NAMES) return -1;
    const [from, to] = this.window,
      moment = from + ((x - NAMES) / (area.width - NAMES)) * (to - from),
      slack = (2 * (to - from)) / (area.width - NAMES);
    const [first, last] = this.rangeOf(pipe);
    let found = -1;
    for (let i = first; i < last && body.start[i] <= moment + slack; i++)
      if (body.start[i] + body.dur[i] >= moment - slack) found = i;
    return found;
  }

  /** Why an instruction did not start sooner. @param {number} i */
  why(i) {
    const { body } = this,
      reason = body.reason[i],
      before = body.because[i];
    if (reason === NONE) return "its pipe was at work until then";
    const name = this.found.reasons[reason];
    if (name === "issue")
      return before < 0
        ? "it could not be issued sooner"
        : `it could not be issued sooner; the scalar unit last waited for ${this.name(before)}`;
    if (name === "slot")
      return before < 0 ? "its slot was not free" : `its slot was taken until ${this.name(before)} was done with it`;
    return before < 0 ? `it needs a result of ${name}` : `it needs the result of ${this.name(before)} on ${name}`;
  }

  /** @param {number} i */
  name(i) {
    return this.body.names[this.body.name[i]];
  }

  /** @param {number} i */
  choose(i) {
    this.chosen = i;
    if (i < 0) {
      this.facts.replaceChildren();
      this.draw();
      return;
    }
    const { body } = this,
      site = this.store.run().timeline.sites[body.site[i]],
      before = body.because[i];
    const row = (/** @type {string} */ name, /** @type {any} */ value) =>
      value === null ? [] : [element("dt", name), element("dd", value)];
    const toLine =
      site === undefined
        ? null
        : element(
            "button.plain.source",
            {
              onclick: () =>
                this.store.set({
                  panel: "source",
                  selection: { kind: "line", file: site.file, line: site.line, bodies: [body.body] },
                }),
            },
            `${site.file}:${site.line}`,
          );
    const back =
      before < 0
        ? null
        : element(
            "button.plain",
            { onclick: () => this.reveal(before) },
            `${this.name(before)} on ${this.found.places[body.pipe[before]]}`,
          );
    this.facts.replaceChildren(
      element("h3", this.name(i)),
      element(
        "dl.facts",
        ...row("pipe", this.found.places[body.pipe[i]]),
        ...row("from", duration(body.start[i] / TENTHS)),
        ...row("takes", duration(body.dur[i] / TENTHS)),
        ...row("not sooner, because", this.why(i)),
        ...row("after", back),
        ...row("result in", body.slot[i] < 0 ? null : (body.slots[body.slot[i]] ?? `slot ${body.slot[i]}`)),
        ...row("decides the end", body.deciding[i] ? "yes" : "no: somebody else is waited for"),
        ...row("source line", toLine),
      ),
    );
    this.draw();
  }

  /** @param {number} i */
  reveal(i) {
    const { body } = this,
      [from, to] = this.window,
      span = to - from;
    if (body.start[i] < from || body.start[i] + body.dur[i] > to)
      this.window = [Math.max(0, body.start[i] - span / 2), Math.max(0, body.start[i] - span / 2) + span];
    this.choose(i);
  }

  listen() {
    let drag = /** @type {{x: number, moved: boolean} | null} */ (null);
    this.canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
      drag = { x: event.clientX, moved: false };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
      if (drag !== null) {
        const by = drag.x - event.clientX;
        if (Math.abs(by) > 3 || drag.moved) {
          drag.moved = true;
          this.move(by / (this.canvas.clientWidth - NAMES));
          drag.x = event.clientX;
        }
        return;
      }
      const i = this.at(event),
        { body } = this;
      if (i < 0) return hideTip();
      showTip(
        [
          this.name(i),
          `${duration(body.dur[i] / TENTHS)} from ${duration(body.start[i] / TENTHS)}`,
          `Not sooner: ${this.why(i)}.`,
          body.slot[i] < 0 ? null : `Result in ${body.slots[body.slot[i]] ?? body.slot[i]}`,
        ],
        { left: event.clientX + 12, top: event.clientY, bottom: event.clientY + 14 },
      );
    });
    this.canvas.addEventListener("pointerup", (/** @type {PointerEvent} */ event) => {
      if (drag !== null && !drag.moved) this.choose(this.at(event));
      drag = null;
    });
    this.canvas.addEventListener("pointerleave", hideTip);
    this.canvas.addEventListener(
      "wheel",
      (/** @type {WheelEvent} */ event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        const area = this.canvas.getBoundingClientRect();
        this.zoom(
          event.deltaY > 0 ? 1.25 : 0.8,
          Math.min(Math.max((event.clientX - area.left - NAMES) / (area.width - NAMES), 0), 1),
        );
      },
      { passive: false },
    );
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const acts = /** @type {Record<string, () => void>} */ ({
        w: () => this.zoom(0.5),
        s: () => this.zoom(2),
        a: () => this.move(-0.25),
        d: () => this.move(0.25),
        ArrowRight: () => this.reveal(Math.min(this.chosen + 1, this.body.start.length - 1)),
        ArrowLeft: () => this.reveal(Math.max(this.chosen - 1, 0)),
        ArrowUp: () => {
          if (this.chosen >= 0 && this.body.because[this.chosen] >= 0) this.reveal(this.body.because[this.chosen]);
        },
        Escape: () => (this.chosen >= 0 ? this.choose(-1) : this.whole()),
      });
      const what = acts[event.key];
      if (!what || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      what();
    });
  }
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "inside",
  title: "Inside a block",
  group: "program",
  has: (/** @type {any} */ run) =>
    (run?.panels.inside?.bodies.length ?? 0) + (run?.panels.inside?.left_out.length ?? 0) > 0,
  /** @param {HTMLElement} box @param {any} store */
  mount(box, store) {
    const made = new Inside(box, store, store.run().panels.inside);
    let before = store.state.selection;
    return {
      update: (/** @type {any} */ state) => {
        if (state.selection !== before) {
          before = state.selection;
          made.follow(state);
        }
      },
      repaint: () => made.draw(),
      destroy: () => made.observer.disconnect(),
    };
  },
};
