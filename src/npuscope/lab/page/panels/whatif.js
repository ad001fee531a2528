// What a change would buy: every change alone in a table, and one that the reader asks for where a server can try it.

import { element, fill } from "../format.js";
import { partsOf } from "../parts.js";

/** What can be asked: its name, how many kernels it takes, what number. @type {[string, string, number, string][]} */
const CHANGES = [
  ["scale", "a kernel takes this part of its time", 1, "0.5"],
  ["remove", "a kernel is not there", 1, ""],
  ["halve", "a kernel has half as many tasks, each with the work of two", 1, ""],
  ["merge", "two kernels become one task", 2, ""],
  ["scheduler", "every wait for the scheduler takes this part of its time", 0, "0.5"],
  ["cores", "another number of cores", 0, ""],
];

/** Answers to what a reader asked of a run, the newest first. @type {WeakMap<import("../types").Run, any[]>} */
const kept = new WeakMap();

/** Marks the slices of a kernel, or the line of a finding. @param {import("../types").Store} store */
const pick = (store) => (/** @type {any} */ row) => {
  const { timeline, panels } = store.run(),
    kind = row?.kind?.text,
    what = String(row?.what?.value ?? "");
  if (kind === "kernel" && timeline.kernels.includes(what))
    return store.set({ selection: { kind: "kernel", kernel: what } });
  const [, file, line] = what.match(/ (\S+):(\d+) /) ?? [],
    name = panels.source?.files.find(
      (/** @type {any} */ one) =>
        file && (one.name === file || one.name.endsWith(`/${file}`) || file.endsWith(`/${one.name}`)),
    )?.name;
  return store.set({ selection: kind === "finding" && name ? { kind: "line", file: name, line: Number(line) } : null });
};

/** The form that asks for a change. @param {import("../types").Run} run @param {(change: any) => void} ask */
function form(run, ask) {
  const { timeline } = run,
    kernels = timeline.kernels.slice(0, timeline.device_kernels),
    units = [
      ...new Set(timeline.core_lanes.map((lane) => timeline.lanes.find((one) => one.lane === lane)?.unit ?? "")),
    ].filter(Boolean);
  const choose = (/** @type {string} */ label, /** @type {string[]} */ names) =>
    element("select", { "aria-label": label }, ...names.map((name) => element("option", { value: name }, name)));
  const what = element(
    "select",
    { "aria-label": "Change" },
    ...CHANGES.map(([id, words]) => element("option", { value: id }, words)),
  );
  const first = choose("Kernel", kernels),
    second = choose("Second kernel", kernels),
    unit = choose("Unit", units),
    factor = element("input", { "aria-label": "Number", size: "6", inputmode: "decimal" });
  const show = () => {
    const [id, , count, number] = /** @type {[string, string, number, string]} */ (
      CHANGES.find(([one]) => one === what.value)
    );
    first.hidden = count < 1;
    second.hidden = count < 2;
    unit.hidden = id !== "cores";
    factor.hidden = number === "" && id !== "cores";
    factor.value =
      id === "cores"
        ? String(
            timeline.core_lanes.filter((lane) => timeline.lanes.find((one) => one.lane === lane)?.unit === unit.value)
              .length,
          )
        : number;
  };
  what.addEventListener("change", show);
  unit.addEventListener("change", show);
  show();
  const box = element(
    "form.tools.whatif",
    element("label", "What if ", what),
    first,
    second,
    unit,
    factor,
    element("button", "ask"),
  );
  box.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    const taken = [first, second].filter((one) => !one.hidden).map((one) => one.value),
      number = factor.hidden ? 1 : Number(factor.value);
    ask({
      what: what.value,
      kernels: taken,
      factor: (Number.isFinite(number) && factor.value.trim() !== "") || factor.hidden ? number : factor.value,
      unit: unit.value,
    });
  });
  return box;
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "whatif",
  title: "What if",
  group: "try",
  has: (run, state) =>
    Boolean(state.shared.whatif ?? run?.panels.whatif) || (state.live?.ask !== undefined && run !== undefined),
  mount(box, store) {
    const run = store.run(),
      ask = store.state.live?.ask,
      answers = element("div"),
      every = element("div.parts", { "data-panel": "whatif" }),
      status = element("p.soft", { role: "status" });
    const table = () => {
      const found = store.state.shared.whatif ?? run?.panels.whatif;
      fill(every, ...(found ? partsOf(found.parts, run ? pick(store) : null) : []));
    };
    /** @param {any} change @param {(found: any) => void} show */
    const asked = async (change, show) => {
      status.textContent = "trying …";
      try {
        show(await ask?.panel(run.id, "whatif", change));
        status.textContent = "";
      } catch (error) {
        status.textContent = /** @type {Error} */ (error).message;
      }
    };
    const draw = () =>
      fill(answers, ...(kept.get(run) ?? []).map((found) => element("section.answer", ...partsOf(found.parts))));
    const all = element(
      "button",
      {
        onclick: () =>
          asked({}, (found) => {
            run.panels.whatif = found;
            table();
            all.hidden = true;
          }),
      },
      "try every change, each alone",
    );
    all.hidden = Boolean(run?.panels.whatif);
    if (ask)
      box.append(
        element(
          "p.soft",
          run.measured
            ? "The capture's tasks are replayed with the change."
            : "Every change is simulated; one that you ask for is replayed in the simulated run.",
        ),
        form(run, (change) =>
          asked(change, (found) => {
            kept.set(run, [found, ...(kept.get(run) ?? [])]);
            draw();
          }),
        ),
        element("p.tools", all),
        status,
      );
    box.append(answers, every);
    table();
    if (run) draw();
    return {};
  },
};
