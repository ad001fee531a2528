// The program's files: what every line takes, what checks say of it; a click on a line marks its slices and back.

import { duration, element, fill, percent } from "../format.js";
import { si } from "../chart/frame.js";
import { coloured, highlighted } from "../python_text.js";
import { Editor } from "./editor.js";
import { shownFiles } from "./source_text.js";

const MEASURES = [
  ["core_ns", "time", "how long blocks took because of the line, over all blocks"],
  ["path_ns", "on path", "the same, of the blocks on the critical path"],
  ["busy_ns", "busy", "how long pipes worked for it, waited for or not"],
  ["submit_ns", "submit", "the orchestrator's time for the tasks submitted here"],
  ["bytes", "bytes", "moved from and to GM"],
  ["flops", "FLOPs", "of all blocks"],
];
const ALWAYS = ["core_ns", "path_ns", "bytes", "flops"]; // columns that are there where a line of the file has them
const HOT = 5; // lines listed above the files
/** What a reader chose stays over versions of a run, and so does what is being edited. @type {{file?: string, measure: string, editor: Editor | null}} */
const kept = { measure: "core_ns", editor: null };
const NONE = { files: [], lines: [], findings: [], core_ns: 0, path_ns: 0, wall_ns: 0, about: [] }; // of a run without source
const SIGNS = /** @type {Record<string, string>} */ ({ error: "✖", warning: "▲", hint: "●" });

/** @param {string} key @param {number} value */
const shown = (key, value) =>
  value ? (key.endsWith("_ns") ? duration(value) : key === "bytes" ? `${si(value)}B` : si(value)) : "";

/** What it saves: what its fix gave, or an estimate. @param {any} finding */
function worth(finding) {
  if (!(finding.worth_ns > 0)) return "";
  const saves = duration(finding.worth_ns);
  return finding.tried === "tried" ? `saves ${saves}, tried` : `saves about ${saves}, ${finding.tried || "not tried"}`;
}

class Source {
  /** @param {HTMLElement} box @param {any} store @param {any} found */
  constructor(box, store, found) {
    this.store = store;
    this.found = found;
    this.measure = kept.measure;
    /** @type {Map<string, any>} */
    this.lines = new Map(found.lines.map((/** @type {any} */ line) => [`${line.file}:${line.line}`, line]));
    /** @type {Map<string, any[]>} */
    this.findings = new Map();
    for (const one of found.findings) {
      const key = `${one.file}:${one.line}`;
      this.findings.set(key, [...(this.findings.get(key) ?? []), one]);
    }
    this.broken = store.state.live?.broken ?? null;
    this.look = store.state.live?.look ?? null;
    this.files = shownFiles(found.files, this.broken);
    const names = this.files.map((file) => file.name);
    this.file = kept.file !== undefined && names.includes(kept.file) ? kept.file : names[0]; // the opened one is first
    this.hot = element("div.hot");
    this.tabs = element("div.tools.files", { role: "group", "aria-label": "Files" });
    this.code = element("table.code", {
      tabindex: "0",
      "aria-label": "Source lines; arrow keys go from line to line",
    });
    this.code.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
    const choose = element(
      "select",
      { "aria-label": "Colour lines by", id: "measure" },
      ...MEASURES.map(([key, name, meaning]) => element("option", { value: key, title: meaning }, name)),
    );
    choose.addEventListener("change", () => {
      kept.measure = this.measure = choose.value;
      this.draw();
      this.mark(store.state);
    });
    choose.value = this.measure;
    this.scroll = element("div.scroll.tall", this.code);
    this.below = element("div");
    const timed = found.lines.length > 0;
    this.state = element("p.bad", { hidden: "" });
    box.append(
      element(
        "div.source-panel",
        timed
          ? element("div.tools.heads", element("label", "slowest lines by ", choose), this.list(), this.about())
          : null,
        this.hot,
        this.state,
        this.tabs,
        this.below,
      ),
    );
    this.draw();
    this.showEditor();
    const first = this.hottest().find((line) => line.file === this.file);
    if (first) this.show(this.shown().now(first.line), false);
    if (this.broken) this.toFault();
  }

