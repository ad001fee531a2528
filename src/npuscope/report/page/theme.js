// The switch between light and dark; the reader's own setting is where it starts.

import { element } from "./format.js";

export function themeButton(repaint) {
  const root = document.documentElement;
  const button = element("button", { "aria-label": "Switch between light and dark" }, "◐");
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    repaint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  return button;
}
