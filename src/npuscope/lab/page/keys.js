// The keyboard, wherever the reader is: nothing must be clicked first.

/** Keys and what they do, as the help sheet lists them. @type {[string, string][]} */
export const KEYS = [
  ["W  S", "zoom in, out, where the mouse is"],
  ["A  D", "move left, right"],
  ["0", "show everything"],
  ["← →", "next slice of the lane"],
  ["↑ ↓", "slice on the lane above, below"],
  ["Z", "zoom to what is selected"],
  ["M", "pin what is selected, with a note"],
  ["P  C", "to a producer, to a consumer"],
  ["/", "find a kernel; Enter next, Shift+Enter previous"],
  ["N  B", "next hit, hit before"],
  ["[  ]", "cause before, next cause"],
  ["1 … 9", "panel by its place"],
  ["T", "timeline above a panel, or only its overview"],
  ["PgUp PgDn", "scroll the lanes"],
  ["L", "light or dark"],
  ["?", "this sheet"],
  ["Esc", "close, else select nothing, else show everything"],
];

/** @param {import("./shell.js").Shell} shell */
export function listenKeys(shell) {
  const { pane, store, diagnosis, selection } = shell;
  /** @type {Record<string, () => void>} */
  const act = {
    w: () => pane.zoom(0.7),
    s: () => pane.zoom(1 / 0.7),
    "+": () => pane.zoom(0.7),
    "=": () => pane.zoom(0.7),
    "-": () => pane.zoom(1 / 0.7),
    a: () => pane.pan(-0.25),
    d: () => pane.pan(0.25),
    0: () => pane.all(),
    ArrowLeft: () => pane.step(-1, 0),
    ArrowRight: () => pane.step(1, 0),
    ArrowUp: () => pane.step(0, -1),
    ArrowDown: () => pane.step(0, 1),
    z: () => pane.zoomToSelection(),
    m: () => shell.pins.add(),
    p: () => selection.follow("producers"),
    c: () => selection.follow("consumers"),
    "/": () => {
      pane.search.input.focus();
      pane.search.input.select();
    },
    n: () => pane.search.go(1),
    b: () => pane.search.go(-1),
    "[": () => diagnosis.go(-1),
    "]": () => diagnosis.go(1),
    t: () => store.set({ split: !store.state.split }),
    PageUp: () => pane.scroll(-0.8),
    PageDown: () => pane.scroll(0.8),
    l: () => shell.switchTheme(),
    "?": () => shell.toggleHelp(),
    Escape: () => escape(),
  };
  const escape = () => {
    if (store.state.selection !== null) store.set({ selection: null });
    else if (store.state.search !== "") store.set({ search: "" });
    else pane.all();
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || shell.help.open) return;
    const at = /** @type {HTMLElement} */ (event.target);
    if (at.matches("input:not([type=checkbox]), select, textarea, [contenteditable]")) return;
    const arrows = event.key.startsWith("Arrow") || event.key.startsWith("Page");
    // a panel below scrolls and moves by its own keys; tabs go by arrows
    if (arrows && at.closest("[role=tablist]")) {
      if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
        shell.nextTab(event.key === "ArrowRight" ? 1 : -1);
        event.preventDefault();
      }
      return;
    }
    if (arrows && at.closest(".panel-place, aside, table")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (/^[1-9]$/.test(key)) {
      shell.tab(Number(key) - 1);
      event.preventDefault();
      return;
    }
    const found = act[key];
    if (found === undefined) return;
    event.preventDefault();
    found();
  });
}
