// Fixes of a program's findings: each was tried before it is shown; one can be drawn as a run of its own, or applied.

import { duration, element, fill } from "../format.js";
import { ratioText } from "../header.js";
import { changedLines } from "./source_changes.js";

/** What was tried of a run. @type {WeakMap<import("../types").Run, import("../types").Mending>} */
const kept = new WeakMap();
const PROOFS = /** @type {Record<string, string>} */ ({
  golden: "the golden holds",
  bits: "the same numbers, bit by bit",
  order: "the same numbers but for the order of sums",
});

/** What a fix gains, in a line. @param {import("../types").TriedFix} fix */
function gain(fix) {
  const { versus } = fix;
  if (!versus) return PROOFS[fix.numbers] ?? "";
  const ratio = ratioText({ ...versus, id: "", edits: [], name: "this run" });
  return `${duration(fix.before_ns)} → ${duration(fix.wall_ns)}: ${ratio}; ${PROOFS[fix.numbers] ?? ""}`;
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "fixes",
  title: "Fixes",
  group: "try",
  has: (run, state) =>
    state.live?.ask !== undefined && state.live.program !== null && run !== undefined && !run.measured,
  mount(box, store) {
    const run = store.run(),
      ask = /** @type {import("../live.js").Live} */ (store.state.live?.ask),
      status = element("p.soft", { role: "status" }),
      list = element("div", { "data-panel": "fixes" });
    /** @param {() => Promise<unknown>} work @param {string} words */
    const doing = async (work, words) => {
      status.textContent = words;
      try {
        await work();
        status.textContent = "";
      } catch (error) {
        status.textContent = /** @type {Error} */ (error).message;
      }
    };
    /** @param {import("../types").TriedFix} fix */
    const shown = (fix) =>
      element(
        "section.answer.fix",
        element("h3", fix.title),
        element("p", gain(fix)),
        changedLines(fix.changes),
        element(
          "p.tools",
          element(
            "button",
            { onclick: () => doing(() => ask.tryFix(run.id, fix.key), "drawing …") },
            "draw it beside this run",
          ),
          element(
            "button",
            { onclick: () => doing(() => ask.applyFix(run.id, fix.key), "writing …") },
            "apply to the file",
          ),
        ),
      );
    const draw = () => {
      const found = kept.get(run);
      if (!found) return fill(list);
      const offered = found.fixes.filter((fix) => fix.offered),
        others = found.fixes.filter((fix) => !fix.offered);
      fill(
        list,
        element("p", offered.length ? "Each was tried alone: gains do not add up." : "Nothing to offer."),
        ...offered.map(shown),
        others.length || found.unmended.length
          ? element(
              "details",
              element("summary", "Not offered"),
              element(
                "ul",
                ...others.map((fix) => element("li", `${fix.title}: ${fix.why}`)),
                ...found.unmended.map((one) => element("li", `${one.id}, ${one.place}: ${one.why}`)),
              ),
            )
          : null,
      );
    };
    const look = async () => {
      kept.set(run, await ask.fixes(run.id));
      draw();
    };
    box.append(
      element(
        "p.soft",
        "A fix rewrites the source of a finding. It is offered where the program still runs, has the same numbers, fits, does not race and is predicted faster.",
      ),
      element(
        "p.tools",
        element("button", { onclick: () => doing(look, "trying fixes …") }, "try the fixes of this program"),
      ),
      status,
      list,
    );
    draw();
    return {};
  },
};
