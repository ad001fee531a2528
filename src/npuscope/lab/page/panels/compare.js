// Two runs compared: where the gap comes from, changed lines and what they cost, changed kernels.

import { duration, element, fill, times } from "../format.js";
import { chart } from "../chart.js";
import { sortable } from "../table.js";
import { overlap, said, titled } from "./overview.js";
import { changedLines } from "./source_changes.js";

const MOST = 12; // lines

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

/** @param {any} store */
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

/** @param {any} found @param {any} store */
function parts(found, store) {
  const { columns, names } = found,
    [from, to] = found.totals.wall_ns,
    unlike = found.not_like_for_like;
  const words = columns["compare.waterfall"]?.find((/** @type {any} */ column) => column.key === "part")?.words ?? {};
  const steps = found.waterfall
    .filter((/** @type {any} */ bar) => bar.ns !== 0)
    .map((/** @type {any} */ bar) => ({ name: words[bar.part] ?? bar.part, ns: bar.ns }));
  const ratio = from ? `, ${times(to / from)}` : "";
  return [
    element(
      "p",
      { class: "verdict", id: "gap" },
      `A ${names[0]} takes ${duration(from)}, B ${names[1]} ${duration(to)}: ${change(to - from)}${ratio}.`,
    ),
    ...(found.first ?? []).map(said),
    found.source?.length ? titled("Lines that changed", changedLines(found.source)) : null,
    titled(
      "Where the gap comes from",
      element(
        "div",
        { class: "two" },
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
      ? titled(
          "Not like for like",
          element("ul", {}, ...unlike.map((/** @type {string} */ line) => element("li", {}, line))),
        )
      : null,
    found.overlap === null
      ? null
      : titled(
          "Hidden and exposed",
          element(
            "div",
            { class: "pair" },
            ...found.overlap.map((/** @type {any} */ one) =>
              one === null ? element("p", { class: "soft" }, "has none of these kernels") : overlap(one),
            ),
          ),
        ),
    titled(
      "Kernels",
      sortable(columns["compare.kernels"], found.kernels, {
        sorted: null,
        picked: (row) =>
          store.set({ selection: row === null ? null : { kind: "kernel", kernel: row.kernel ?? row.a ?? row.name } }),
      }),
    ),
  ];
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "compare",
  title: "Compare",
  group: "try",
  has: (_, state) => state.shared.compare !== undefined,
  mount(box, store) {
    /** @type {any} */
    let shown = null;
    const draw = () => {
      if (store.state.shared.compare === shown) return;
      shown = store.state.shared.compare;
      fill(box, ...(shown ? parts(shown, store) : []));
    };
    draw();
    return { update: draw };
  },
};
