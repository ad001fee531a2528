// Puts a page together: one trace explained, or two side by side on one time axis.

import { element } from "./format.js";
import { readData } from "./decode.js";
import { blockers, comparedKernels, fanOut, gapWaterfall, gaps, heat, kernelTable, ledger, overlap, path, remarks, said, scheduling, steps, tiles, timeline, timelineTools, titled } from "./sections.js";
import { sortable } from "./table.js";
import { themeButton } from "./theme.js";

function heading(data, repaint) {
  const links = data.links.map(([text, address]) => element("a", { href: address }, text));
  return element("header", {}, element("h1", {}, data.title), element("span", { class: "soft" }, data.subtitle), element("span", { class: "grow" }), ...links, themeButton(repaint));
}

function onePage(side, swimlanes) {
  const { report } = side;
  const lanes = timeline(side, swimlanes);
  const marked = steps(side);
  return [
    element("p", { class: "verdict", id: "verdict" }, report.verdict),
    tiles(report),
    remarks(report),
    titled("Timeline", timelineTools(swimlanes), lanes),
    titled("Utilisation of every lane", heat(side)),
    titled("Where the core time went", ledger(report)),
    report.overlap === null ? null : titled(`Hidden and exposed: ${report.overlap.kernels.join(", ")}`, overlap(report.overlap)),
    titled("Kernels", kernelTable(side)),
    titled("Who waited for whom", blockers(side)),
    titled(report.critical_path.kind === "chain" ? "Critical path" : "Cover of the timeline", path(side)),
    titled("Scheduling", scheduling(side)),
    titled("Fan-out: tasks by area", fanOut(side)),
    marked === null ? null : titled(report.steps.source === "column" ? "Steps" : "Steps, found by repetition", marked),
  ];
}

// All ranks in a table, and below it the page of the one that is chosen.
function ranksPage(data, swimlanes) {
  const { ranks } = data, place = element("div", { id: "rank" });
  const buttons = data.sides.map((side, n) => element("button", { "aria-pressed": "false", onclick: () => show(n) }, side.name));
  const show = n => {
    swimlanes.length = 0;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === n)));
    place.replaceChildren(...onePage(data.sides[n], swimlanes).filter(part => part !== null));
  };
  show(0);
  return [
    element("p", { class: "verdict", id: "all" }, ranks.verdict),
    element("p", {}, ranks.waits_told),
    titled(`All ${ranks.what}, each explained alone`, sortable(ranks.columns["report.ranks.table"], ranks.table)),
    ranks.waits.length === 0 ? null : titled("Who waits for whom", sortable(ranks.columns["report.waits.table"], ranks.waits)),
    element("div", { class: "tools", role: "group", "aria-label": "Rank shown below" }, ...buttons),
    place,
  ];
}

function comparePage(data, swimlanes) {
  const { comparison } = data, [a, b] = data.sides;
  const left = timeline(a, swimlanes), right = timeline(b, swimlanes);
  const longest = Math.max(a.timeline.window, b.timeline.window, 1);
  swimlanes[0].followers.push(swimlanes[1]);
  swimlanes[1].followers.push(swimlanes[0]);
  for (const lane of swimlanes) lane.setFull([0, longest]);
  const unlike = comparison.not_like_for_like;
  return [
    element("div", { class: "pair" }, ...[a, b].map((side, i) => element("p", { class: "verdict" }, `${"AB"[i]} ${side.name}: ${side.report.verdict}`))),
    titled(comparison.kernels_asked === null ? "Totals" : `Totals of ${comparison.kernels_asked}`, gaps(comparison)),
    titled("Where the gap comes from", gapWaterfall(comparison, [`A ${a.name}`, `B ${b.name}`])),
    unlike.length ? titled("Not like for like", element("ul", {}, ...unlike.map(line => element("li", {}, line)))) : null,
    titled("Timelines on one time axis", timelineTools(swimlanes),
      element("div", { class: "pair" }, element("div", {}, element("b", {}, `A ${a.name}`), left), element("div", {}, element("b", {}, `B ${b.name}`), right))),
    comparison.overlap === null ? null : titled("Hidden and exposed", element("div", { class: "pair" }, ...comparison.overlap.map(found => (found === null ? element("p", { class: "soft" }, "has none of these kernels") : overlap(found))))),
    titled("Kernels", comparedKernels(comparison)),
  ];
}

const data = await readData();
const swimlanes = [];
document.title = `${data.title} · npuscope`;
const repaint = () => { for (const lane of swimlanes) lane.draw(); for (const side of data.sides) side.repaint?.(); };
const alone = data.ranks === null ? () => onePage(data.sides[0], swimlanes) : () => ranksPage(data, swimlanes);
const parts = data.comparison === null ? alone() : comparePage(data, swimlanes);
document.getElementById("page").append(heading(data, repaint), ...data.first.map(said), ...parts.filter(part => part !== null));
globalThis.npuscope = { data, swimlanes };
document.documentElement.dataset.ready = "true";