  /** The lines with their times, or the file as it is edited. */
  showEditor() {
    const { editor } = kept;
    fill(this.below, editor?.box ?? this.scroll);
    if (editor === null) return;
    const fault = this.files.find((file) => editor.path.endsWith(`/${file.name}`))?.faults ?? [];
    editor.mark(fault.map((one) => one.line));
    editor.scroll();
  }

  /** Opens the shown file for editing, as the disk has it, at the line in sight. */
  async edit() {
    const { ask } = this.store.state.live,
      disk = ask.onDisk();
    const texts = /** @type {[string, string][]} */ (Object.entries(await ask.sources(disk.id)));
    const [path, text] = texts.find(([one]) => one === this.file || one.endsWith(`/${this.file}`)) ?? [];
    if (path === undefined || text === undefined) return;
    const { selection } = this.store.state,
      row = Math.floor(this.scroll.scrollTop / 19) + 3,
      line = selection?.kind === "line" && selection.file === this.file ? this.shown().now(selection.line) : row;
    kept.editor = new Editor(path, text, ask, () => {
      kept.editor = null;
      this.showEditor();
    });
    this.showEditor();
    kept.editor.goTo(line);
  }

  /** The file that is shown. */
  shown() {
    return this.files.find((file) => file.name === this.file) ?? this.files[0];
  }

  /** A save that does not run, or one that does again; and where the reader asked to be led. @param {any} live */
  follow(live) {
    const { broken, look } = live ?? {};
    if ((broken ?? null) !== this.broken) {
      this.broken = broken ?? null;
      this.files = shownFiles(this.found.files, this.broken);
      const top = this.scroll.scrollTop;
      this.draw();
      this.showEditor();
      this.mark(this.store.state);
      if (this.broken) this.toFault();
      else this.scroll.scrollTop = top;
    }
    if ((look ?? null) !== this.look) {
      this.look = look ?? null;
      this.toFault(look?.place ?? 0);
    }
  }

  /** Brings a line of the broken save into sight. @param {number} place which of its faults */
  toFault(place = 0) {
    const all = this.broken === null ? [] : [this.broken.trouble, ...this.broken.trouble.more],
      one = all[place];
    const file =
      one &&
      this.files.find((known) =>
        known.faults.some((fault) => fault.line === one.line && fault.message === one.message),
      );
    if (!file) return;
    if (file.name !== this.file) {
      this.file = file.name;
      this.draw();
      this.mark(this.store.state);
    }
    this.show(Math.min(one.line, file.text?.length ?? 1));
  }

  hottest() {
    return [...this.found.lines]
      .filter((line) => line[this.measure] > 0)
      .sort((a, b) => b[this.measure] - a[this.measure]);
  }

  about() {
    return element(
      "details.about",
      element("summary", "What is a line's time?"),
      element(
        "p",
        `Lines add up to ${duration(this.found.core_ns)} of core time. On the critical path they run ${duration(this.found.path_ns)}; with ${duration(this.found.wall_ns - this.found.path_ns)} of waiting that is the ${duration(this.found.wall_ns)} from the first start to the last end.`,
      ),
      ...this.found.about.map((/** @type {string} */ line) => element("p", line)),
    );
  }

  list() {
    const all = this.found.findings;
    if (all.length === 0) return null;
    const errors = all.filter((/** @type {any} */ one) => one.severity === "error").length;
    const items = all.map((/** @type {any} */ one) =>
      element(
        "li",
        element(
          "button",
          { class: `plain finding ${one.severity}`, onclick: () => this.go(one.file, one.line, true) },
          `${SIGNS[one.severity]} ${one.file}:${one.line} ${one.id}`,
        ),
        element("span.soft", ` ${worth(one)}`),
      ),
    );
    return element(
      "details.finding-list",
      element(
        "summary",
        `${all.length} finding${all.length === 1 ? "" : "s"}${errors ? `, ${errors} of them error${errors === 1 ? "" : "s"}` : ""}`,
      ),
      element("ul", ...items),
    );
  }

