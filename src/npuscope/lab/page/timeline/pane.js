// The timeline's pane: tools, legend, minimap, and one view or two on one time axis.

import { element } from "../format.js";
import { kernelColors, reasonColor, strength } from "../colors.js";
import { Model } from "./model.js";
import { View } from "./view.js";
import { Minimap } from "./minimap.js";
import { center, pan, show, zoom } from "./moves.js";
import { listen } from "./pointer.js";
import { Search } from "./search.js";
import { causeAt } from "./overlays.js";

const MOST_KERNELS = 12, // of the legend
  LEGEND_NAME = 22; // letters

/** The model of a run, made once. @param {import("../types").Run} run @returns {Model} */
export function modelOf(run) {
  run.model ??= new Model(run);
  return run.model;
}

export class Pane {
  /** @param {import("../types").Store} store */
  constructor(store) {
    this.store = store;
    /** @type {View[]} */
    this.views = [];
    /** What is done when other runs are shown. @type {(() => void)[]} */
    this.followers = [];
    this.minimap = new Minimap(store);
    this.search = new Search(store, () => this.views);
    /** Where the mouse is over the timeline, as a share of its width. @type {number | null} */
    this.pointer = null;
    this.place = element("div.views");
    this.legend = element("div.legend", { role: "list", "aria-label": "Colours" });
    this.notes = element("span.soft.notes-line");
    this.box = element(
      "section.timeline",
      { "aria-label": "Timeline" },
      this.tools(),
      this.minimap.box,
      this.place,
      this.legend,
    );
    store.on(["run", "beside", "rank", "runs", "shared"], () => this.build());
    store.on(["window", "selection", "pins"], () => this.draw());
    store.on(["shown", "folded", "lanes"], () => {
      for (const view of this.views) view.lay();
      this.drawLegend();
    });
    store.on(["search"], () => this.draw());
    store.on(["selection"], () => this.drawLegend());
    this.build();
  }

