// A run's report: what it was busy with, where the time went, who waited for whom, as `npuscope report` has it.

import { duration, element, percent, whole } from "../format.js";
import { kernelColors, reasonColor } from "../colors.js";
import { stacked } from "../chart/stacked.js";
import { strip } from "../chart/strip.js";
import { facts, sortable } from "../table.js";

/** @type {Record<string, string>} */
const STEPS = { column: "Steps", passes: "Forward passes" };

/** @param {string} title @param {(Node | null)[]} children */
export function titled(title, ...children) {
  return element("section", element("h2", title), ...children);
}

/** @param {string[]} lines */
export function notes(lines) {
  return lines.length ? element("ul.notes", ...lines.map((line) => element("li", line))) : null;
}

/** @param {number} count */
function lanes(count) {
  return count === 1 ? "1 lane" : `${whole(count)} lanes`;
}

/** @param {string} value @param {string} what */
function tile(value, what) {
  return element("div.tile", element("b", value), element("span", what));
}

/** Sentences and tables that a command adds. @param {any} section */
export function said(section) {
  return titled(
    section.title,
    notes(section.notes),
    ...section.tables.map((/** @type {any} */ table) => sortable(table.columns, table.rows)),
  );
}

/** @param {any} report */
function tiles(report) {
  const s = report.scheduling,
    units = Object.entries(report.units);
  return element(
    "div.tiles",
    tile(duration(report.window_ns), "window"),
    tile(percent(report.on_core_ns / Math.max(report.window_ns, 1)), "of it with any work running"),
    ...units.map(([unit, u]) =>
      tile(percent(u.busy_ns / Math.max(u.busy_ns + u.idle_ns, 1)), `${unit} busy, ${lanes(u.lanes)}`),
    ),
    tile(whole(s.tasks), "tasks"),
    s.mean_run_ns === null ? null : tile(duration(s.mean_run_ns), "mean run"),
    s.overhead === null ? null : tile(percent(s.overhead), "of dispatch → finish is not run"),
    s.in_flight === null ? null : tile(s.in_flight.toFixed(1), `tasks in flight on ${s.cores} cores`),
    report.communication === null ? null : tile(duration(report.communication.exposed_ns), "exposed communication"),
    report.copies === null ? null : tile(duration(report.copies.exposed_ns), "exposed copies"),
  );
}

/** @param {any} side */
function ledger(side) {
  const { report } = side,
    rows = report.scheduling.ledger,
    titles = new Map(side.timeline.reasons.map((/** @type {any} */ reason) => [reason.id, reason.title]));
  const draw = (/** @type {string} */ key, /** @type {string} */ share) =>
    stacked(
      rows
        .filter((/** @type {any} */ row) => row[key] > 0)
        .map((/** @type {any} */ row) => ({
          label: titles.get(row.part) ?? (row.part === "run" ? "running" : row.part),
          value: row[key],
          text: `${duration(row[key])}, ${percent(row[share])}`,
          color: reasonColor(row.part),
        })),
    );
  return element(
    "div.two",
    element("div", element("p.soft", `all cores × window, ${report.scheduling.cores} lanes`), draw("core_ns", "share")),
    element(
      "div",
      element(
        "p.soft",
        report.critical_path.kind === "chain" ? "along the critical path" : "along the cover of the timeline",
      ),
      draw("path_ns", "path_share"),
    ),
  );
}

/** @param {any} side */
function blockers(side) {
  return sortable(side.columns["report.blockers"], side.report.blockers, {
    dots: { reason: (row) => reasonColor(row.reason) },
  });
}

/** @param {any} side */
function scheduling(side) {
  const s = side.report.scheduling,
    columns = side.columns;
  const tables = ["threads", "spmd"]
    .filter((name) => s[name].length)
    .map((name) => sortable(columns[`report.scheduling.${name}`], s[name]));
  return element("div.two", element("div", facts(columns["report.scheduling"], s)), element("div", ...tables));
}

