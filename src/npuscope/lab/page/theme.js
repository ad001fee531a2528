// The switch between light and dark; the reader's own setting is where it starts.

import { element } from "./format.js";
import { isDark, retheme } from "./colors.js";

/** @param {() => void} repaint */
export function switchTheme(repaint) {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  retheme();
  repaint();
}

/** Repaints when the system's setting changes. @param {() => void} repaint */
export function followTheme(repaint) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    retheme();
    repaint();
  });
}

/** @param {() => void} repaint */
export function themeButton(repaint) {
  return element(
    "button",
    { "aria-label": "Switch between light and dark", title: "Light or dark (L)", onclick: () => switchTheme(repaint) },
    "◐",
  );
}
