// Kernels: sorted by any column, how their run times spread, and the same core by core.

import { clipped, duration, element, percent, svg, whole } from "../format.js";
import { kernelColors } from "../colors.js";
import { drawn, figure, grid, scale, sheet } from "../chart/frame.js";
import { telling } from "../chart/tip.js";
import { sortable } from "../table.js";

const BINS = 24,
  MOST_CORES = 120;

/** The run times of every kernel by its number, in order, with their lanes. @param {any} timeline */
function runsOf(timeline) {
  const { slices, rows } = timeline;
  /** @type {Map<number, {dur: number[], lane: number[]}>} */
  const found = new Map();
  for (let row = 0; row < rows.length; row++) {
    for (let i = slices.begins[row]; i < slices.begins[row + 1]; i++) {
      const kernel = slices.kernel[i];
      if (kernel >= timeline.device_kernels) continue;
      let one = found.get(kernel);
      if (!one) found.set(kernel, (one = { dur: [], lane: [] }));
      one.dur.push(slices.dur[i]);
      one.lane.push(rows[row][0]);
    }
  }
  return found;
}

/** @param {number[]} sorted @param {number} share */
const quantile = (sorted, share) => sorted[Math.min(Math.floor(share * sorted.length), sorted.length - 1)];

/** How many of the values fall into each of so many equal parts of the range. @param {number[]} values @param {[number, number]} range @param {number} bins */
function counts(values, [low, high], bins) {
  const found = new Array(bins).fill(0),
    span = high - low || 1;
  for (const value of values) found[Math.min(Math.max(Math.floor(((value - low) / span) * bins), 0), bins - 1)]++;
  return found;
}

