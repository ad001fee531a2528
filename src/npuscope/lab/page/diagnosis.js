// The diagnosis beside the timeline: each cause with its evidence, what mending it is worth, and where it shows.

import { duration, element, fill, percent, whole, worded } from "./format.js";
import { stretches } from "./timeline/overlays.js";
import { show } from "./timeline/moves.js";

/** @param {import("./types").Gain} gain */
const worth = (gain) =>
  `worth ${duration(gain.ns)}${gain.low_ns !== gain.high_ns ? ` (${duration(gain.low_ns)} to ${duration(gain.high_ns)})` : ""}`;

const SLOWEST = 3; // lines

export class DiagnosisBox {
  /** @param {import("./types").Store} store @param {import("./timeline/pane.js").Pane} pane */
  constructor(store, pane) {
    this.store = store;
    this.pane = pane;
    this.stretch = -1;
    this.list = element("ol.causes");
    this.together = element("p.soft.together");
    this.lines = element("div.slowest");
    this.box = element(
      "section.diagnosis",
      { "aria-label": "Diagnosis" },
      element("h2", "Diagnosis ", element("span.soft", "and what mending is worth")),
      this.list,
      this.together,
      this.lines,
    );
    store.on(["run", "runs", "rank"], () => this.draw());
    store.on(["selection"], () => this.mark());
    this.draw();
  }

  draw() {
    const run = this.store.run();
    this.list.replaceChildren(...(run?.diagnosis.causes ?? []).map((cause, place) => this.item(run, cause, place)));
    const all = run?.diagnosis.together;
    this.together.textContent = all
      ? `${all.findings === 2 ? "Both" : `All ${whole(all.findings)}`} findings that save time, taken out together: ${worth(all.gain)}.`
      : "";
    this.drawLines(run?.panels.source);
    this.mark();
  }

  /** The lines of a program that take most time; a click leads to them. @param {any} source */
  drawLines(source) {
    const all = [...(source?.lines ?? [])].sort((a, b) => b.core_ns - a.core_ns),
      total = all.reduce((sum, line) => sum + line.core_ns, 0);
    const text = (/** @type {any} */ line) =>
      source.files.find((/** @type {any} */ file) => file.name === line.file)?.text?.[line.line - 1]?.trim() ?? "";
    fill(
      this.lines,
      total ? element("h2", "Slowest lines ", element("span.soft", "of all blocks' time")) : null,
      ...all.slice(0, total ? SLOWEST : 0).map((line) =>
        element(
          "button.slow-line",
          {
            title: text(line),
            onclick: () =>
              this.store.set({ panel: "source", selection: { kind: "line", file: line.file, line: line.line } }),
          },
          element("b", percent(line.core_ns / total)),
          element("span.soft", `${line.file}:${line.line}`),
          element("code", text(line)),
        ),
      ),
    );
  }