  draw() {
    const measure = /** @type {string[]} */ (MEASURES.find(([key]) => key === this.measure)),
      hot = this.hottest().slice(0, HOT);
    const total =
      this.found.lines.reduce((/** @type {number} */ sum, /** @type {any} */ line) => sum + line[this.measure], 0) || 1;
    fill(
      this.hot,
      ...hot.map((line) => {
        const text = this.text(line.file)?.[line.line - 1]?.trim() ?? "";
        return element(
          "button.hot-line",
          { title: `${line.file}:${line.line}`, onclick: () => this.go(line.file, line.line) },
          element("span.bar", {
            style: `width:${Math.max((100 * line[this.measure]) / hot[0][this.measure], 1)}%`,
          }),
          element("span.number", `${shown(this.measure, line[this.measure])} ${percent(line[this.measure] / total)}`),
          element("span.place", `${line.file}:${line.line}`),
          element("code", text),
        );
      }),
      hot.length || this.found.lines.length === 0 ? null : element("p.soft", `No line has ${measure[1]}.`),
    );
    this.tabs.replaceChildren(
      ...this.files.map((file) =>
        element(
          "button",
          {
            "aria-pressed": String(file.name === this.file),
            class: file.faults.length ? "failed" : null,
            onclick: () => {
              kept.file = this.file = file.name;
              kept.editor = null;
              this.showEditor();
              this.draw();
              this.mark(this.store.state);
            },
          },
          `${file.faults.length ? `${SIGNS.error} ` : ""}${file.name}`,
        ),
      ),
      this.store.state.live?.program
        ? element("button", { title: "Edit this file here", onclick: () => this.edit() }, "✎ edit")
        : "",
    );
    this.state.hidden = this.broken === null;
    this.state.textContent =
      this.broken === null
        ? ""
        : `The text is that of ${this.broken.name}, which does not run.${this.found.lines.length ? " Times are those of the last run, on lines that are as they were." : ""}`;
    this.drawCode(total);
  }

  /** The run's text of a file. @param {string} name @returns {string[] | null} */
  text(name) {
    return this.found.files.find((/** @type {any} */ file) => file.name === name)?.text ?? null;
  }

  /** @param {number} total */
  drawCode(total) {
    const file = this.shown();
    if (!file || file.text === null) {
      this.code.replaceChildren(
        element("tbody", element("tr", element("td", `${this.file ?? "The file"} could not be read.`))),
      );
      return;
    }
    const most = Math.max(...this.found.lines.map((/** @type {any} */ line) => line[this.measure]), 1e-12);
    const there = (/** @type {string} */ key) =>
      this.found.lines.some((/** @type {any} */ line) => line.file === this.file && line[key] > 0);
    const used = MEASURES.filter(
      ([key]) => key === this.measure || key === "core_ns" || (ALWAYS.includes(key) && there(key)),
    );
    const head = element(
      "tr",
      element("th.number", "line"),
      element("th.number.share", "share"),
      ...used.map(([key, name, meaning]) =>
        element("th", { class: `number ${key === this.measure ? "chief" : "other"}`, title: meaning }, name),
      ),
      element("th.other", { title: "the pipe, or what else, that most of its time is waited for" }, "bound by"),
      element("th.text", file.name),
    );
    const colours = highlighted(file.text);
    const rows = file.text.flatMap((_, n) => this.row(colours[n], n + 1, used, most, total));
    this.code.replaceChildren(element("thead", head), element("tbody", ...rows));
    if (file.left_out)
      this.code.append(
        element("tfoot", element("tr", element("td", { colspan: 99 }, `${file.left_out} more lines are not shown`))),
      );
  }

