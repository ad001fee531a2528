// Panels that are a report of parts: each belongs to no single run and is there where the document has it.

import { element } from "../format.js";
import { partsOf } from "../parts.js";

/** Id and title of each. @type {[string, string][]} */
const REPORTS = [
  ["rank", "Variants"],
  ["sweep", "Settings"],
  ["roofline", "Roofline"],
  ["passes", "Forward passes"],
  ["align", "Alignment"],
  ["several", "Several runs"],
  ["history", "History"],
  ["sql", "SQL"],
];

export const reports = REPORTS.map(([id, title]) => ({
  id,
  title,
  /** @param {any} run @param {any} state */
  has: (run, state) => Boolean(state.shared[id] ?? run?.panels[id]),
  /** @param {HTMLElement} box @param {any} store */
  mount(box, store) {
    const found = store.state.shared[id] ?? store.run().panels[id];
    box.append(element("div", { class: "parts", "data-panel": id }, ...partsOf(found.parts)));
    return {};
  },
}));
