// Pins: stretches of time that a reader marked, each with a note; a link to the page has them, too.

import { duration, element, fill } from "./format.js";
import { center } from "./timeline/moves.js";
import { modelOf } from "./timeline/pane.js";

const MOST_TEXT = 200;

/** What is selected as a stretch of time, else what is in sight. @param {import("./types").Store} store @returns {[number, number]} */
function stretch(store) {
  const { selection, window, runs } = store.state;
  if (selection?.kind === "range") return [selection.start, selection.end];
  const run = selection?.kind === "slice" ? runs.find((one) => one.id === selection.run) : undefined;
  if (selection?.kind !== "slice" || run === undefined) return window;
  const { start, dur } = modelOf(run).slices;
  return [start[selection.slice], start[selection.slice] + dur[selection.slice]];
}

export class PinsBox {
  /** @param {import("./types").Store} store */
  constructor(store) {
    this.store = store;
    this.list = element("ol.pins");
    this.box = element("section", { "aria-label": "Pins", hidden: "" }, element("h2", "Pins"), this.list);
    store.on(["pins"], () => this.draw());
    this.draw();
  }

  /** Pins what is selected, and lets the reader write why. */
  add() {
    const [start, end] = stretch(this.store).map(Math.round),
      { selection } = this.store.state;
    const text = selection?.kind === "slice" ? selection.kernel : "";
    this.store.set({ pins: [...this.store.state.pins, { start, end, text }] });
    this.list.lastElementChild?.querySelector("input")?.select();
  }

  /** @param {number} place @param {import("./types").Pin | null} pin */
  change(place, pin) {
    const { pins } = this.store.state;
    this.store.set({ pins: pins.flatMap((one, n) => (n !== place ? [one] : pin ? [pin] : [])) });
  }

  draw() {
    const { pins } = this.store.state;
    this.box.hidden = pins.length === 0;
    if (this.list.contains(document.activeElement) && this.list.children.length === pins.length) return; // a note is being written
    fill(
      this.list,
      ...pins.map((pin, place) => {
        const note = element("input", {
          value: pin.text,
          placeholder: "note",
          maxlength: String(MOST_TEXT),
          "aria-label": `Note of pin ${place + 1}`,
        });
        note.addEventListener("input", () => this.change(place, { ...pin, text: note.value }));
        note.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
          if (event.key === "Enter" || event.key === "Escape") note.blur();
        });
        return element(
          "li",
          element(
            "button.plain",
            { title: "Show it", onclick: () => center(this.store, pin.start, pin.end) },
            `${duration(pin.start)}, ${duration(pin.end - pin.start)}`,
          ),
          note,
          element(
            "button.plain",
            { "aria-label": `Take pin ${place + 1} away`, onclick: () => this.change(place, null) },
            "×",
          ),
        );
      }),
    );
  }
}
