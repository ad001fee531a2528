// Colours: the largest kernels get the most distinct ones; reasons for idle time keep theirs on every page.

const KERNELS = [
  "#3f7fd0", "#e08a2e", "#3fa35b", "#c9504b", "#8a63c2", "#2fa5a5", "#b8862b", "#d06aa8",
  "#6b8f2a", "#5a6fd8", "#c2603a", "#2f8a7a", "#a04f8f", "#7a8794", "#4f9ad0", "#d0a23f",
];

const REASONS = {
  "run": "#6f9bd8",
  "dependency": "#e3b23c",
  "FIN": "#d9772b",
  "dispatch": "#d1495b",
  "pickup": "#a23b72",
  "starved": "#9aa3ad",
  "edge": "#c9ced6",
};
const MERGED = "#b59f7b"; // reasons that this capture cannot tell apart

export function kernelColor(rank) {
  return KERNELS[rank % KERNELS.length];
}

export function reasonColor(reason) {
  return REASONS[reason] ?? MERGED;
}

export function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