/** @param {any} side */
function fanOut(side) {
  const { areas, kernels } = side.report.fan_out;
  const colors = kernelColors(side.timeline).byName;
  return stacked(
    areas.map((/** @type {any} */ area) => ({
      label: area.area,
      value: area.tasks,
      text: `${whole(area.tasks)} tasks, ${percent(area.share)}`,
      parts: kernels
        .filter((/** @type {any} */ row) => row.area === area.area)
        .map((/** @type {any} */ row) => ({
          value: row.tasks,
          color: colors.get(row.kernel) ?? "",
          label: `${row.kernel}: ${whole(row.tasks)} tasks, ${whole(row.blocks)} blocks`,
        })),
    })),
    { width: 700 },
  );
}

/** @param {any} side */
function path(side) {
  const p = side.report.critical_path;
  const text =
    p.kind === "chain"
      ? "runs above, waits below. If a kernel or a reason cost nothing, the end could fall by its time on the path at most."
      : "runs above, waits below. At each moment one running slice counts, compute before communication before copies.";
  return element(
    "div",
    strip(side.timeline),
    element("p.soft", text),
    sortable(side.columns["report.critical_path.table"], p.table),
  );
}

/** @param {any} side */
function steps(side) {
  const { table } = side.report.steps;
  return table.length === 0 ? null : sortable(side.columns["report.steps.table"], table);
}

/** @param {any} found */
export function overlap(found) {
  const rows = Object.entries(found.units).map(([unit, u]) => ({
    label: `${unit}, ${lanes(u.lanes)}`,
    value: u.run_ns + u.hidden_ns + u.exposed_ns,
    text: `${duration(u.exposed_ns)} exposed`,
    parts: [
      { value: u.run_ns, color: "#3f7fd0", label: `running ${duration(u.run_ns)}` },
      { value: u.hidden_ns, color: "#3fa35b", label: `other kernels ran: hidden ${duration(u.hidden_ns)}` },
      { value: u.exposed_ns, color: "#c9504b", label: `idle: exposed ${duration(u.exposed_ns)}` },
    ],
  }));
  const p = found.ping_pong;
  return element(
    "div",
    element(
      "p",
      `in progress for ${duration(found.episode_ns)}, running on some core for ${duration(found.on_core_ns)} of it; other kernels covered ${percent(found.hidden_share)} of their waiting`,
    ),
    element(
      "div.legend",
      ...[
        ["#3f7fd0", "own run"],
        ["#3fa35b", "hidden: other kernels ran"],
        ["#c9504b", "exposed: idle"],
      ].map(([color, text]) => element("span", element("span.dot", { style: `background:${color}` }), text)),
    ),
    stacked(rows),
    p === null
      ? null
      : element(
          "p.soft",
          `AIC alone ${duration(p.aic_alone_ns)}, AIV alone ${duration(p.aiv_alone_ns)}, both ${duration(p.both_ns)}, neither ${duration(p.neither_ns)}; ${whole(p.switches)} switches; longest serial stretch ${duration(p.longest_ns)}`,
        ),
    notes(found.notes),
  );
}

/** @param {any} side @param {import("../types").Store} store */
function kernelTable(side, store) {
  const colors = kernelColors(side.timeline).byName;
  return sortable(side.columns["report.kernels"], side.report.kernels, {
    sorted: "core_ns",
    dots: { name: (row) => colors.get(row.name) ?? "" },
    picked: (row) => store.set({ selection: row === null ? null : { kind: "kernel", kernel: row.name } }),
  });
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "overview",
  title: "Report",
  group: "run",
  has: (run) => run?.panels.overview !== undefined,
  mount(box, store) {
    const run = store.run(),
      side = { ...run.panels.overview, timeline: run.timeline },
      { report } = side,
      marked = steps(side);
    box.append(
      ...[
        ...side.first.map(said),
        tiles(report),
        notes(report.notes),
        titled("Where the core time went", ledger(side)),
        report.overlap === null
          ? null
          : titled(`Hidden and exposed: ${report.overlap.kernels.join(", ")}`, overlap(report.overlap)),
        titled("Kernels", kernelTable(side, store)),
        titled("Who waited for whom", blockers(side)),
        titled(report.critical_path.kind === "chain" ? "Critical path" : "Cover of the timeline", path(side)),
        titled("Scheduling", scheduling(side)),
        titled("Fan-out: tasks by area", fanOut(side)),
        marked === null ? null : titled(STEPS[report.steps.source] ?? "Steps, found by repetition", marked),
      ].filter((part) => part !== null),
    );
    return {};
  },
};
