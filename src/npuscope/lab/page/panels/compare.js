// Two runs compared: where the gap comes from, changed lines and what they cost, changed kernels.

import { duration, element, fill, percent, whole } from "../format.js";
import { chart } from "../chart.js";
import { sortable } from "../table.js";
import { ratioText, versusOf } from "../header.js";
import { overlap, said, titled } from "./overview.js";
import { changedLines } from "./source_changes.js";

const MOST = 12, // lines
  EQUAL = 0.01; // apart

/** @param {number} ns */
const change = (ns) => `${ns > 0 ? "+" : ""}${duration(ns)}`;

/** Lines of both programs whose time changed most: equal text in files of one name is one line. @param {any} a @param {any} b */
function movedLines(a, b) {
  /** @type {Map<string, {text: string, place: string, a: number, b: number}>} */
  const found = new Map();
  for (const [side, source] of /** @type {["a" | "b", any][]} */ ([
    ["a", a],
    ["b", b],
  ])) {
    for (const line of source.lines) {
      const text =
        source.files.find((/** @type {any} */ file) => file.name === line.file)?.text?.[line.line - 1]?.trim() ?? "";
      const key = text || `${line.file}:${line.line}`,
        one = found.get(key) ?? { text, place: `${line.file}:${line.line}`, a: 0, b: 0 };
      one[side] += line.core_ns;
      if (side === "b") one.place = `${line.file}:${line.line}`;
      found.set(key, one);
    }
  }
  return [...found.values()]
    .filter((one) => Math.abs(one.b - one.a) >= 1)
    .sort((x, y) => Math.abs(y.b - y.a) - Math.abs(x.b - x.a))
    .slice(0, MOST);
}

/** @param {import("../types").Store} store */
function lineTable(store) {
  const [a, b] = [store.run(), store.beside()].map((run) => run?.panels.source);
  const rows = a && b ? movedLines(a, b) : [];
  if (rows.length === 0) return null;
  const columns = [
    { key: "text", title: "line", show: "text", right: false },
    { key: "place", title: "at", show: "text", right: false },
    { key: "a", title: "core time A µs", show: "ns", per: 1000, right: true },
    { key: "b", title: "core time B µs", show: "ns", per: 1000, right: true },
    { key: "gap", title: "B − A µs", show: "ns", per: 1000, right: true },
  ];
  return titled(
    "Lines whose time changed most",
    sortable(
      columns,
      rows.map((row) => ({ ...row, gap: row.b - row.a })),
    ),
  );
}

/** A kernel of both runs. @typedef {{kernel?: string, name?: string, a?: string, count_a: number | null, count_b: number | null, core_a_ns: number | null, core_b_ns: number | null}} Both */

/** Whether a kernel is the same in both runs: as often, and as long within a percent. @param {Both} row */
export function isEqual({ count_a, count_b, core_a_ns: a, core_b_ns: b }) {
  return count_a === count_b && a !== null && b !== null && Math.abs(a - b) <= EQUAL * Math.max(a, b);
}

/** Kernels that differ, and those that do not folded away. @param {any[]} columns @param {Both[]} rows @param {import("../types").Store} store */
function kernels(columns, rows, store) {
  const picked = (/** @type {Both | null} */ row) =>
    store.set({ selection: row === null ? null : { kind: "kernel", kernel: row.kernel ?? row.a ?? row.name ?? "" } });
  const equal = rows.filter(isEqual),
    differ = rows.filter((row) => !isEqual(row));
  return [
    titled(
      "Kernels that differ",
      differ.length
        ? sortable(columns, differ, { sorted: null, picked })
        : element("p.soft", `None: all ${whole(equal.length)} kernels are within ${percent(EQUAL)}.`),
    ),
    equal.length
      ? element(
          "details",
          element("summary", `${whole(equal.length)} kernels are the same within ${percent(EQUAL)}`),
          sortable(columns, equal, { sorted: null, picked }),
        )
      : null,
  ];
}

/** @param {any} found @param {import("../types").Store} store */
function parts(found, store) {
  const { columns, names } = found,
    [from, to] = found.totals.wall_ns,
    unlike = found.not_like_for_like;
  const words = columns["compare.waterfall"]?.find((/** @type {any} */ column) => column.key === "part")?.words ?? {};
  const steps = found.waterfall
    .filter((/** @type {any} */ bar) => bar.ns !== 0)
    .map((/** @type {any} */ bar) => ({ name: words[bar.part] ?? bar.part, ns: bar.ns }));
  const versus = versusOf(store);
  const ratio = versus?.ratio === undefined ? "" : `, ${ratioText({ ...versus, name: "A" })}`,
    interval = found.versus ? "" : " Each was measured once, so the ratio has no interval.";
  return [
    element(
      "p.verdict",
      { id: "gap" },
      `A ${names[0]} takes ${duration(from)}, B ${names[1]} ${duration(to)}: ${change(to - from)}${ratio}.${interval}`,
    ),
    ...(found.first ?? []).map(said),
    found.source?.length ? titled("Lines that changed", changedLines(found.source)) : null,
    titled(
      "Where the gap comes from",
      element(
        "div.two",
        chart({ chart: "waterfall", from, to, steps, names: [`A ${names[0]}`, `B ${names[1]}`] }),
        sortable(columns["compare.waterfall_kernels"], found.waterfall_kernels),
      ),
    ),
    lineTable(store),
    titled(
      found.kernels_asked === null ? "Totals" : `Totals of ${found.kernels_asked}`,
      sortable(columns["compare.gaps"], found.gaps),
    ),
    unlike.length
      ? titled("Not like for like", element("ul", ...unlike.map((/** @type {string} */ line) => element("li", line))))
      : null,
    found.overlap === null
      ? null
      : titled(
          "Hidden and exposed",
          element(
            "div.pair",
            ...found.overlap.map((/** @type {any} */ one) =>
              one === null ? element("p.soft", "has none of these kernels") : overlap(one),
            ),
          ),
        ),
    ...kernels(columns["compare.kernels"], found.kernels, store),
  ];
}

/** Nothing is compared yet: with what? @param {import("../types").Store} store */
function choose(store) {
  const { versions, run, live, beside } = store.state,
    shown = versions.find((one) => one.id === run),
    others = versions.filter((one) => one.has_run && one.id !== run).reverse();
  if (beside !== null) return element("p.soft", "comparing …");
  return element(
    "div",
    element("p", `Compare ${shown?.name ?? "what is shown"} with:`),
    element(
      "p.tools",
      ...others.map((one) =>
        element(
          "button",
          {
            onclick: () =>
              live?.ask.compare(one.id, run).catch((/** @type {Error} */ error) => live.ask.say(error.message)),
          },
          one.name,
        ),
      ),
    ),
    element(
      "p.soft",
      "A capture that is dropped onto this page is compared with what is shown; two captures with each other.",
    ),
  );
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "compare",
  title: "Compare",
  group: "try",
  has: (_, state) =>
    state.shared.compare !== undefined ||
    (state.live !== null && state.versions.filter((one) => one.has_run).length > 1),
  mount(box, store) {
    /** @type {unknown} */
    let shown = null;
    const draw = () => {
      const { compare } = store.state.shared;
      if (compare === shown && compare !== undefined) return;
      shown = compare;
      fill(box, ...(compare ? parts(compare, store) : [choose(store)]));
    };
    draw();
    return { update: draw };
  },
};
