// Finding kernels by name: how many, which of them is shown, the next and the one before.

import { element, whole } from "../format.js";
import { center } from "./moves.js";

export class Search {
  /** @param {import("../types").Store} store @param {() => import("./view.js").View[]} views */
  constructor(store, views) {
    this.store = store;
    this.views = views;
    /** @type {Map<any, {text: string, found: {flags: boolean[], slices: Uint32Array} | null}>} */
    this.kept = new Map();
    this.place = -1;
    this.input = element("input", {
      type: "search",
      id: "search",
      placeholder: "find a kernel ( / )",
      "aria-label": "Find a kernel",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.count = element("span.soft", { id: "found", "aria-live": "polite" });
    const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {number} */ by) =>
      element("button", { "aria-label": label, title: label, onclick: () => this.go(by) }, text);
    this.box = element(
      "span.search",
      this.input,
      button("‹", "Previous hit (Shift+Enter)", -1),
      button("›", "Next hit (Enter)", 1),
      this.count,
    );
    this.input.addEventListener("input", () => {
      this.place = -1;
      store.set({ search: this.input.value });
      this.showCount();
    });
    this.input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") {
        this.go(event.shiftKey ? -1 : 1);
        event.preventDefault();
      }
      if (event.key === "Escape") {
        this.input.value = "";
        store.set({ search: "" });
        this.place = -1;
        this.showCount();
        this.input.blur();
        event.stopPropagation();
      }
    });
    store.on(["search"], () => {
      if (this.input.value !== store.state.search) {
        this.input.value = store.state.search;
        this.place = -1;
      }
      this.showCount();
    });
  }

  /** @param {import("./model.js").Model} model */
  foundIn(model) {
    const text = this.store.state.search,
      known = this.kept.get(model);
    if (known?.text === text) return known.found;
    const found = model.search(text);
    this.kept.set(model, { text, found });
    return found;
  }

  again() {
    this.place = -1;
    this.input.value = this.store.state.search;
    this.showCount();
  }

  showCount() {
    const found = this.views().map((view) => this.foundIn(view.model));
    if (found.length === 0 || found[0] === null) {
      this.count.textContent = "";
      return;
    }
    const [first, second] = found.map((one) => whole(one?.slices.length ?? 0));
    const where = this.place >= 0 ? `${whole(this.place + 1)} of ${first}` : `${first} found`;
    this.count.textContent = second === undefined ? where : `${where}, ${second} beside`;
  }

  /** Shows the next hit, or the one before. @param {number} by */
  go(by) {
    const view = this.views()[0],
      found = view && this.foundIn(view.model);
    if (!found || found.slices.length === 0) return;
    const { start, dur } = view.model.slices,
      count = found.slices.length,
      [from, to] = this.store.state.window;
    if (this.place < 0) {
      // the first hit in sight, or else the first of all
      const inside = found.slices.findIndex((slice) => start[slice] >= from && start[slice] < to);
      this.place = by > 0 ? Math.max(inside, 0) : (Math.max(inside, 0) - 1 + count) % count;
    } else this.place = (this.place + by + count) % count;
    const slice = found.slices[this.place];
    this.store.set({ selection: view.model.selection(slice) });
    center(this.store, start[slice], start[slice] + dur[slice]);
    view.reveal(view.model.rowOf(slice));
    this.showCount();
  }
}
