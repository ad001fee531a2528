// All ranks in a table; a row shows that rank.

import { element, worded } from "../format.js";
import { partsOf } from "../parts.js";
import { sortable } from "../table.js";
import { titled } from "./overview.js";

/** @type {import("../types").Panel} */
export const panel = {
  id: "ranks",
  title: "Ranks",
  group: "run",
  has: (run, state) => state.shared.ranks !== undefined || run?.panels.ranks !== undefined,
  mount(box, store) {
    if (store.state.shared.ranks === undefined) {
      // of a simulated program
      box.append(element("div.parts", ...partsOf(store.run().panels.ranks.parts)));
      return {};
    }
    const ranks = store.state.shared.ranks,
      columns = ranks.columns["report.ranks.table"];
    const picked = (/** @type {any} */ row) => {
      const run = row === null ? undefined : store.state.runs.find((one) => Object.values(row).includes(one.name));
      if (run) store.set({ run: run.id });
    };
    box.append(
      ...[
        element("p.verdict", { id: "all" }, ...worded(ranks.verdict)),
        element("p", ranks.overview),
        element("p", ranks.waits_text),
        titled(`All ${ranks.what}, each explained alone`, sortable(columns, ranks.table, { picked })),
        ranks.waits.length === 0
          ? null
          : titled("Who waits for whom", sortable(ranks.columns["report.waits.table"], ranks.waits)),
      ].filter((part) => part !== null),
    );
    return {};
  },
};
