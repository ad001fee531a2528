// The switch between light and dark; the reader's own setting is where it starts.

import { element } from "./format.js";

/** @param {() => void} repaint */
export function switchTheme(repaint) {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  repaint();
}

/** @param {() => void} repaint */
export function themeButton(repaint) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  return element(
    "button",
    { "aria-label": "Switch between light and dark", title: "Light or dark (L)", onclick: () => switchTheme(repaint) },
    "◐",
  );
}
