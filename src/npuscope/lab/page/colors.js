// Colours that the colour-blind can tell apart: by lightness as well as by hue (Okabe and Ito; Tol).
// Kernels with the most core time get the most distinct ones; reasons for idle time keep theirs on every page.

const KERNELS = [
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

/** @param {number} rank */
export function kernelColor(rank) {
  return KERNELS[rank % KERNELS.length];
}

/** @param {string} reason */
export function reasonColor(reason) {
  return REASONS[reason] ?? MERGED;
}

/** How strong the colour of idle time is: nothing to do and nothing to say are faint. @param {string} reason */
export function strength(reason) {
  return reason === "edge" ? 0.12 : reason === "starved" ? 0.28 : 0.45;
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

/** Black or white, whichever reads better on a colour. @param {string} color */
export function inkOn(color) {
  const [r, g, b] = rgb(color).map((part) => (part / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#10151c" : "#ffffff";
}
