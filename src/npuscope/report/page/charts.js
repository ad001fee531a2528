// Small charts as inline SVG and canvas: bars, a waterfall, the heat map, the path as a strip.

import { clipped, element, svg, micros, percent, time } from "./format.js";
import { kernelColor, reasonColor, themed } from "./colors.js";
import { NAMES } from "./swimlane.js";

// Horizontal bars. Rows are {label, value, text, color, parts?: [{value, color, label}]}.
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

// Utilisation of lanes over time: the stronger the colour, the busier.
export function heatMap(timeline) {
  const { share, bins } = timeline.heat, names = timeline.lanes.map(lane => lane.name), rows = share.length / bins;
  const canvas = element("canvas", { role: "img", "aria-label": "Utilisation of every lane over time" });
  const box = element("div", { class: "lanes" }, canvas);
  const row = Math.max(Math.min(Math.floor(420 / Math.max(rows, 1)), 14), 3);
  const paint = () => {
    const width = box.clientWidth, scale = window.devicePixelRatio || 1;
    if (!width) return;
    canvas.style.height = `${rows * row}px`;
    canvas.width = width * scale; canvas.height = rows * row * scale;
    const paper = canvas.getContext("2d"), cell = (width - NAMES) / bins, rgb = themed("--cell");
    paper.setTransform(scale, 0, 0, scale, 0, 0);
    for (let i = 0; i < share.length; i++) {
      if (share[i] === 0) continue;
      paper.fillStyle = `rgba(${rgb}, ${share[i] / 255})`;
      paper.fillRect(NAMES + (i % bins) * cell, Math.floor(i / bins) * row, cell + 0.3, row - (row > 4 ? 1 : 0));
    }
    paper.fillStyle = themed("--soft"); paper.font = "10px system-ui, sans-serif"; paper.textBaseline = "middle";
    const every = Math.ceil(11 / row);
    names.forEach((name, i) => { if (i % every === 0) paper.fillText(clipped(name, 15), 4, i * row + row / 2); });
  };
  const tip = element("div", { class: "tip", hidden: "" });
  document.body.append(tip);
  canvas.addEventListener("pointermove", event => {
    const area = canvas.getBoundingClientRect(), lane = Math.floor((event.clientY - area.top) / row);
    const bin = Math.floor((event.clientX - area.left - NAMES) / ((area.width - NAMES) / bins));
    if (lane < 0 || lane >= rows || bin < 0 || bin >= bins) { tip.hidden = true; return; }
    const from = bin / bins * timeline.window, to = (bin + 1) / bins * timeline.window;
    tip.replaceChildren(element("b", {}, names[lane]), element("div", {}, `${percent(share[lane * bins + bin] / 255)} busy from ${time(from)} to ${time(to)}`));
    tip.hidden = false; tip.style.left = `${event.clientX + 14}px`; tip.style.top = `${event.clientY + 18}px`;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  new ResizeObserver(paint).observe(box);
  return { box, paint };
}

// The path that decides the end as one strip: runs by kernel above, waits by reason below.
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
