// The header is the answer: which save is shown, how long it takes, and how that compares with the save before.

import { change, duration, element, significant, times } from "./format.js";

/** @typedef {import("./types").Version} Version */

const MOST_EDITS = 3,
  MOST_KERNELS = 3,
  NOTABLE = 0.005; // of the core time of all kernels

/** A time without its interval. @param {import("./types").Wall | null | undefined} wall */
export function wallOf(wall) {
  return wall === null || wall === undefined ? null : typeof wall === "number" ? wall : wall.value;
}

/** A predicted time with its interval, or a measured one. @param {import("./types").Wall | null | undefined} wall */
export function wallText(wall) {
  const value = wallOf(wall);
  if (value === null) return "";
  return typeof wall === "object" && wall?.low !== undefined && wall.high !== undefined
    ? `${duration(value)} (${withoutUnit(duration(wall.low), duration(wall.high))} to ${duration(wall.high)})`
    : duration(value);
}

/** A time without its unit where the next one says it. @param {string} text @param {string} next */
const withoutUnit = (text, next) => (text.split(" ")[1] === next.split(" ")[1] ? text.split(" ")[0] : text);

/** The newest save with a run. @param {Version[]} versions */
export function newestSave(versions) {
  return versions.findLast((one) => one.saved && one.has_run && !one.measured);
}

/**
 * Where a version stands among the saves; `newest` is the version to go to where what is shown is old.
 * @param {Version[]} versions @param {string} run
 * @returns {{text: string, newest: Version | null}}
 */
export function standing(versions, run) {
  const saves = versions.filter((one) => one.saved && !one.measured),
    shown = versions.find((one) => one.id === run),
    newest = newestSave(versions);
  if (!shown || shown.measured || !newest) return { text: "", newest: null };
  const old = Number(shown.id) < Number(newest.id) ? newest : null;
  if (shown.saved) return { text: `save ${saves.indexOf(shown) + 1} of ${saves.length}`, newest: old };
  return { text: `tried on ${shown.versus?.name ?? "the program"}`, newest: old ?? newest };
}

/** A ratio to the save before, in words. @param {import("./types").Versus} versus */
export function ratioText({ ratio, low, high, probability_faster: faster, verdict, name }) {
  if (ratio === undefined) return "";
  const interval = low === undefined || high === undefined ? "" : ` (${significant(low)} to ${significant(high)})`;
  // as chance_text of base/interval.py says it
  const [chance, word] = verdict === "slower" ? [1 - (faster ?? 0), "slower"] : [faster ?? 0, "faster"];
  const likely = `${verdict === "undecided" ? ", undecided" : ""}, ${percentOf(chance)} likely ${word}`;
  return `${times(ratio)} ${name}${interval}${faster === undefined ? "" : likely}`;
}

/** Never certain. @param {number} share */
const percentOf = (share) => `${Math.round(100 * Math.min(Math.max(share, 0.01), 0.99))}%`;

/**
 * The kernels whose core time changed most from one run to another.
 * @param {{name: string, core_ns: number}[]} before @param {{name: string, core_ns: number}[]} now
 * @returns {{name: string, change: number | null}[]} null: it is new; −1: it is gone
 */
export function changedKernels(before, now) {
  const was = new Map(before.map((row) => [row.name, row.core_ns])),
    is = new Map(now.map((row) => [row.name, row.core_ns]));
  const total = Math.max(
    [...was.values()].reduce((a, b) => a + b, 0),
    1,
  );
  return [...new Set([...is.keys(), ...was.keys()])]
    .map((name) => ({ name, a: was.get(name) ?? 0, b: is.get(name) ?? 0 }))
    .filter((one) => Math.abs(one.b - one.a) > NOTABLE * total)
    .sort((x, y) => Math.abs(y.b - y.a) - Math.abs(x.b - x.a))
    .slice(0, MOST_KERNELS)
    .map(({ name, a, b }) => ({ name, change: a ? b / a - 1 : null }));
}

/** What the shown run is held against: the save before, or the run that it is compared with. @param {import("./types").Store} store @returns {import("./types").Versus | null} */
export function versusOf(store) {
  const { shared, run, beside, versions } = store.state,
    { compare } = shared;
  if (!store.state.runs.includes(store.run())) return null; // a rank that no other save is held against
  if (compare && beside !== null) {
    const [from, to] = compare.totals.wall_ns;
    return { id: beside, name: store.beside()?.name ?? "A", edits: [], ratio: from ? to / from : 1, ...compare.versus };
  }
  return versions.find((one) => one.id === run)?.versus ?? null;
}

/** What was edited since the save before, and which kernels changed. @param {import("./types").Store} store */
export function sinceParts(store) {
  const versus = versusOf(store),
    rows = (/** @type {import("./types").Run | undefined | null} */ run) => run?.panels.overview?.report.kernels ?? [];
  if (versus === null) return [];
  const { edits } = versus,
    before = store.state.runs.find((one) => one.id === versus.id);
  const kernels = before ? changedKernels(rows(before), rows(store.run())) : [];
  const more = edits.length > MOST_EDITS ? [`and ${edits.length - MOST_EDITS} more edits`] : [];
  return [
    ...edits.slice(0, MOST_EDITS).map((one) => `${one.text} (${one.file}:${one.line})`),
    ...more,
    ...kernels.map(
      (one) => `${one.name} ${one.change === null ? "new" : one.change === -1 ? "gone" : change(one.change)}`,
    ),
  ];
}

/** @param {import("./types").Store} store @param {(id: string) => void} show */
export function answer(store, show) {
  const { state } = store,
    run = store.run(),
    versus = versusOf(store),
    { text, newest } = standing(state.versions, state.run),
    since = sinceParts(store);
  const turn = versus?.verdict === "faster" ? "good" : versus?.verdict === "slower" ? "bad" : "soft";
  return [
    text === "" ? null : element("span.standing", text),
    newest === null
      ? null
      : element("button.newest", { title: `Show ${newest.name}`, onclick: () => show(newest.id) }, "newest ▸"),
    element("b.wall", wallText(run?.wall)),
    run?.part ? element("span.soft", run.part) : null,
    versus?.ratio === undefined ? null : element("b", { class: `ratio ${turn}` }, ratioText(versus)),
    run === undefined
      ? null
      : element(
          "span",
          { class: `badge ${run.measured ? "" : "predicted"}`, title: run.text },
          run.measured ? "measured" : "simulated",
        ),
    since.length === 0
      ? null
      : element("span.since", { role: "status" }, `since ${versus?.name}: ${since.join(" · ")}`),
  ];
}