  tools() {
    const { store } = this;
    const act = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ what) =>
      element("button", { onclick: what, "aria-label": label, title: label }, text);
    /** @type {[string, keyof import("../types").State["shown"], (timeline: import("../types").Timeline) => boolean][]} */
    const toggles = [
      ["why idle", "bubbles", (timeline) => timeline.bubbles.start.length > 0],
      ["critical path", "path", (timeline) => timeline.chain],
      ["arrows", "arrows", (timeline) => timeline.edges.src.length > 0],
      ["counters", "counters", (timeline) => timeline.counters.some((counter) => counter.most !== 0)],
    ];
    const switches = toggles.map(([name, key, has]) => {
      const box = element("input", { type: "checkbox" }),
        label = element("label", box, ` ${name}`);
      const follow = () => {
        box.checked = store.state.shown[key];
        label.hidden = !this.views.some((view) => has(view.timeline)); // what a capture does not have cannot be switched
      };
      box.addEventListener("change", () => store.set({ shown: { ...store.state.shown, [key]: box.checked } }));
      store.on(["shown"], follow);
      this.followers.push(follow);
      return label;
    });
    const lanes = element("input.lane-filter", {
      type: "search",
      placeholder: "lanes: all",
      "aria-label": "Show only lanes with these words",
      title: "Show only lanes with one of these words in their names",
      autocomplete: "off",
      spellcheck: "false",
    });
    lanes.addEventListener("input", () => store.set({ lanes: lanes.value }));
    const written = () => {
      if (lanes.value !== store.state.lanes) lanes.value = store.state.lanes;
    };
    store.on(["lanes"], written);
    this.followers.push(written);
    return element(
      "div.tools",
      { role: "toolbar", "aria-label": "Timeline tools" },
      act("+", "Zoom in (W)", () => zoom(store, 0.5)),
      act("−", "Zoom out (S)", () => zoom(store, 2)),
      act("fit", "Show everything (0)", () => show(store, ...store.full())),
      this.search.box,
      lanes,
      ...switches,
    );
  }

  build() {
    const tops = this.views.map((view) => view.box.scrollTop);
    for (const view of this.views) view.destroy();
    const { store } = this,
      runs = [store.run(), store.beside()].filter((run) => run !== null && run !== undefined);
    this.views = runs.map((run) => new View(modelOf(/** @type {any} */ (run)), store));
    const letters = store.state.shared.compare ? ["B ", "A "] : ["", ""]; // what is shown, and what it is held against
    const boxes = this.views.map((view, n) =>
      element(
        "div.view",
        this.views.length > 1
          ? element("div.view-name", { title: view.model.run.name }, `${letters[n]}${view.model.run.name}`)
          : null,
        view.box,
      ),
    );
    this.place.replaceChildren(...boxes.reverse());
    this.place.classList.toggle("pair", this.views.length > 1);
    for (const view of this.views) listen(view, this);
    this.views.forEach((view, n) => {
      view.box.scrollTop = tops[n] ?? tops[0] ?? 0;
    });
    this.keepPlace();
    for (const follow of this.followers) follow();
    this.search.again();
    if (this.views.length === 0) return; // a document about no run
    this.minimap.build(modelOf(store.run()));
    this.drawLegend();
    this.draw();
  }

  /** The window and the selected slice stay what they were, as far as the run shown now has them. */
  keepPlace() {
    const { store } = this,
      full = store.full(),
      { window, selection } = store.state,
      was = this.full ?? full;
    this.full = full;
    if ((window[0] === was[0] && window[1] === was[1]) || window[1] - window[0] <= 1) store.set({ window: full });
    else show(store, ...window);
    if (selection?.kind !== "slice" || this.views.some((view) => view.model.run.id === selection.run)) return;
    const slice = this.views[0]?.model.alike(selection) ?? -1;
    store.set({ selection: slice < 0 ? null : this.views[0].model.selection(slice) });
  }

  draw() {
    for (const view of this.views) {
      view.found = this.search.foundIn(view.model);
      view.draw();
    }
    this.minimap.found = this.views[0]?.found ?? null;
    this.minimap.draw();
  }

  drawLegend() {
    const item = (/** @type {string} */ color, /** @type {string} */ text, /** @type {string} */ kind) =>
      element(
        "span",
        { role: "listitem" },
        element("span", { class: `dot ${kind}`, style: `background:${color}` }),
        text,
      );
    const { shown } = this.store.state,
      used = new Map();
    for (const view of this.views) {
      const seen = view.model.once("reasons used", () => new Set(view.timeline.bubbles.reason));
      for (const number of seen) used.set(view.timeline.reasons[number].id, view.timeline.reasons[number].title);
    }
    const chain = this.views.some((view) => view.timeline.chain),
      notes = this.views.flatMap((view) => view.timeline.notes);
    this.legend.replaceChildren(
      ...this.kernelLegend(),
      ...(shown.bubbles && used.size
        ? [
            element("b.idle", "idle:"),
            ...[...used].map(([id, title]) =>
              item(
                `color-mix(in srgb, ${reasonColor(id)} ${100 * strength(id)}%, var(--ground))`,
                title.replace(/^idle: ?/, ""),
                "line",
              ),
            ),
          ]
        : []),
      ...(shown.path && chain ? [item("transparent", "critical path", "outlined")] : []),
      ...(shown.arrows && this.store.state.selection?.kind === "slice"
        ? [item("var(--producer)", "waited for", "line"), item("var(--consumer)", "waits for it", "line")]
        : []),
      element("span.grow"),
      ...notes.map((note) => element("span", { role: "listitem" }, note)),
    );
  }

  /** The heaviest kernels; a press marks the slices of one. */
  kernelLegend() {
    const model = this.views[0]?.model;
    if (!model) return [];
    const { timeline, names, heaviest } = model,
      colors = kernelColors(timeline).all,
      more = heaviest.length - MOST_KERNELS;
    return [
      ...heaviest.slice(0, MOST_KERNELS).map((kernel) =>
        element(
          "span",
          { role: "listitem" },
          element(
            "button.plain.kernel",
            {
              title: timeline.kernels[kernel],
              onclick: () => {
                const { selection } = this.store.state,
                  name = timeline.kernels[kernel],
                  again = selection?.kind === "kernel" && selection.kernel === name;
                this.store.set({ selection: again ? null : { kind: "kernel", kernel: name } });
              },
            },
            element("span.dot", { style: `background:${colors[kernel]}` }),
            names.fit(kernel, LEGEND_NAME),
          ),
        ),
      ),
      more > 0
        ? element("button.plain", { onclick: () => this.store.set({ panel: "kernels" }) }, `${more} more kernels`)
        : "",
    ];
  }

  /** Chooses a slice and shows it. @param {View} view @param {number} slice @param {boolean} move */
  choose(view, slice, move = true) {
    const { start, dur } = view.model.slices;
    this.store.set({ selection: view.model.selection(slice) });
    if (!move) return;
    center(this.store, start[slice], start[slice] + dur[slice]);
    view.reveal(view.model.rowOf(slice));
  }

  /** A click beside slices: an idle time leads to the cause that has it, else the selection ends. @param {View} view @param {any} found */
  chooseEmpty(view, found) {
    const place =
      found.kind === "bubble" || found.kind === "lane"
        ? causeAt(view.model.run, view.timeline.rows[found.row][0], found.moment)
        : -1;
    this.store.set({ selection: place >= 0 ? { kind: "cause", cause: place } : null });
  }

  /** The next slice of the same row, or of the row above or below, from the keyboard. @param {number} along @param {number} across */
  step(along, across) {
    const view =
      this.views.find(
        (one) => this.store.state.selection?.kind === "slice" && one.model.run.id === this.store.state.selection.run,
      ) ?? this.views[0];
    if (!view) return;
    const { selection } = this.store.state,
      { begins, start, dur } = view.model.slices;
    if (selection?.kind !== "slice") {
      const middle = (view.from + view.to) / 2;
      for (const track of view.tracks) {
        if (track.row < 0) continue;
        const found = view.model.sliceAt(track.row, middle, view.to - view.from);
        if (found >= 0) {
          this.choose(view, found);
          return;
        }
      }
      return;
    }
    const row = view.model.rowOf(selection.slice);
    if (along !== 0) {
      const next = selection.slice + along;
      if (next >= begins[row] && next < begins[row + 1]) this.choose(view, next);
      return;
    }
    const middle = start[selection.slice] + dur[selection.slice] / 2;
    for (let place = view.ofRow[row] + across; place >= 0 && place < view.tracks.length; place += across) {
      const other = view.tracks[place].row;
      if (other < 0 || begins[other] === begins[other + 1]) continue;
      const found = view.model.sliceAt(other, middle, view.model.window);
      if (found >= 0) {
        this.choose(view, found);
        return;
      }
    }
  }

  /** Brings what is selected into sight. @param {import("../types").Selection} selection */
  reveal(selection) {
    if (selection.kind !== "slice") return;
    const view = this.views.find((one) => one.model.run.id === selection.run);
    requestAnimationFrame(() => view?.reveal(view.model.rowOf(selection.slice)));
  }

  zoomToSelection() {
    const { selection } = this.store.state,
      view = this.views.find((one) => selection?.kind === "slice" && one.model.run.id === selection.run);
    if (selection?.kind === "range") show(this.store, selection.start, selection.end);
    if (selection?.kind !== "slice" || !view) return;
    const { start, dur } = view.model.slices,
      length = Math.max(dur[selection.slice], 1);
    show(this.store, start[selection.slice] - length / 2, start[selection.slice] + 1.5 * length);
  }

  /** @param {number} share */
  scroll(share) {
    for (const view of this.views) view.box.scrollTop += share * view.height;
  }
  /** About the mouse where it is over the timeline. @param {number} factor */
  zoom(factor) {
    zoom(this.store, factor, this.pointer ?? 0.5);
  }
  /** @param {number} share */
  pan(share) {
    pan(this.store, share);
  }
  all() {
    show(this.store, ...this.store.full());
  }
}
