// The sections of a page, each from the same JSON that `npuscope report --json` prints.

import { element, micros, percent, whole, time } from "./format.js";
import { kernelColor, reasonColor } from "./colors.js";
import { Swimlane } from "./swimlane.js";
import { bars, heatMap, strip, waterfall } from "./charts.js";
import { sortable } from "./table.js";

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
  const onPath = new Map(side.report.critical_path.kernels.map(row => [row.name, row.path_ns]));
  const area = new Map(side.report.fan_out.kernels.map(row => [row.kernel, row.area]));
  const rank = new Map(side.timeline.kernels.map((name, i) => [name, side.timeline.ranks[i]]));
  const rows = side.report.kernels.map(row => ({ ...row, area: area.get(row.name), path_ns: onPath.get(row.name) ?? 0 }));
  return sortable([
    { key: "name", title: "kernel", show: "text", dot: row => kernelColor(rank.get(row.name) ?? 0) },
    { key: "area", title: "area", show: "text" },
    { key: "count", title: "count", show: "count" },
    { key: "core_ns", title: "core µs", show: "ns" },
    { key: "share", title: "share", show: "share" },
    { key: "on_core_ns", title: "on-core µs", show: "ns" },
    { key: "mean_ns", title: "mean µs", show: "ns" },
    { key: "p50_ns", title: "p50 µs", show: "ns" },
    { key: "p95_ns", title: "p95 µs", show: "ns" },
    { key: "path_ns", title: side.timeline.chain ? "on the path µs" : "on the cover µs", show: "ns" },
  ], rows, { sorted: "core_ns", picked: row => {
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

export function blockers(report) {
  const columns = [
    { key: "reason", title: "reason", show: "text", dot: row => reasonColor(row.reason) },
    { key: "kernel", title: "kernel that waited", show: "text" },
    { key: "blocker", title: "for", show: "text" },
    { key: "idle_ns", title: "idle µs", show: "ns" },
    { key: "pieces", title: "stretches", show: "count" },
  ];
  return element("div", {}, sortable(columns, report.blockers));
}

export function scheduling(report) {
  const s = report.scheduling;
  const facts = [
    ["tasks", whole(s.tasks)], ["launches", whole(s.launches)], ["one task per", `${micros(report.window_ns / Math.max(s.tasks, 1))} µs`],
    ["dispatch → start", `${micros(s.mean_dispatch_to_start_ns)} µs`], ["start → end", `${micros(s.mean_run_ns)} µs`],
    ["end → finish", `${micros(s.mean_end_to_finish_ns)} µs`], ["dispatch → finish", `${micros(s.mean_dispatch_to_finish_ns)} µs`],
    ["overhead", percent(s.overhead)], ["in flight", s.in_flight === null ? "–" : `${s.in_flight.toFixed(2)} on ${s.cores} cores`],
  ];
  const table = element("table", {}, element("tbody", {}, ...facts.map(([name, value]) =>
    element("tr", {}, element("td", {}, name), element("td", { class: "number" }, value)))));
  const threads = s.threads.length ? sortable([
    { key: "thread", title: "thread", show: "text" }, { key: "role", title: "role", show: "text" }, { key: "phase", title: "phase", show: "text" },
    { key: "count", title: "count", show: "count" }, { key: "self_ns", title: "self µs", show: "ns" }, { key: "share", title: "of window", show: "share" },
  ], s.threads) : null;
  const spmd = s.spmd.length ? sortable([
    { key: "kernel", title: "SPMD kernel", show: "text" }, { key: "launches", title: "launches", show: "count" }, { key: "blocks", title: "blocks", show: "number" },
    { key: "width", title: "cores", show: "number" }, { key: "waves", title: "waves", show: "number" }, { key: "tail_ns", title: "tail µs", show: "ns" },
    { key: "tail_share", title: "tail", show: "share" }, { key: "efficiency", title: "efficiency", show: "share" },
  ], s.spmd) : null;
  return element("div", { class: "two" }, element("div", {}, table), element("div", {}, threads, spmd));
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
  const p = side.report.critical_path, chain = p.kind === "chain";
  const rows = p.kernels.map(row => ({ ...row, what: row.name }));
  for (const [reason, ns] of Object.entries(p.bound.reasons)) rows.push({ what: `wait: ${reason}`, segments: null, path_ns: ns, share: ns / Math.max(p.window_ns, 1) });
  return element("div", {}, strip(side.timeline), element("p", { class: "soft" }, chain ? "runs above, waits below. If a kernel or a reason cost nothing, the end could fall by its time on the path at most." : "runs above, waits below. At each moment one running slice counts, compute before communication before copies."),
    sortable([
      { key: "what", title: "kernel or wait", show: "text" }, { key: "segments", title: "segments", show: "count" },
      { key: "path_ns", title: chain ? "can fall by at most µs" : "of the cover µs", show: "ns" }, { key: "share", title: "of window", show: "share" },
    ], rows, { sorted: "path_ns" }));
}

export function steps(report) {
  if (report.steps.table.length === 0) return null;
  const rows = report.steps.table.map(row => ({ ...row, odd: row.outlier ? "outlier" : "" }));
  return sortable([
    { key: "step", title: "step", show: "text" }, { key: "span_ns", title: "span µs", show: "ns" }, { key: "slices", title: "slices", show: "count" },
    { key: "core_ns", title: "core µs", show: "ns" }, { key: "on_core_ns", title: "on-core µs", show: "ns" }, { key: "odd", title: "", show: "text" },
  ], rows);
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
    sortable([
      { key: "kernel", title: "kernel", show: "text" }, { key: "tasks_ns", title: "tasks µs", show: "ns" }, { key: "size_ns", title: "size µs", show: "ns" },
      { key: "speed_ns", title: "speed µs", show: "ns" }, { key: "place_ns", title: "onto/off path µs", show: "ns" },
    ], comparison.waterfall_kernels));
}

export function gaps(comparison) {
  const rows = Object.entries(comparison.totals).map(([metric, [a, b]]) => ({ metric: metric.replace("_ns", "").replace("_", "-"), a, b, gap: b - a, ratio: a ? b / a : null }));
  return sortable([
    { key: "metric", title: "metric", show: "text" }, { key: "a", title: "A µs", show: "ns" }, { key: "b", title: "B µs", show: "ns" },
    { key: "gap", title: "gap µs", show: "ns" }, { key: "ratio", title: "B / A", show: "ratio" },
  ], rows);
}

export function comparedKernels(comparison) {
  return sortable([
    { key: "name", title: "kernel", show: "text" }, { key: "rule", title: "matched by", show: "text" },
    { key: "count_a", title: "count A", show: "count" }, { key: "count_b", title: "count B", show: "count" },
    { key: "core_a_ns", title: "core A µs", show: "ns" }, { key: "core_b_ns", title: "core B µs", show: "ns" },
    { key: "on_core_a_ns", title: "on-core A µs", show: "ns" }, { key: "on_core_b_ns", title: "on-core B µs", show: "ns" },
    { key: "mean_a_ns", title: "mean A µs", show: "ns" }, { key: "mean_b_ns", title: "mean B µs", show: "ns" },
    { key: "gap_ns", title: "gap µs", show: "ns" }, { key: "ratio", title: "B / A", show: "ratio" },
  ], comparison.kernels);
}