  /** @param {import("../python_text.js").Part[]} text @param {number} number @param {any[]} used @param {number} most @param {number} total */
  row(text, number, used, most, total) {
    const file = this.shown(),
      key = `${this.file}:${file.was(number)}`,
      line = this.lines.get(key),
      found = this.findings.get(key) ?? [];
    const faults = file.faults.filter(
      (fault) => fault.line === number || (number === file.text?.length && fault.line > number),
    );
    const heat = line ? line[this.measure] / most : 0;
    const chips = found.map((one) =>
      element(
        "button",
        {
          class: `chip ${one.severity}`,
          "aria-expanded": "false",
          title: one.message,
          onclick: (/** @type {Event} */ event) => {
            event.stopPropagation();
            this.open(number);
          },
        },
        `${SIGNS[one.severity]} ${one.id}${worth(one) ? ` ${worth(one)}` : ""}`,
      ),
    );
    const row = element(
      "tr",
      {
        "data-line": number,
        class: `${line ? "has" : ""}${faults.length ? " failed" : ""}`,
        style: heat > 0 ? `--heat:${heat.toFixed(3)}` : null,
        onclick: () => this.select(number),
      },
      element("td.number.line", String(number)),
      element("td.number.share", line && line[this.measure] ? percent(line[this.measure] / total) : ""),
      ...used.map(([name]) =>
        element(
          "td",
          { class: `number ${name === this.measure ? "chief" : "other"}` },
          line ? shown(name, line[name]) : "",
        ),
      ),
      element("td.other.place", line && line.core_ns > 0 ? line.place : ""),
      element("td.text", element("code", ...(text.length ? coloured(text) : [" "])), ...chips),
    );
    const details =
      found.length === 0
        ? []
        : [
            element(
              "tr.details",
              { "data-of": number, hidden: "" },
              element("td", { colspan: used.length + 4 }, ...found.map((one) => this.finding(one))),
            ),
          ];
    const wrong =
      faults.length === 0
        ? []
        : [
            element(
              "tr.details.fault",
              { "data-fault": number },
              element("td", { colspan: used.length + 4 }, ...faults.map((fault) => this.fault(fault))),
            ),
          ];
    return [row, ...wrong, ...details];
  }

  /** Why the program does not run. @param {import("./source_text.js").Fault} one */
  fault(one) {
    return element(
      "div.note.error",
      { role: "alert" },
      element("b", `${SIGNS.error} ${one.message}`),
      one.remedy ? element("p", one.remedy) : null,
    );
  }

  /** @param {any} one */
  finding(one) {
    const also = one.also.map((/** @type {any} */ place) =>
      element("button.plain", { onclick: () => this.go(place.file, place.line) }, `${place.file}:${place.line}`),
    );
    return element(
      "div",
      { class: `note ${one.severity}` },
      element("b", `${one.severity}: ${one.message}`),
      element("p", `Remedy: ${one.remedy}`),
      one.change ? element("pre", `+ ${one.change}`) : null,
      element(
        "p.soft",
        [
          worth(one) || "what it is worth was not simulated",
          one.count > 1 ? `met ${one.count} times` : "",
          one.kernel ? `in ${one.kernel}` : "",
        ]
          .filter(Boolean)
          .join(", "),
      ),
      also.length ? element("p.soft", "also at ", ...also) : null,
    );
  }

  /** Shows or hides what is found at a line. @param {number} number @param {boolean} only */
  open(number, only = false) {
    const details = this.code.querySelector(`tr[data-of="${number}"]`),
      chips = this.code.querySelectorAll(`tr[data-line="${number}"] .chip`);
    if (!details) return;
    details.hidden = only ? false : !details.hidden;
    for (const chip of chips) chip.setAttribute("aria-expanded", String(!details.hidden));
  }

  /** @param {number} shown */
  select(shown) {
    const number = this.shown().was(shown),
      line = this.lines.get(`${this.file}:${number}`),
      now = this.store.state.selection;
    if (number === 0) return undefined; // no run has had it
    if (now?.kind === "line" && now.file === this.file && now.line === number)
      return this.store.set({ selection: null });
    this.store.set({ selection: { kind: "line", file: this.file, line: number, bodies: line?.bodies ?? [] } });
  }

  /** @param {string} file @param {number} number @param {boolean} open */
  go(file, number, open = false) {
    if (file !== this.file) {
      this.file = file;
      this.draw();
    }
    const line = this.lines.get(`${file}:${number}`);
    this.store.set({ selection: { kind: "line", file, line: number, bodies: line?.bodies ?? [] } });
    const shown = this.shown().now(number);
    if (open) this.open(shown, true);
    this.show(shown);
  }

