// The knobs of the program: constants, options and fields with the values that divide. Turning one simulates the variant.

import { duration, element, fill } from "../format.js";
import { placeText } from "../live.js";

/** @param {any} version */
const wallOf = (version) => (version?.wall ? (version.wall.value ?? version.wall.ns ?? version.wall) : null);

/** @param {any} a @param {any} b */
const same = (a, b) =>
  JSON.stringify(
    Object.entries(a)
      .map(([k, v]) => [k, String(v)])
      .sort(),
  ) ===
  JSON.stringify(
    Object.entries(b)
      .map(([k, v]) => [k, String(v)])
      .sort(),
  );

/** The run whose knobs are shown: the one that is shown, else the newest that has some. @param {any} state */
function holder(state) {
  const shown = state.runs.find((/** @type {any} */ run) => run.id === state.run);
  return shown?.panels.knobs
    ? shown
    : [...state.runs].reverse().find((/** @type {any} */ run) => run.panels.knobs !== undefined);
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "knobs",
  title: "Knobs",
  has: (_, state) => state.live !== null && holder(state) !== undefined,
  mount(box, store) {
    const list = element("div", {}),
      below = element("p", { class: "bad", role: "alert", hidden: "" });
    const failed = (/** @type {Error} */ error) => {
      below.textContent = error.message;
      below.hidden = false;
    };
    box.append(
      element(
        "p",
        { class: "soft" },
        "A press simulates the program with that value and adds it to the versions; the file stays as it is. Times are of the whole run.",
      ),
      below,
      list,
    );
    let drawn = "";

    function draw() {
      const { state } = store,
        run = holder(state);
      if (!run) return;
      const { knobs, settings } = run.panels.knobs,
        own = state.versions.find((one) => one.id === run.id);
      const alike = state.versions.filter((one) => !one.measured && one.source === own?.source);
      const key = JSON.stringify([
        run.id,
        alike.map((one) => [one.id, wallOf(one), one.trouble !== null]),
        state.live.working,
      ]);
      if (
        key === drawn ||
        (list.contains(document.activeElement) &&
          document.activeElement?.tagName === "INPUT" &&
          key.startsWith(`["${run.id}"`) &&
          drawn !== "")
      )
        return;
      drawn = key;
      const focus = list.contains(document.activeElement)
        ? /** @type {HTMLElement} */ (document.activeElement).dataset.turn
        : undefined;
      const turn = (/** @type {string} */ name, /** @type {any} */ value, show = true) => {
        below.hidden = true;
        return state.live.ask
          .turn({ ...settings, [name]: typeof value === "boolean" ? Number(value) : value }, show)
          .catch(failed);
      };
      /** The version with a value of a knob, all else as here. @param {string} name @param {any} value */
      const found = (name, value) =>
        alike
          .filter((one) =>
            same(one.settings, { ...settings, [name]: typeof value === "boolean" ? Number(value) : value }),
          )
          .pop() ?? (String(now(name)) === String(value) ? own : undefined);
      const now = (/** @type {string} */ name) =>
        settings[name] ?? knobs.find((/** @type {any} */ one) => one.name === name)?.value;
      const best = (/** @type {any} */ knob) =>
        Math.min(...knob.values.map((/** @type {any} */ value) => wallOf(found(knob.name, value)) ?? Infinity));

      const lines = knobs.map((/** @type {any} */ knob) => {
        const least = best(knob),
          tried = knob.values.filter((/** @type {any} */ value) => wallOf(found(knob.name, value)) !== null).length;
        const buttons = knob.values.map((/** @type {any} */ value) => {
          const version = found(knob.name, value),
            wall = wallOf(version),
            is = String(now(knob.name)) === String(value),
            works = version && state.live.working.includes(version.id);
          const note = version?.trouble
            ? "does not run"
            : version?.noticed.some((/** @type {string} */ line) => line.startsWith(`${knob.name} `))
              ? "no effect"
              : wall !== null
                ? duration(wall)
                : works
                  ? "working …"
                  : "";
          return element(
            "button",
            {
              class: `knob${is ? " is" : ""}${version?.trouble ? " not" : ""}${wall !== null && wall === least && tried > 1 ? " best" : ""}`,
              "aria-pressed": String(is),
              "data-turn": `${knob.name}=${value}`,
              title: version?.trouble
                ? `${placeText(version.trouble)}${version.trouble.message}`
                : is
                  ? "as the program has it now"
                  : wall === null
                    ? "simulate it"
                    : "show it",
              onclick: () => {
                if (version?.has_run) state.live.ask.take(version.id, true).catch(failed);
                else if (!works) turn(knob.name, value);
              },
            },
            element("b", {}, String(value)),
            note ? element("span", {}, note) : null,
          );
        });
        const free = element("input", {
          placeholder: "another value",
          "aria-label": `Another value of ${knob.name}`,
          size: "10",
        });
        free.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
          if (event.key === "Enter" && free.value.trim()) {
            turn(knob.name, free.value.trim());
            free.value = "";
            free.blur();
          }
        });
        const all =
          knob.values.length > 2
            ? element(
                "button",
                {
                  class: "plain",
                  title: "Simulate every value",
                  onclick: () => {
                    for (const value of knob.values) if (!found(knob.name, value)) turn(knob.name, value, false);
                  },
                },
                "try all",
              )
            : null;
        return element(
          "div",
          { class: "knob-line", "data-knob": knob.name },
          element(
            "div",
            {},
            element("b", { class: "source" }, knob.name),
            element("span", { class: "soft" }, ` ${knob.text}, ${placeText(knob).replace(/: $/, "")}`),
          ),
          element("div", { class: "knob-values" }, ...buttons, free, all),
        );
      });
      const tiles = knobs.filter((/** @type {any} */ knob) => knob.cuts.length).length;
      fill(
        list,
        ...lines.slice(0, tiles),
        tiles && tiles < lines.length
          ? element(
              "details",
              { open: tiles === 0 ? "" : null },
              element("summary", {}, "sizes and options, which change what is computed"),
              ...lines.slice(tiles),
            )
          : null,
        ...(tiles ? [] : lines),
      );
      if (focus) /** @type {HTMLElement | null} */ (list.querySelector(`[data-turn="${CSS.escape(focus)}"]`))?.focus();
    }
    return { update: draw };
  },
};
