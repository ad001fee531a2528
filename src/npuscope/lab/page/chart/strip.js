// The path that decides the end as one strip.

import { micros, svg } from "../format.js";
import { kernelColors, reasonColor } from "../colors.js";

// The path that decides the end as one strip: runs by kernel above, waits by reason below.
/** @param {import("../types").Timeline} timeline */
export function strip(timeline) {
  const { start, end, part, kernel } = timeline.path,
    width = 1000,
    high = 34;
  const drawing = svg("svg", {
    viewBox: `0 0 ${width} ${high}`,
    width: "100%",
    height: high,
    preserveAspectRatio: "none",
    role: "img",
  });
  const scale = width / Math.max(timeline.window, 1);
  let from = null;
  for (let i = 0; i < start.length; i++) {
    // neighbours narrower than a quarter of a pixel are drawn with the one before
    if (from !== null && (end[i] - from) * scale < 0.25) continue;
    const run = part[i] === 0,
      name = run ? timeline.kernels[kernel[i]] : timeline.parts[part[i]];
    const color = run ? kernelColors(timeline).all[kernel[i]] : reasonColor(name);
    const y = run ? 2 : 18;
    drawing.append(
      svg(
        "rect",
        { x: start[i] * scale, y, width: Math.max((end[i] - start[i]) * scale, 0.25), height: 14, fill: color },
        svg("title", `${name}: ${micros(end[i] - start[i])} µs`),
      ),
    );
    from = end[i];
  }
  return drawing;
}