  /** Brings a line, by its number here, into the middle of the code, and the code into sight. @param {number} number @param {boolean} all */
  show(number, all = true) {
    const row = this.code.querySelector(`tr[data-line="${number}"]`);
    if (!row) return;
    this.scroll.scrollTop = row.offsetTop - Math.min(this.scroll.clientHeight * 0.3, 90); // the rest of it may be out of sight
    if (all) row.scrollIntoView({ block: "nearest" });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key],
      now = this.store.state.selection;
    if (by === undefined && event.key !== "Enter") return;
    const file = this.shown(),
      count = file?.text?.length ?? 0,
      at = now?.kind === "line" && now.file === this.file ? file.now(now.line) : 0;
    event.preventDefault();
    event.stopPropagation();
    if (by === undefined) return this.open(at);
    let next = at + by;
    while (next > 0 && next <= count && file.was(next) === 0) next += by;
    if (next > 0 && next <= count) {
      this.select(next);
      this.code.querySelector(`tr[data-line="${next}"]`)?.scrollIntoView({ block: "nearest" });
    }
  }

  /** The lines of what is selected. @param {any} state @param {boolean} follow */
  mark(state, follow = false) {
    if (state.selection?.kind === "line" && state.selection.bodies === undefined) {
      // from a link or another panel
      const line = this.lines.get(`${state.selection.file}:${state.selection.line}`);
      if (line) this.store.set({ selection: { ...state.selection, bodies: line.bodies } });
    }
    const { selection } = this.store.state,
      body = selection?.kind === "slice" ? selection.body : -1;
    const mine = body >= 0 ? this.found.lines.filter((/** @type {any} */ line) => line.bodies.includes(body)) : [];
    if (follow && selection?.kind === "slice" && (mine.length || selection.file)) {
      const main = mine.length
        ? mine.reduce((/** @type {any} */ a, /** @type {any} */ b) => (b.core_ns > a.core_ns ? b : a))
        : selection;
      if (main.file !== this.file && this.text(main.file)) {
        this.file = main.file;
        this.draw();
      }
      this.mark(state);
      return this.show(this.shown().now(main.line));
    }
    if (follow && selection?.kind === "line" && selection.file !== this.file && this.text(selection.file)) {
      this.file = selection.file;
      this.draw();
      this.show(this.shown().now(selection.line));
    }
    const numbers = new Set(
      mine.filter((/** @type {any} */ line) => line.file === this.file).map((/** @type {any} */ line) => line.line),
    );
    for (const row of this.code.querySelectorAll("tr[data-line]")) {
      const number = this.shown().was(Number(row.dataset.line)),
        own = selection?.file === this.file && selection?.line === number;
      row.classList.toggle("chosen", own && selection.kind === "line");
      row.classList.toggle("of-slice", selection?.kind === "slice" && (own || numbers.has(number)));
    }
  }
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "source",
  title: "Source",
  group: "program",
  has: (/** @type {any} */ run, /** @type {any} */ state) =>
    run?.panels.source !== undefined || Boolean(state.live?.broken),
  /** @param {HTMLElement} box @param {any} store */
  mount(box, store) {
    const made = new Source(box, store, store.run()?.panels.source ?? NONE);
    let before = store.state.selection;
    const { editor } = kept,
      caret = editor?.caret;
    if (editor && caret) {
      // a new run is shown while the reader writes
      editor.area.focus();
      editor.area.setSelectionRange(caret[0], caret[1]);
      editor.area.scrollTop = caret[2];
      editor.scroll();
    }
    made.mark(store.state, true);
    if (before?.kind === "line" && !made.broken) made.show(made.shown().now(before.line));
    return {
      update: (/** @type {any} */ state) => {
        made.follow(state.live);
        made.mark(state, state.selection !== before);
        before = state.selection;
      },
      destroy: () => kept.editor?.keepCaret(),
    };
  },
};
