// The sections of a page, each from the same JSON that `npuscope report --json` prints.

import { element, micros, percent, whole, time } from "./format.js";
import { kernelColor, reasonColor } from "./colors.js";
import { Swimlane } from "./swimlane.js";
import { bars, heatMap, strip, waterfall } from "./charts.js";
import { facts, sortable } from "./table.js";

export function titled(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

function notes(lines) {
  return lines.length ? element("ul", { class: "notes" }, ...lines.map(line => element("li", {}, line))) : null;
}

function lanes(count) {
  return count === 1 ? "1 lane" : `${whole(count)} lanes`;
}

function tile(value, what) {
  return element("div", { class: "tile" }, element("b", {}, value), element("span", {}, what));
}

// What a command says before what every page has: sentences and tables.
export function said(section) {
  return titled(section.title, notes(section.notes), ...section.tables.map(table => sortable(table.columns, table.rows)));
}

export function remarks(report) {
  return notes(report.notes);
}

export function tiles(report) {
  const s = report.scheduling, units = Object.entries(report.units);
  return element("div", { class: "tiles" },
    tile(time(report.window_ns), "window"),
    tile(percent(report.on_core_ns / Math.max(report.window_ns, 1)), "of it with any work running"),
    ...units.map(([unit, u]) => tile(percent(u.busy_ns / Math.max(u.busy_ns + u.idle_ns, 1)), `${unit} busy, ${lanes(u.lanes)}`)),
    tile(whole(s.tasks), "tasks"),
    s.mean_run_ns === null ? null : tile(time(s.mean_run_ns), "mean run"),
    s.overhead === null ? null : tile(percent(s.overhead), "of dispatch → finish is not run"),
    s.in_flight === null ? null : tile(s.in_flight.toFixed(1), `tasks in flight on ${s.cores} cores`),
    report.communication === null ? null : tile(time(report.communication.exposed_ns), "exposed communication"),
    report.copies === null ? null : tile(time(report.copies.exposed_ns), "exposed copies"));
}

export function timelineTools(swimlanes) {
  const found = element("span", { class: "soft", id: "found" });
  const search = element("input", { type: "search", placeholder: "find a kernel", "aria-label": "Find a kernel", id: "search" });
  search.addEventListener("input", () => {
    const counts = swimlanes.map(lane => lane.search(search.value));
    found.textContent = counts[0] === null ? "" : `${counts.map(whole).join(" and ")} slices`;
  });
  search.addEventListener("keydown", event => { if (event.key === "Enter") swimlanes[0].nextMatch(); });
  const act = (text, what, label) => element("button", { onclick: () => what(swimlanes[0]), "aria-label": label }, text);
  const toggle = (name, key) => {
    const box = element("input", { type: "checkbox", checked: swimlanes[0].shown[key] ? "" : null });
    box.addEventListener("change", () => { for (const lane of swimlanes) { lane.shown[key] = box.checked; lane.draw(); } });
    return element("label", {}, box, ` ${name}`);
  };
  return element("div", { class: "tools" },
    act("+", lane => lane.zoom(0.5), "Zoom in"), act("−", lane => lane.zoom(2), "Zoom out"),
    act("fit", lane => lane.setView(...lane.full), "Show everything"),
    search, found, toggle("idle time by reason", "bubbles"), toggle("path", "path"),
    element("span", { class: "soft" }, "drag to move · Ctrl + wheel or W/S to zoom · A/D to move · double click to zoom to a slice · Esc to see all"));
}

function legend(side) {
  const used = [...new Set(side.timeline.bubbles.reason)].map(number => side.timeline.reasons[number]);
  return element("div", { class: "legend" }, ...used.map(reason =>
    element("span", {}, element("span", { class: "dot", style: `background:${reasonColor(reason)}` }), `idle: ${reason}`)));
}

export function timeline(side, swimlanes) {
  const lane = new Swimlane(side.timeline, side.name);
  swimlanes.push(lane);
  return element("div", {}, lane.box, legend(side), notes(side.timeline.notes));
}

export function heat(side) {
  const map = heatMap(side.timeline);
  side.repaint = map.paint;
  return map.box;
}

export function kernelTable(side) {
  const rank = new Map(side.timeline.kernels.map((name, i) => [name, side.timeline.ranks[i]]));
  return sortable(side.columns["report.kernels"], side.report.kernels, { sorted: "core_ns", dots: { name: row => kernelColor(rank.get(row.name) ?? 0) }, picked: row => {
    const box = document.getElementById("search");
    box.value = row === null ? "" : row.name;
    box.dispatchEvent(new Event("input"));
  } });
}

// Where the core time went: run and every reason; beside it the same along the path.
export function ledger(report) {
  const rows = report.scheduling.ledger;
  const draw = (key, share) => bars(rows.filter(row => row[key] > 0).map(row => ({
    label: row.part, value: row[key], text: `${time(row[key])}, ${percent(row[share])}`, color: reasonColor(row.part),
  })));
  return element("div", { class: "two" },
    element("div", {}, element("p", { class: "soft" }, `all cores × window, ${report.scheduling.cores} lanes`), draw("core_ns", "share")),
    element("div", {}, element("p", { class: "soft" }, report.critical_path.kind === "chain" ? "along the critical path" : "along the cover of the timeline"), draw("path_ns", "path_share")));
}

export function blockers(side) {
  return sortable(side.columns["report.blockers"], side.report.blockers, { dots: { reason: row => reasonColor(row.reason) } });
}

export function scheduling(side) {
  const s = side.report.scheduling, columns = side.columns;
  const tables = ["threads", "spmd"].filter(name => s[name].length).map(name => sortable(columns[`report.scheduling.${name}`], s[name]));
  return element("div", { class: "two" }, element("div", {}, facts(columns["report.scheduling"], s)), element("div", {}, ...tables));
}

export function fanOut(side) {
  const { areas, kernels } = side.report.fan_out;
  const rank = new Map(side.timeline.kernels.map((name, i) => [name, side.timeline.ranks[i]]));
  return bars(areas.map(area => ({
    label: area.area, value: area.tasks, text: `${whole(area.tasks)} tasks, ${percent(area.share)}`,
    parts: kernels.filter(row => row.area === area.area).map(row => ({
      value: row.tasks, color: kernelColor(rank.get(row.kernel) ?? 0), label: `${row.kernel}: ${whole(row.tasks)} tasks, ${whole(row.blocks)} blocks`,
    })),
  })), { width: 700, label: 110 });
}

export function path(side) {
  const p = side.report.critical_path;
  const told = p.kind === "chain" ? "runs above, waits below. If a kernel or a reason cost nothing, the end could fall by its time on the path at most." : "runs above, waits below. At each moment one running slice counts, compute before communication before copies.";
  return element("div", {}, strip(side.timeline), element("p", { class: "soft" }, told), sortable(side.columns["report.critical_path.table"], p.table));
}

export function steps(side) {
  const { table } = side.report.steps;
  return table.length === 0 ? null : sortable(side.columns["report.steps.table"], table);
}

export function overlap(found) {
  const rows = Object.entries(found.units).map(([unit, u]) => ({
    label: `${unit}, ${lanes(u.lanes)}`, value: u.run_ns + u.hidden_ns + u.exposed_ns,
    text: `${time(u.exposed_ns)} exposed`,
    parts: [
      { value: u.run_ns, color: "#3f7fd0", label: `own run ${micros(u.run_ns)} µs` },
      { value: u.hidden_ns, color: "#3fa35b", label: `other kernels ran: hidden ${micros(u.hidden_ns)} µs` },
      { value: u.exposed_ns, color: "#c9504b", label: `idle: exposed ${micros(u.exposed_ns)} µs` },
    ],
  }));
  const p = found.ping_pong;
  return element("div", {},
    element("p", {}, `on-core ${micros(found.on_core_ns)} µs of ${micros(found.episode_ns)} µs under way; ${percent(found.hidden_share)} of its waiting is hidden behind other kernels`),
    element("div", { class: "legend" }, ...[["#3f7fd0", "own run"], ["#3fa35b", "hidden: other kernels ran"], ["#c9504b", "exposed: idle"]].map(([color, text]) =>
      element("span", {}, element("span", { class: "dot", style: `background:${color}` }), text))),
    bars(rows),
    p === null ? null : element("p", { class: "soft" }, `AIC alone ${time(p.aic_alone_ns)}, AIV alone ${time(p.aiv_alone_ns)}, both ${time(p.both_ns)}, neither ${time(p.neither_ns)}; ${whole(p.switches)} switches; longest serial stretch ${time(p.longest_ns)}`),
    notes(found.notes));
}

export function gapWaterfall(comparison, names) {
  const [from, to] = comparison.totals.wall_ns;
  return element("div", { class: "two" },
    waterfall(from, comparison.waterfall.map(bar => ({ label: bar.part, ns: bar.ns })), to, names),
    sortable(comparison.columns["compare.waterfall_kernels"], comparison.waterfall_kernels));
}

export function gaps(comparison) {
  return sortable(comparison.columns["compare.gaps"], comparison.gaps);
}

export function comparedKernels(comparison) {
  return sortable(comparison.columns["compare.kernels"], comparison.kernels);
}
