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

/** @type {import("../types").Panel[]} */
export const reports = REPORTS.map(([id, title]) => ({
  id,
  title,
  group: "run",
  has: (run, state) => Boolean(state.shared[id] ?? run?.panels[id]),
  mount(box, store) {
    const found = store.state.shared[id] ?? store.run().panels[id];
    box.append(element("div", { class: "parts", "data-panel": id }, ...partsOf(found.parts)));
    return {};
  },
}));