/** A small picture of a distribution. @param {number[]} values @param {[number, number]} range @param {string} color @param {number} width @param {number} height */
function spark(values, range, color, width, height) {
  const found = counts(values, range, BINS),
    most = Math.max(...found, 1),
    step = width / BINS;
  return svg(
    "svg.spark",
    { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    ...found.flatMap((count, n) =>
      count
        ? [
            svg("rect", {
              x: n * step,
              y: height - Math.max((count / most) * height, 1),
              width: Math.max(step - 0.5, 1),
              height: Math.max((count / most) * height, 1),
              fill: color,
            }),
          ]
        : [],
    ),
  );
}

class Kernels {
  /** @param {HTMLElement} box @param {any} store */
  constructor(box, store) {
    this.store = store;
    const run = store.run(),
      { timeline } = run,
      { report, columns } = run.panels.overview;
    this.timeline = timeline;
    this.together = timeline.slices.drawn !== undefined; // several slices as one: their times are not known here
    this.runs = this.together ? new Map() : runsOf(timeline);
    /** @type {Map<string, number>} */
    this.numbers = new Map(
      timeline.kernels
        .slice(0, timeline.device_kernels)
        .map((/** @type {string} */ name, /** @type {number} */ n) => [name, n]),
    );
    this.heads = columns["report.kernels"];
    this.first = this.heads[0].key;
    const rows = report.kernels.map((/** @type {any} */ row) => this.row(row));
    const more = this.together ? [] : [{ key: "spread", title: "p95 / p50", show: "ratio", right: true }];
    this.table = sortable([...this.heads, ...more], rows, {
      sorted: "core_ns",
      dots: { [this.first]: (/** @type {any} */ row) => this.color(row[this.first]) },
      picked: (/** @type {any} */ row) =>
        store.set({ selection: row === null ? null : { kind: "kernel", kernel: row[this.first] } }),
    });
    this.detail = element("div.kernel-detail", { "aria-live": "polite" });
    box.append(
      element(
        "div.kernels",
        element(
          "p.soft",
          "A click on a heading sorts; on a kernel marks its slices and shows how its run times spread.",
        ),
        this.table,
        this.detail,
      ),
    );
    this.show(store.state);
  }

  /** @param {any} row */
  row(row) {
    const own = this.runs.get(this.numbers.get(row[this.first]) ?? -1);
    if (!own) return row;
    const sorted = [...own.dur].sort((a, b) => a - b),
      p50 = quantile(sorted, 0.5),
      p95 = quantile(sorted, 0.95);
    return { ...row, spread: p50 ? p95 / p50 : null };
  }

  /** @param {string} name */
  color(name) {
    return kernelColors(this.timeline).byName.get(name) ?? "";
  }

  /** @param {any} state */
  show(state) {
    const { selection } = state,
      wanted = selection?.kind === "kernel" || selection?.kind === "slice" ? selection.kernel : null;
    const name = wanted !== null && this.numbers.has(wanted) ? wanted : null;
    if (name === this.shown) return;
    this.shown = name;
    for (const row of this.table.querySelectorAll("tbody tr"))
      row.classList.toggle("chosen", name !== null && row.cells[0].textContent === clipped(name, 60));
    if (name === null) return this.detail.replaceChildren();
    if (this.together)
      return this.detail.replaceChildren(
        element("p.soft", "This page draws short slices together, so the run times of single ones are not in it."),
      );
    const own = this.runs.get(/** @type {number} */ (this.numbers.get(name)));
    if (!own) return this.detail.replaceChildren();
    this.detail.replaceChildren(this.distribution(name, own.dur), this.byCore(name, own));
  }

  /** @param {string} name @param {number[]} dur */
  distribution(name, dur) {
    const sorted = [...dur].sort((a, b) => a - b),
      range = /** @type {[number, number]} */ ([sorted[0], sorted.at(-1)]),
      color = this.color(name);
    const found = counts(dur, range, 2 * BINS),
      most = Math.max(...found),
      marks = [0.05, 0.5, 0.95].map((share) => ({ share, at: quantile(sorted, share) }));
    const draw = (/** @type {number} */ width) => {
      const high = 170,
        page = sheet(width, high),
        left = 46,
        right = 12,
        foot = 24,
        top = 18;
      const x = scale({ form: "ns" }, range, [left, width - right], width / 100),
        y = scale({}, [0, most], [high - foot, top], 3);
      page.append(...grid(x.ticks, "x", [top, high - foot]), ...grid(y.ticks, "y", [left, width - right]));
      const bins = found
        .map((count, n) => {
          const from = range[0] + (n / found.length) * (range[1] - range[0]),
            to = range[0] + ((n + 1) / found.length) * (range[1] - range[0]);
          const mark = svg("rect", {
            x: range[1] > range[0] ? x.at(from) : (left + width - right) / 2 - 8,
            width: range[1] > range[0] ? Math.max(x.at(to) - x.at(from) - 1, 1) : 16,
            y: y.at(count),
            height: Math.max(y.at(0) - y.at(count), 0),
            fill: color,
          });
          return {
            mark,
            lines: [`${whole(count)} slice${count === 1 ? "" : "s"}`, `${duration(from)} to ${duration(to)}`],
            count,
          };
        })
        .filter((bin) => bin.count > 0);
      page.append(...bins.map((bin) => bin.mark));
      /** @type {{x: number, words: string}[]} */
      const labels = []; // those of one place are one
      for (const { share, at } of range[1] > range[0] ? marks : []) {
        const place = x.at(at),
          last = labels.at(-1),
          words = `p${Math.round(share * 100)}`;
        page.append(svg("line.quantile", { x1: place, x2: place, y1: top, y2: high - foot }));
        if (last && place - last.x < 26 + 6 * (last.words.length - 2)) last.words += `, ${words}`;
        else labels.push({ x: place, words });
      }
      page.append(
        ...labels.map(({ x: place, words }) =>
          svg(
            "text.small.halo",
            {
              x: place > width - 70 ? place - 3 : place + 3,
              y: 12,
              "text-anchor": place > width - 70 ? "end" : "start",
            },
            words,
          ),
        ),
      );
      telling(bins);
      return page;
    };
    const title = `${name}: ${whole(dur.length)} run${dur.length === 1 ? "" : "s"}, ${duration(sorted[0])} to ${duration(sorted.at(-1) ?? 0)}, median ${duration(quantile(sorted, 0.5))}`;
    return figure(title, drawn(title, draw));
  }

  /** @param {string} name @param {{dur: number[], lane: number[]}} own */
  byCore(name, own) {
    /** @type {Map<number, number[]>} */
    const lanes = new Map();
    own.lane.forEach((lane, n) => {
      const one = lanes.get(lane);
      if (one) one.push(own.dur[n]);
      else lanes.set(lane, [own.dur[n]]);
    });
    let low = Infinity,
      high = -Infinity;
    for (const value of own.dur) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    const all = [...lanes].sort((a, b) => a[0] - b[0]),
      total = own.dur.reduce((sum, value) => sum + value, 0),
      color = this.color(name);
    const cards = all.slice(0, MOST_CORES).map(([lane, dur]) => {
      const sum = dur.reduce((a, b) => a + b, 0),
        mean = sum / dur.length;
      return element(
        "div.core",
        {
          title: `${this.timeline.lanes[lane].name}: ${whole(dur.length)} runs, mean ${duration(mean)}, ${percent(sum / total)} of its time`,
        },
        element("span.name", this.timeline.lanes[lane].name),
        spark(dur, [low, high], color, 96, 26),
        element("span.soft", `${whole(dur.length)} × ${duration(mean)}`),
      );
    });
    const left = all.length > MOST_CORES ? element("p.soft", `${all.length - MOST_CORES} more cores ran it`) : null;
    return figure(
      `Core by core, all on one axis from ${duration(low)} to ${duration(high)}`,
      element("div.cores", ...cards),
      left,
    );
  }
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "kernels",
  title: "Kernels",
  group: "run",
  has: (/** @type {any} */ run) => run?.panels.overview !== undefined,
  /** @param {HTMLElement} box @param {any} store */
  mount(box, store) {
    const made = new Kernels(box, store);
    return { update: (/** @type {any} */ state) => made.show(state) };
  },
};