  /** A line with what mending it is worth as a bar; the first in full, the others when they are chosen. @param {import("./types").Run} run @param {import("./types").Cause} cause @param {number} place */
  item(run, cause, place) {
    const spans = stretches(run, place).length,
      gain = cause.gain && cause.gain.ns > 0 ? cause.gain : null,
      wall = Math.max(run.diagnosis.wall_ns, 1);
    const facts = [
      cause.share > 0 && cause.share < 1 ? `${percent(cause.share)} of the time` : null,
      gain ? worth(gain) : null,
      cause.confidence && cause.confidence !== "sure" ? cause.confidence : null,
    ].filter(Boolean);
    const step = (/** @type {string} */ text, /** @type {string} */ label, /** @type {number} */ by) =>
      element("button.plain", { "aria-label": label, onclick: () => this.goTo(place, by) }, text);
    const where =
      spans === 0 && cause.evidence.length === 0
        ? null
        : element(
            "div.where",
            ...(spans === 0
              ? []
              : [
                  step("‹", "Stretch before", -1),
                  element(
                    "span.soft",
                    { "data-stretch": "" },
                    `${whole(spans)} ${spans === 1 ? "stretch" : "stretches"}`,
                  ),
                  step("›", "Next stretch", 1),
                ]),
            cause.evidence.length
              ? element("button.plain.details", { onclick: () => this.choose(place) }, "evidence")
              : null,
          );
    const width = (/** @type {number} */ ns) => `width:${Math.min((100 * ns) / wall, 100).toFixed(1)}%`;
    return element(
      "li",
      { "data-cause": String(place), class: place === 0 ? "verdict-cause" : null },
      element(
        "button.cause",
        {
          "aria-pressed": "false",
          title: cause.sentence,
          id: place === 0 ? "verdict" : null,
          onclick: () => this.choose(place),
        },
        element("span.sentence", ...worded(cause.sentence)),
        element("span.worth", gain ? duration(gain.ns) : ""),
      ),
      element(
        "div.bar",
        { title: gain ? `${worth(gain)} of ${duration(wall)}` : "what it is worth is not known" },
        gain ? element("span.most", { style: width(gain.high_ns) }) : null,
        gain ? element("span", { style: width(gain.ns) }) : null,
      ),
      element(
        "div.more",
        facts.length ? element("div.soft.facts", facts.join(" · ")) : null,
        cause.evidence.length ? element("ul", ...cause.evidence.map((line) => element("li", ...worded(line)))) : null,
        cause.remedy ? element("p.remedy", element("b", "What to do: "), ...worded(cause.remedy)) : null,
        where,
      ),
    );
  }

  /** Marks a cause and shows its stretches; once more, nothing is marked. @param {number} place */
  choose(place) {
    const { selection } = this.store.state;
    if (selection?.kind === "cause" && selection.cause === place) {
      this.store.set({ selection: null });
      return;
    }
    this.store.set({ selection: { kind: "cause", cause: place } });
    this.stretch = -1;
    const spans = stretches(this.store.run(), place);
    if (spans.length === 0) return;
    const first = Math.min(...spans.map((span) => span[0])),
      last = Math.max(...spans.map((span) => span[1])),
      room = Math.max((last - first) * 0.05, 100);
    show(this.store, first - room, last + room);
    this.reveal(spans[0]);
  }

  /** One stretch after the other. @param {number} place @param {number} by */
  goTo(place, by) {
    const spans = stretches(this.store.run(), place),
      { selection } = this.store.state;
    if (spans.length === 0) return;
    if (selection?.kind !== "cause" || selection.cause !== place)
      this.store.set({ selection: { kind: "cause", cause: place } });
    this.stretch =
      this.stretch < 0 ? (by > 0 ? 0 : spans.length - 1) : (this.stretch + by + spans.length) % spans.length;
    const [start, end] = spans[this.stretch],
      room = Math.max((end - start) * 0.6, 200);
    show(this.store, start - room, end + room);
    this.reveal(spans[this.stretch]);
    const label = this.list.querySelector(`[data-cause="${place}"] [data-stretch]`);
    if (label) label.textContent = `${this.stretch + 1} of ${whole(spans.length)}`;
  }

  /** @param {[number, number, number | null]} span */
  reveal([, , lane]) {
    const view = this.pane.views[0];
    if (view && lane !== null && lane >= 0) view.reveal(view.model.rowOfLane[lane]);
  }

  /** The next cause. @param {number} by */
  go(by) {
    const count = this.store.run().diagnosis.causes.length,
      { selection } = this.store.state;
    if (count === 0) return;
    const now = selection?.kind === "cause" ? selection.cause : by > 0 ? -1 : 0;
    const next = (now + by + count) % count;
    if (selection?.kind !== "cause" || next !== selection.cause) this.choose(next);
  }

  mark() {
    const { selection } = this.store.state;
    for (const item of this.list.children) {
      const chosen = selection?.kind === "cause" && String(selection.cause) === item.dataset.cause;
      item.classList.toggle("chosen", chosen);
      item.querySelector("button.cause")?.setAttribute("aria-pressed", String(chosen));
      if (chosen) item.scrollIntoView({ block: "nearest" });
    }
  }
}
