// Two runs compared: totals, where the gap comes from, what is not like for like, kernels.

import { element } from "../format.js";
import { waterfall } from "../charts.js";
import { sortable } from "../table.js";
import { overlap, said, titled } from "./overview.js";
import { changedLines } from "./source_changes.js";

/** @type {import("../types").Panel} */
export const panel = {
  id: "compare", title: "Compare", has: (_, state) => state.shared.compare !== undefined,
  mount(box, store) {
    const found = store.state.shared.compare, { columns, names } = found, [from, to] = found.totals.wall_ns, unlike = found.not_like_for_like;
    const steps = found.waterfall.map((/** @type {any} */ bar) => ({ label: bar.part, ns: bar.ns }));
    box.append(...[
      ...(found.first ?? []).map(said),
      titled(found.kernels_asked === null ? "Totals" : `Totals of ${found.kernels_asked}`, sortable(columns["compare.gaps"], found.gaps)),
      titled("Where the gap comes from", element("div", { class: "two" }, waterfall(from, steps, to, [`A ${names[0]}`, `B ${names[1]}`]), sortable(columns["compare.waterfall_kernels"], found.waterfall_kernels))),
      found.source?.length ? titled("Lines that changed", changedLines(found.source)) : null,
      unlike.length ? titled("Not like for like", element("ul", {}, ...unlike.map((/** @type {string} */ line) => element("li", {}, line)))) : null,
      found.overlap === null ? null : titled("Hidden and exposed", element("div", { class: "pair" }, ...found.overlap.map((/** @type {any} */ one) => (one === null ? element("p", { class: "soft" }, "has none of these kernels") : overlap(one))))),
      titled("Kernels", sortable(columns["compare.kernels"], found.kernels, { picked: row => store.set({ selection: row === null ? null : { kind: "kernel", kernel: row.kernel ?? row.a ?? row.name } }) })),
    ].filter(part => part !== null));
    return {};
  },
};
