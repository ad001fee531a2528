// What is selected, in full: a slice with all that is known of it, a range with its totals, a kernel, a task.

import { duration, element, fill, micros, percent, significant, whole } from "./format.js";
import { kernelColors, reasonColor } from "./colors.js";
import { endOf } from "./timeline/overlays.js";
import { counterMean } from "./timeline/counters.js";
import { totalsOf } from "./timeline/totals.js";
import { modelOf } from "./timeline/pane.js";

const MOST = 12; // producers or consumers shown at first
const NO_TIME = -2147483648; // a time that the capture does not tell

export class SelectionBox {
  /** @param {import("./types").Store} store @param {import("./timeline/pane.js").Pane} pane @param {() => void} pin @param {() => string} address */
  constructor(store, pane, pin, address) {
    this.store = store;
    this.pane = pane;
    this.pin = pin;
    this.address = address;
    this.box = element("section.selection", { "aria-label": "Selection", "aria-live": "polite", hidden: "" });
    store.on(["selection", "run", "runs", "rank"], () => this.draw());
    this.draw();
  }

  draw() {
    const { selection } = this.store.state,
      run = this.store.run();
    const parts = selection === null || run === undefined ? [] : this.parts(selection);
    this.box.hidden = parts.length === 0;
    const close = element(
      "button.plain.close",
      {
        "aria-label": "Select nothing (Esc)",
        onclick: () => this.store.set({ selection: null }),
      },
      "×",
    );
    fill(this.box, ...(parts.length ? [close, ...parts, this.acts()] : []));
  }

  acts() {
    const copy = element("button", { title: "The address of this page with what is selected" }, "copy link");
    copy.addEventListener("click", () =>
      navigator.clipboard.writeText(this.address()).then(
        () => (copy.textContent = "copied"),
        () => (copy.textContent = "the address bar has it"),
      ),
    );
    return element("p.tools", copy, element("button", { title: "Pin it (M)", onclick: this.pin }, "pin"));
  }

  /** @param {import("./types").Selection} selection @returns {(Node | null)[]} */
  parts(selection) {
    if (selection.kind === "slice") return this.slice(selection);
    if (selection.kind === "range") return this.range(selection.start, selection.end);
    if (selection.kind === "kernel") return this.kernel(selection.kernel);
    if (selection.kind === "line")
      return [
        element("h2", `${selection.file.split("/").at(-1)}:${selection.line}`),
        element("p.soft", "The slices of this line are marked."),
      ];
    if (selection.kind === "task") return this.task(selection.task);
    return [];
  }

  /** @param {[string, string | Node | null][]} rows */
  facts(rows) {
    return element(
      "dl.facts",
      ...rows
        .filter(([, value]) => value !== null && value !== "")
        .flatMap(([name, value]) => [element("dt", name), element("dd", value)]),
    );
  }

  /** @param {import("./types").Selection & {kind: "slice"}} selection */
  slice(selection) {
    const run = this.store.find(selection.run);
    if (run === null) return [];
    const model = modelOf(run),
      { slices, timeline } = model,
      i = selection.slice,
      row = model.rowOf(i),
      place = slices.task[i];
    const waited = (/** @type {import("./types").Column | undefined} */ column) =>
      column === undefined || column[i] === NO_TIME ? null : `${micros(column[i])} µs`;
    const facts = timeline.facts.flatMap((fact) => opened(fact.name, factTold(fact, i)));
    const counters = timeline.counters
      .filter((counter) => counter.most !== 0)
      .map(
        (counter) =>
          /** @type {[string, string | null]} */ ([
            counter.name,
            mean(counter, slices.start[i], slices.start[i] + slices.dur[i]),
          ]),
      );
    const source =
      selection.file === null
        ? null
        : element(
            "button.plain.source",
            { onclick: () => this.toSource(selection) },
            `${selection.file.split("/").at(-1)}:${selection.line}`,
          );
    const many = slices.drawn && slices.drawn[i] > 1;
    return [
      element(
        "h2",
        element("span.dot", { style: `background:${kernelColors(timeline).all[slices.kernel[i]]}` }),
        element(
          "button.plain.name",
          {
            title: "Mark all slices of this kernel",
            onclick: () => this.store.set({ selection: { kind: "kernel", kernel: selection.kernel } }),
          },
          selection.kernel,
        ),
      ),
      this.facts([
        ["lane", model.laneOf(row).name],
        ["runs", `${micros(slices.dur[i])} µs`],
        ["from", `${micros(slices.start[i])} µs`],
        ["to", `${micros(slices.start[i] + slices.dur[i])} µs`],
        ["handed out → start", waited(slices.before)],
        ["end → seen", waited(slices.after)],
        ["stands for", many ? `${whole(slices.drawn?.[i])} short slices` : null],
        ["task", selection.task === null ? null : String(selection.task)],
        ["block", selection.block === null ? null : String(selection.block)],
        ["source line", source],
      ]),
      ...(place < 0
        ? []
        : [
            this.others("producers", "Waited for", model, place),
            this.others("consumers", "Waits for it", model, place),
          ]),
      facts.some(([, value]) => value !== null)
        ? element("details", { open: "" }, element("summary", "Arguments and counters"), this.facts(facts))
        : null,
      counters.some(([, value]) => value !== null)
        ? element("details", { open: "" }, element("summary", "Meanwhile, on average"), this.facts(counters))
        : null,
    ];
  }

