// The view in the address: what a link must restore, and nothing else.

import { ROOM, SHOWN } from "./store.js";

/** @typedef {import("./types").State} State */

/** @param {import("./types").Selection} s */
function selectionText(s) {
  if (s.kind === "slice") return `slice.${s.run}.${s.slice}`;
  if (s.kind === "line") return `line.${s.line}.${s.file}`;
  if (s.kind === "kernel") return `kernel.${s.kernel}`;
  if (s.kind === "cause") return `cause.${s.cause}`;
  if (s.kind === "task") return `task.${s.task}`;
  return `range.${Math.round(s.start)}.${Math.round(s.end)}`;
}

/** @param {State} state @param {[number, number]} full @param {string} first */
export function linkOf(state, full, first) {
  const parts = new URLSearchParams();
  if (state.run !== first) parts.set("run", state.run);
  if (state.beside !== null) parts.set("beside", state.beside);
  if (state.rank !== "") parts.set("rank", state.rank);
  if (state.panel !== state.opens) parts.set("panel", state.panel);
  if (state.window[0] !== full[0] || state.window[1] !== full[1])
    parts.set("window", `${+state.window[0].toFixed(1)}-${+state.window[1].toFixed(1)}`);
  if (state.selection !== null) parts.set("select", selectionText(state.selection));
  if (state.search !== "") parts.set("find", state.search);
  const hidden = Object.keys(SHOWN).filter((key) => !state.shown[/** @type {keyof State["shown"]} */ (key)]);
  if (hidden.length) parts.set("hide", hidden.join(" "));
  if (state.folded.length) parts.set("fold", state.folded.join(" "));
  if (state.lanes !== "") parts.set("lanes", state.lanes);
  for (const pin of state.pins) parts.append("pin", `${pin.start}-${pin.end}-${pin.text}`);
  if (!state.split) parts.set("split", "no");
  if (state.room.timeline !== ROOM.timeline || state.room.aside !== ROOM.aside)
    parts.set("room", `${state.room.timeline}-${state.room.aside}`);
  return parts.toString();
}

/**
 * What an address says; `rank` and `select` stay text, since a rank must be asked for and a slice looked up.
 * @param {string} hash @param {State} state
 * @returns {{patch: Partial<State>, rank: string, select: string | null}}
 */
export function linkSays(hash, state) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Partial<State>} */
  const patch = {};
  const known = (/** @type {string | null} */ id) => state.runs.some((run) => run.id === id);
  const run = parts.get("run"),
    beside = parts.get("beside"),
    shown = { ...SHOWN };
  if (run !== null && known(run)) patch.run = run;
  if (beside !== null && known(beside)) patch.beside = beside;
  if (parts.get("panel")) patch.panel = parts.get("panel") ?? state.opens;
  const [start, end] = (parts.get("window") ?? "").split("-").map(Number);
  if (Number.isFinite(start) && end > start) patch.window = [start, end];
  if (parts.get("find")) patch.search = parts.get("find") ?? "";
  for (const key of (parts.get("hide") ?? "").split(" "))
    if (key in shown) shown[/** @type {keyof typeof shown} */ (key)] = false;
  patch.shown = shown;
  if (parts.has("fold")) patch.folded = (parts.get("fold") ?? "").split(" ").filter(Boolean);
  if (parts.get("lanes")) patch.lanes = parts.get("lanes") ?? "";
  const pins = parts.getAll("pin").flatMap((text) => {
    const [, from, to, note] = text.match(/^(\d+)-(\d+)-(.*)$/s) ?? [];
    return from === undefined ? [] : [{ start: Number(from), end: Number(to), text: note }];
  });
  if (pins.length) patch.pins = pins;
  if (parts.get("split") === "no") patch.split = false;
  const [timeline, aside] = (parts.get("room") ?? "").split("-").map(Number);
  if (timeline >= 10 && timeline <= 90 && aside >= 100) patch.room = { timeline, aside };
  return { patch, rank: parts.get("rank") ?? "", select: parts.get("select") };
}

/**
 * The selection that a link names.
 * @param {string} text @param {import("./types").Store["find"]} find @param {(run: import("./types").Run, slice: number) => any} sliceOf
 */
export function selectionOf(text, find, sliceOf) {
  const [kind, ...rest] = text.split("."),
    first = Number(rest[0]);
  if (kind === "slice") {
    const run = find(rest.slice(0, -1).join(".")),
      slice = Number(rest.at(-1));
    return run && slice >= 0 && slice < run.timeline.slices.start.length ? sliceOf(run, slice) : null;
  }
  if (kind === "line" && first > 0) return { kind, line: first, file: rest.slice(1).join(".") };
  if (kind === "kernel") return { kind, kernel: rest.join(".") };
  if (kind === "cause" && first >= 0) return { kind, cause: first };
  if (kind === "task") return { kind, task: first };
  if (kind === "range" && Number(rest[1]) > first) return { kind, start: first, end: Number(rest[1]) };
  return null;
}
