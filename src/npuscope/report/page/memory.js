// The page of `npuscope memory`: every function's share of each memory, and the map of the chosen one.

import { element, percent, whole } from "./format.js";
import { kernelColor } from "./colors.js";
import { sortable } from "./table.js";
import { themeButton } from "./theme.js";
import { MemoryMap, rankTiles, Tip } from "./memory_map.js";

const data = JSON.parse(document.getElementById("data").textContent);
const entries = data.programs.flatMap((program, n) => program.functions.map(made => ({ program, made, id: data.programs.length > 1 ? `${n}/${made.name}` : made.name })));
const fullest = spaces => Math.max(0, ...spaces.map(space => space.used / space.limit));
const tip = new Tip();
const maps = [];

function verdict(program) {
  const over = program.functions.flatMap(made => made.spaces).filter(space => space.used > space.limit).length;
  const many = program.functions.length === 1 ? "1 function" : `${whole(program.functions.length)} functions`;
  const told = over ? `${over === 1 ? "1 memory is" : `${over} memories are`} too small` : "everything fits";
  const lines = program.errors.map(error => element("li", {}, `${error.place}: ${error.message}. ${error.fix}`));
  return element("section", {}, element("p", { class: "verdict" }, `${program.name}: ${many}, ${told}`), lines.length ? element("ul", { class: "errors" }, ...lines) : null);
}

function overview() {
  const rows = entries.flatMap(entry => entry.made.spaces.map(space => ({ entry, ...space.row })));
  return sortable(data.columns, rows, { sorted: "share", picked: row => { if (row !== null) choose(row.entry.id); } });
}

function panel(space, program, ranks) {
  const map = new MemoryMap(space, program.bodies[space.body], ranks, tip);
  maps.push(map);
  const close = element("input", { type: "checkbox", "aria-label": `Zoom ${space.space} to what is used` });
  close.addEventListener("change", () => { map.close = close.checked; map.draw(); });
  const which = space.bodies > 1 ? `, the fullest of ${space.bodies} bodies` : "";
  const table = sortable(space.columns, space.tiles, { dots: { name: tile => kernelColor(ranks.get(tile.name)) } });
  return element("section", { class: "panel" },
    element("h2", {}, `${space.space} of the ${space.core}: ${whole(space.used)} of ${whole(space.limit)} B, ${percent(space.used / space.limit)}${which}`),
    element("div", { class: "tools" }, element("label", {}, close, " zoom to what is used"), space.reserved ? element("span", { class: "soft" }, space.ring) : null),
    map.box,
    space.shallow.length ? element("ul", { class: "notes" }, ...space.shallow.map(line => element("li", {}, line))) : null,
    element("details", {}, element("summary", {}, `${whole(space.tiles.length)} tiles as a table`), table));
}

const picker = element("select", { id: "function", "aria-label": "Function" }, ...entries.map(entry => {
  const share = fullest(entry.made.spaces);
  return element("option", { value: entry.id }, `${entry.id} (${percent(share)}${share > 1 ? ", does not fit" : ""})`);
}));
const chosen = element("div", { id: "chosen" });

function show(id) {
  const entry = entries.find(one => one.id === id) ?? entries.reduce((a, b) => (fullest(b.made.spaces) > fullest(a.made.spaces) ? b : a));
  maps.length = 0;
  tip.hide();
  picker.value = entry.id;
  const ranks = rankTiles(entry.made.spaces);
  chosen.replaceChildren(...entry.made.spaces.map(space => panel(space, entry.program, ranks)));
  for (const map of maps) map.draw();
}

function choose(id) {
  const wanted = `#${encodeURIComponent(id)}`;
  if (location.hash === wanted) show(id);
  else location.hash = wanted;
}

const asked = () => { try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; } };
picker.addEventListener("change", () => choose(picker.value));
addEventListener("hashchange", () => show(asked()));
addEventListener("scroll", () => tip.place(), { passive: true });
document.title = `${data.title} · npuscope`;
document.getElementById("page").append(
  element("header", {}, element("h1", {}, data.title), element("span", { class: "soft" }, data.subtitle), element("span", { class: "grow" }), themeButton(() => {})),
  ...data.programs.map(verdict),
  ...(entries.length ? [overview(), element("div", { class: "tools" }, element("label", {}, "function ", picker),
    element("span", { class: "soft" }, "address upward, instructions to the right; hover or Tab to a tile, arrow keys go on")), chosen] : []),
  tip.box);
if (entries.length) show(asked());
globalThis.npuscope = { data, maps };
document.documentElement.dataset.ready = "true";