  /** @param {import("./types").Selection & {kind: "slice"}} selection */
  toSource(selection) {
    if (selection.file !== null && selection.line !== null)
      this.store.set({ panel: "source", selection: { kind: "line", file: selection.file, line: selection.line } });
  }

  /** The slices at the other ends of edges, as buttons. @param {"producers" | "consumers"} side @param {string} title @param {import("./timeline/model.js").Model} model @param {number} task */
  others(side, title, model, task) {
    const found = model[side](task),
      { start, dur } = model.slices,
      all = element("ul", { class: `ends ${side}` });
    if (found.length === 0) return null;
    const item = (/** @type {{task: number, kind: string}} */ one) => {
      const slice = endOf(model, one.task, side === "producers");
      const name =
        slice < 0
          ? `task ${model.timeline.tasks[one.task]}, which did not run`
          : `${model.name(slice)}, ${duration(dur[slice])} at ${duration(start[slice])}`;
      return element(
        "li",
        slice < 0
          ? name
          : element(
              "button.plain",
              {
                title: `task ${model.timeline.tasks[one.task]}, ${one.kind}`,
                onclick: () => this.to(model, slice),
              },
              name,
            ),
      );
    };
    const list = (/** @type {number} */ most) =>
      all.replaceChildren(
        ...found.slice(0, most).map(item),
        ...(found.length > most
          ? [
              element(
                "li",
                element("button.plain", { onclick: () => list(Infinity) }, `… and ${whole(found.length - most)} more`),
              ),
            ]
          : []),
      );
    list(MOST);
    return element("div", element("h3", `${title} (${whole(found.length)})`), all);
  }

  /** @param {import("./timeline/model.js").Model} model @param {number} slice */
  to(model, slice) {
    const view = this.pane.views.find((one) => one.model === model);
    if (view) this.pane.choose(view, slice);
  }

  /** To a producer or a consumer by the keyboard. @param {"producers" | "consumers"} side */
  follow(side) {
    const { selection, runs } = this.store.state;
    const run = selection?.kind === "slice" ? runs.find((one) => one.id === selection.run) : undefined;
    if (selection?.kind !== "slice" || run === undefined) return;
    const model = modelOf(run),
      task = model.slices.task[selection.slice];
    const slices =
      task < 0
        ? []
        : model[side](task)
            .map((one) => endOf(model, one.task, side === "producers"))
            .filter((slice) => slice >= 0);
    if (slices.length)
      this.to(
        model,
        slices.reduce((best, slice) =>
          (
            side === "producers"
              ? ends(model, slice) > ends(model, best)
              : model.slices.start[slice] < model.slices.start[best]
          )
            ? slice
            : best,
        ),
      );
  }

