// Colours that the colour-blind can tell apart: by lightness as well as by hue (Okabe and Ito; Tol).
// A kernel has the same one on every page, since it follows from its name: the hue is that of its area of the model, or
// of the stem of a name that no area knows; reasons for idle time keep theirs, too.

const SERIES = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#d55e00",
  "#882255",
  "#f0e442",
  "#44aa99",
  "#332288",
  "#ddcc77",
  "#aa4499",
  "#88ccee",
  "#117733",
  "#cc6677",
  "#999933",
];

/** @type {Record<string, string>} */
const REASONS = {
  run: "#6f9bd8",
  dependency: "#c9a227",
  FIN: "#d55e00",
  dispatch: "#b2182b",
  pickup: "#882255",
  starved: "#8b94a0",
  edge: "#c3c9d2",
};
const MERGED = "#a08c62"; // reasons that this capture cannot tell apart

/** Degrees. @type {Record<string, number>} */
const AREAS = { QKV: 205, attention: 38, out_proj: 262, MLP: 158, norm: 322, sampling: 58, comm: 12 };
const OTHERS = [188, 225, 85, 290, 342, 128, 242, 22];
const SHADES = [46, 66, 34, 76, 56], // lightness in percent
  SHIFTS = [0, -18, 18]; // degrees

/** One of a list, such as the lines of a chart. @param {number} place */
export function seriesColor(place) {
  return SERIES[place % SERIES.length];
}

/** A number of a text: the same everywhere. @param {string} text */
function hash(text) {
  let found = 2166136261;
  for (let i = 0; i < text.length; i++) found = Math.imul(found ^ text.charCodeAt(i), 16777619) >>> 0;
  return (found ^ (found >>> 15)) >>> 0;
}

/**
 * The colours of kernels in the order of their names: by name alone, unless two of one hue would share a shade; then the
 * later one in the alphabet takes the next.
 * @param {string[]} names @param {string[]} areas
 */
export function colorsOf(names, areas) {
  /** @type {Map<string, string>} */
  const found = new Map(),
    taken = new Set();
  const order = [...names.keys()].sort((a, b) => (names[a] < names[b] ? -1 : 1));
  for (const place of order) {
    const name = names[place];
    if (found.has(name)) continue;
    const stem = name.toLowerCase().replace(/[\d_.]+$/, ""),
      hue = AREAS[areas[place]] ?? OTHERS[hash(stem) % OTHERS.length],
      count = SHADES.length * SHIFTS.length;
    let shade = hash(name) % count;
    for (let tries = 0; tries < count && taken.has(`${hue} ${shade}`); tries++) shade = (shade + 1) % count;
    taken.add(`${hue} ${shade}`);
    found.set(name, hex(hue + SHIFTS[Math.floor(shade / SHADES.length)], 0.62, SHADES[shade % SHADES.length] / 100));
  }
  return found;
}

/** @type {WeakMap<import("./types").Timeline, {all: string[], byName: Map<string, string>}>} */
const ofTimelines = new WeakMap();

/** The colours of a run's kernels: by their numbers, and by their names. @param {import("./types").Timeline} timeline */
export function kernelColors(timeline) {
  let found = ofTimelines.get(timeline);
  if (!found) {
    const byName = colorsOf(timeline.kernels, timeline.areas);
    found = { all: timeline.kernels.map((name) => byName.get(name) ?? ""), byName };
    ofTimelines.set(timeline, found);
  }
  return found;
}

/** A colour by hue, saturation and lightness. @param {number} hue @param {number} full @param {number} light */
function hex(hue, full, light) {
  const most = full * Math.min(light, 1 - light);
  const part = (/** @type {number} */ n) => {
    const place = (n + (hue + 360) / 30) % 12;
    return Math.round(255 * (light - most * Math.max(-1, Math.min(place - 3, 9 - place, 1))))
      .toString(16)
      .padStart(2, "0");
  };
  return `#${part(0)}${part(8)}${part(4)}`;
}

/** @param {string} reason */
export function reasonColor(reason) {
  return REASONS[reason] ?? MERGED;
}

/** How strong the colour of idle time is: nothing to do and nothing to say are faint. @param {string} reason */
export function strength(reason) {
  return reason === "edge" ? 0.4 : reason === "starved" ? 0.6 : 0.95;
}

/** The colour of idle time on a ground. @param {string} reason @param {number[]} ground @returns {[number, number, number]} */
export function softened(reason, ground) {
  const share = strength(reason),
    color = rgb(reasonColor(reason));
  return /** @type {[number, number, number]} */ (
    color.map((part, n) => Math.round(part * share + ground[n] * (1 - share)))
  );
}

/** @type {Map<string, string>} */
const kept = new Map();

/** A colour of style.css in the theme of now, which `retheme` forgets. @param {string} name */
export function themed(name) {
  const known = kept.get(name);
  if (known !== undefined) return known;
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim(),
    both = text.match(/^light-dark\(\s*(.+?),\s*(#\w+|rgba\([^)]*\))\s*\)$/);
  const found = both ? both[isDark() ? 2 : 1].trim() : text;
  kept.set(name, found);
  return found;
}

export function retheme() {
  kept.clear();
}

/** What the reader chose on the page, else in the system. */
export function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** @param {string} color @returns {[number, number, number]} */
export function rgb(color) {
  const number = Number.parseInt(color.slice(1, 7), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

/** Black or white, whichever has more contrast with a colour, which is never less than 4.5. @param {string} color */
export function inkOn(color) {
  const [r, g, b] = rgb(color).map((part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
