// What every function of a program takes of each memory, and the map of the chosen one, linked to the lines.

import { element, percent, whole } from "../format.js";
import { seriesColor } from "../colors.js";
import { sortable } from "../table.js";
import { MemoryMap, rankTiles } from "./memory_map.js";
import { hideTip } from "../chart/tip.js";

/** @param {any[]} spaces */
const fullest = (spaces) => Math.max(0, ...spaces.map((space) => space.used / space.limit));

class Memory {
  /** @param {HTMLElement} box @param {any} store @param {any} found */
  constructor(box, store, found) {
    this.store = store;
    /** The function that is shown. @type {string | null} */
    this.now = null;
    /** @type {MemoryMap[]} */
    this.maps = [];
    this.entries = found.programs.flatMap((/** @type {any} */ program, /** @type {number} */ n) =>
      program.functions.map((/** @type {any} */ made) => ({
        program,
        made,
        id: found.programs.length > 1 ? `${n}/${made.name}` : made.name,
      })),
    );
    this.chosen = element("div", { id: "chosen" });
    this.picker = element(
      "select",
      { id: "function", "aria-label": "Function" },
      ...this.entries.map((/** @type {any} */ entry) => {
        const share = fullest(entry.made.spaces);
        return element(
          "option",
          { value: entry.id },
          `${entry.id} (${percent(share)}${share > 1 ? ", does not fit" : ""})`,
        );
      }),
    );
    this.picker.addEventListener("change", () => this.show(this.picker.value));
    const rows = this.entries.flatMap((/** @type {any} */ entry) =>
      entry.made.spaces.map((/** @type {any} */ space) => ({ entry, ...space.row })),
    );
    const table = sortable(found.columns, rows, {
      sorted: "share",
      picked: (/** @type {any} */ row) => {
        if (row !== null) this.show(row.entry.id);
      },
    });
    box.append(
      element(
        "div.memory",
        found.text ? element("p.soft", found.text) : null,
        ...found.programs.map(verdict),
        ...(this.entries.length
          ? [
              table,
              element(
                "div.tools",
                element("label", "function ", this.picker),
                element(
                  "span.soft",
                  "address upward, instructions to the right; a click on a tile selects the line that makes it",
                ),
              ),
              this.chosen,
            ]
          : []),
      ),
    );
    this.follow(store.state);
    if (this.now === null && this.entries.length)
      this.show(
        this.entries.reduce((/** @type {any} */ a, /** @type {any} */ b) =>
          fullest(b.made.spaces) > fullest(a.made.spaces) ? b : a,
        ).id,
      );
  }

  /** @param {string} id */
  show(id) {
    const entry = this.entries.find((/** @type {any} */ one) => one.id === id);
    if (entry === undefined || id === this.now) return;
    this.now = id;
    this.destroy();
    this.picker.value = id;
    const ranks = rankTiles(entry.made.spaces);
    this.chosen.replaceChildren(
      ...entry.made.spaces.map((/** @type {any} */ space) => this.space(space, entry.program, ranks)),
    );
    for (const map of this.maps) map.draw();
    this.mark(this.store.state);
  }

  /** @param {any} space @param {any} program @param {Map<string, number>} ranks */
  space(space, program, ranks) {
    const pick = (/** @type {any} */ tile) =>
      this.store.set({ selection: { kind: "line", file: tile.file, line: tile.line, bodies: this.bodies(tile) } });
    const map = new MemoryMap(space, program.bodies[space.body], ranks, pick);
    this.maps.push(map);
    const close = element("input", { type: "checkbox", "aria-label": `Zoom ${space.space} to what is used` });
    close.addEventListener("change", () => {
      map.close = close.checked;
      map.draw();
      this.mark(this.store.state);
    });
    const which = space.bodies > 1 ? `, the fullest of ${space.bodies} bodies` : "";
    const table = sortable(space.columns, space.tiles, {
      dots: { name: (/** @type {any} */ tile) => seriesColor(ranks.get(tile.name) ?? 0) },
      picked: (/** @type {any} */ tile) => (tile === null ? this.store.set({ selection: null }) : pick(tile)),
    });
    return element(
      "section.space",
      element(
        "h2",
        `${space.space} of the ${space.core}: ${whole(space.used)} of ${whole(space.limit)} B, ${percent(space.used / space.limit)}${which}`,
      ),
      element(
        "div.tools",
        element("label", close, " zoom to what is used"),
        space.reserved ? element("span.soft", space.ring) : null,
      ),
      map.box,
      space.shallow.length
        ? element("ul.notes", ...space.shallow.map((/** @type {string} */ line) => element("li", line)))
        : null,
      element("details", element("summary", `${whole(space.tiles.length)} tiles as a table`), table),
    );
  }

  /** The kinds of blocks of a tile's line, where the source panel knows them. @param {any} tile */
  bodies(tile) {
    return (
      this.store
        .run()
        ?.panels.source?.lines.find((/** @type {any} */ line) => line.file === tile.file && line.line === tile.line)
        ?.bodies ?? []
    );
  }

  /** The function that a selected slice or kernel runs. @param {any} state */
  follow(state) {
    const { selection } = state,
      kernel = selection?.kind === "slice" || selection?.kind === "kernel" ? selection.kernel : null;
    const entry =
      kernel === null
        ? undefined
        : this.entries.find((/** @type {any} */ one) =>
            one.made.spaces.some(
              (/** @type {any} */ space) => space.row.launched_as === kernel || space.row.kernel === kernel,
            ),
          );
    const at = selection?.kind === "line" ? selection : null;
    const made = (/** @type {any} */ entry) =>
      entry.made.spaces.some((/** @type {any} */ space) =>
        space.tiles.some((/** @type {any} */ tile) => tile.file === at.file && tile.line === at.line),
      );
    const now = this.entries.find((/** @type {any} */ one) => one.id === this.now);
    const lined = at === null || (now && made(now)) ? undefined : this.entries.find(made);
    if (entry ?? lined) this.show((entry ?? lined).id);
    this.mark(state);
  }

  /** @param {any} state */
  mark(state) {
    const { selection } = state;
    for (const map of this.maps) map.markLine(selection?.kind === "line" ? selection : null);
  }

  destroy() {
    hideTip();
    for (const map of this.maps) map.destroy();
    this.maps.length = 0;
  }
}

/** @param {any} program */
function verdict(program) {
  const over = program.functions
    .flatMap((/** @type {any} */ made) => made.spaces)
    .filter((/** @type {any} */ space) => space.used > space.limit).length;
  const many = program.functions.length === 1 ? "1 function" : `${whole(program.functions.length)} functions`;
  const verdict = over ? `${over === 1 ? "1 memory is" : `${over} memories are`} too small` : "everything fits";
  const lines = program.errors.map((/** @type {any} */ error) =>
    element("li", `${error.place}: ${error.message}. ${error.remedy}`),
  );
  return element(
    "section",
    element("p.verdict", `${program.name}: ${many}, ${verdict}`),
    lines.length ? element("ul.errors", ...lines) : null,
  );
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "memory",
  title: "Memory",
  group: "program",
  has: (/** @type {any} */ run, /** @type {any} */ state) => Boolean(state.shared.memory ?? run?.panels.memory),
  /** @param {HTMLElement} box @param {any} store */
  mount(box, store) {
    const made = new Memory(box, store, store.run()?.panels.memory ?? store.state.shared.memory);
    let before = store.state.selection;
    return {
      maps: made.maps,
      update: (/** @type {any} */ state) => {
        if (state.selection !== before) {
          before = state.selection;
          made.follow(state);
        }
      },
      destroy: () => made.destroy(),
    };
  },
};