  /** @param {number} start @param {number} end */
  range(start, end) {
    const parts = [
      element("h2", `${duration(end - start)} selected`),
      this.facts([
        ["from", `${micros(start)} µs`],
        ["to", `${micros(end)} µs`],
      ]),
    ];
    for (const view of this.pane.views) {
      const totals = totalsOf(view.model, start, end),
        lanes = view.timeline.core_lanes.length * (end - start);
      const row = (
        /** @type {string} */ color,
        /** @type {string} */ name,
        /** @type {number} */ ns,
        /** @type {string} */ more,
      ) =>
        element(
          "tr",
          element("td.name", element("span.dot", { style: `background:${color}` }), name),
          element("td.number", more),
          element("td.number", { "data-ns": String(ns) }, micros(ns)),
          element("td.number", percent(ns / Math.max(lanes, 1))),
        );
      const head = (/** @type {string[]} */ ...titles) =>
        element("tr", ...titles.map((title, n) => element("th", { class: n ? "number" : null, scope: "col" }, title)));
      parts.push(
        this.pane.views.length > 1 ? element("h3", view.model.run.name) : null,
        totals.exact ? null : element("p.soft", "Slices drawn together count by their whole stretch."),
        element(
          "table.totals.kernels",
          element("thead", head("kernel", "slices", "core µs", "of lanes")),
          element(
            "tbody",
            ...totals.kernels.map((one) =>
              row(kernelColors(view.timeline).byName.get(one.name) ?? "", one.name, one.ns, whole(one.count)),
            ),
          ),
        ),
        element(
          "table.totals.reasons",
          element("thead", head("idle because", "", "µs", "of lanes")),
          element("tbody", ...totals.reasons.map((one) => row(reasonColor(one.id), one.title, one.ns, ""))),
        ),
      );
    }
    return parts;
  }

  /** @param {string} kernel */
  kernel(kernel) {
    const model = modelOf(this.store.run()),
      place = model.timeline.kernels.indexOf(kernel),
      { kernel: codes, dur } = model.slices;
    let count = 0,
      sum = 0,
      most = 0;
    for (let i = 0; i < codes.length; i++)
      if (codes[i] === place) {
        count++;
        sum += dur[i];
        if (dur[i] > most) most = dur[i];
      }
    return [
      element("h2", element("span.dot", { style: `background:${kernelColors(model.timeline).all[place]}` }), kernel),
      this.facts([
        ["slices", whole(count)],
        ["core time", `${micros(sum)} µs`],
        ["mean", `${micros(sum / Math.max(count, 1))} µs`],
        ["longest", `${micros(most)} µs`],
      ]),
      element("button", { onclick: () => this.store.set({ search: kernel }) }, "find its slices"),
    ];
  }

  /** @param {number} task */
  task(task) {
    const model = modelOf(this.store.run()),
      place = model.timeline.tasks.indexOf(task),
      slices = place < 0 ? [] : [...model.slicesOfTask(place)];
    return [
      element("h2", `Task ${task}`),
      this.facts([
        ["kernel", slices.length ? model.name(slices[0]) : null],
        ["slices", whole(slices.length)],
      ]),
      ...(place < 0
        ? []
        : [
            this.others("producers", "Waited for", model, place),
            this.others("consumers", "Waits for it", model, place),
          ]),
    ];
  }
}

/** @param {import("./timeline/model.js").Model} model @param {number} slice */
const ends = (model, slice) => model.slices.start[slice] + model.slices.dur[slice];

/** @param {import("./types").Fact} fact @param {number} i */
function factTold(fact, i) {
  if (fact.number)
    return Number.isNaN(fact.number[i]) ? null : fact.number[i].toLocaleString("en-US", { maximumFractionDigits: 6 });
  const code = fact.code?.[i] ?? -1;
  return code < 0 || code >= (fact.text?.length ?? 0) ? null : (fact.text?.[code] ?? null);
}

/** A fact, or the parts of one that is a JSON object. @param {string} name @param {string | null} value @returns {[string, string | null][]} */
function opened(name, value) {
  if (value?.startsWith("{")) {
    try {
      return Object.entries(JSON.parse(value)).map(([key, part]) => [
        key,
        typeof part === "string" ? part : JSON.stringify(part),
      ]);
    } catch {
      /* it only looked like one */
    }
  }
  return [[name, value]];
}

/** @param {import("./types").CounterTrack} counter @param {number} from @param {number} to */
function mean(counter, from, to) {
  const value = counterMean(counter, from, to);
  return value === null ? null : significant(value);
}
