// Small charts as inline SVG: bars, a waterfall, the path as a strip.

import { clipped, svg, micros, time } from "./format.js";
import { kernelColor, reasonColor, themed } from "./colors.js";

// Horizontal bars. Rows are {label, value, text, color, parts?: [{value, color, label}]}.
/** @param {any[]} rows */
export function bars(rows, { width = 640, label = 250 } = {}) {
  const high = 22, most = Math.max(...rows.map(row => row.value), 1e-12), room = width - label - 160;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${rows.length * high + 4}`, width: "100%", style: `max-width:${width}px`, role: "img" });
  rows.forEach((row, i) => {
    const y = i * high + 3;
    drawing.append(svg("text", { x: label - 8, y: y + 12, "text-anchor": "end" }, clipped(row.label, 38)));
    let x = label;
    for (const part of row.parts ?? [{ value: row.value, color: row.color, label: row.label }]) {
      const length = Math.max(part.value / most * room, 0);
      drawing.append(svg("rect", { x, y, width: length, height: high - 7, fill: part.color }, svg("title", {}, part.label)));
      x += length;
    }
    drawing.append(svg("text", { x: x + 6, y: y + 12, class: "soft" }, row.text));
  });
  return drawing;
}

// A waterfall from one total to another. Steps are {label, ns}.
/** @param {number} from @param {{label: string, ns: number}[]} steps @param {number} to @param {string[]} names */
export function waterfall(from, steps, to, names) {
  const rows = [{ label: names[0], low: 0, high: from, color: themed("--accent"), text: time(from) }];
  let level = from;
  for (const { label, ns } of steps) {
    rows.push({ label, low: Math.min(level, level + ns), high: Math.max(level, level + ns), text: `${ns > 0 ? "+" : ""}${time(ns)}`, color: ns > 0 ? themed("--bad") : themed("--good") });
    level += ns;
  }
  rows.push({ label: names[1], low: 0, high: to, color: themed("--accent"), text: time(to) });
  const width = 760, label = 260, high = 22, most = Math.max(...rows.map(row => row.high), 1), room = width - label - 110;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${rows.length * high + 4}`, width: "100%", style: `max-width:${width}px`, role: "img" });
  rows.forEach((row, i) => {
    const y = i * high + 3, x = label + row.low / most * room;
    drawing.append(
      svg("text", { x: label - 8, y: y + 12, "text-anchor": "end" }, clipped(row.label, 38)),
      svg("rect", { x, y, width: Math.max((row.high - row.low) / most * room, 1), height: high - 7, fill: row.color }),
      svg("text", { x: label + row.high / most * room + 6, y: y + 12, class: "soft" }, row.text),
    );
  });
  return drawing;
}

// The path that decides the end as one strip: runs by kernel above, waits by reason below.
/** @param {import("./types").Timeline} timeline */
export function strip(timeline) {
  const { start, end, part, kernel } = timeline.path, width = 1000, high = 34;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${high}`, width: "100%", height: high, preserveAspectRatio: "none", role: "img" });
  const scale = width / Math.max(timeline.window, 1);
  let from = null;
  for (let i = 0; i < start.length; i++) {
    // neighbours narrower than a quarter of a pixel are drawn with the one before
    if (from !== null && (end[i] - from) * scale < 0.25) continue;
    const run = part[i] === 0, name = run ? timeline.kernels[kernel[i]] : timeline.parts[part[i]];
    const color = run ? kernelColor(timeline.ranks[kernel[i]]) : reasonColor(name);
    const y = run ? 2 : 18;
    drawing.append(svg("rect", { x: start[i] * scale, y, width: Math.max((end[i] - start[i]) * scale, 0.25), height: 14, fill: color }, svg("title", {}, `${name}: ${micros(end[i] - start[i])} µs`)));
    from = end[i];
  }
  return drawing;
}
