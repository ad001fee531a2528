// The knobs of the program: constants, options and fields with the values that divide. Turning one simulates the variant.

import { duration, element, fill } from "../format.js";
import { wallOf } from "../header.js";
import { placeText } from "../live.js";
import { liveOf } from "../store.js";

/** @typedef {{name: string, value: string | number | boolean | null, values: (string | number | boolean)[], file: string, line: number, text: string, cuts: string[]}} Knob */

/** @param {Record<string, unknown>} a @param {Record<string, unknown>} b */
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

/** The run whose knobs are shown: the one that is shown, else the newest that has some. @param {import("../types").State} state */
function holder(state) {
  const shown = state.runs.find((run) => run.id === state.run);
  return shown?.panels.knobs ? shown : state.runs.findLast((run) => run.panels.knobs !== undefined);
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "knobs",
  title: "Knobs",
  group: "try",
  has: (_, state) => state.live !== null && holder(state) !== undefined,
  mount(box, store) {
    const list = element("div"),
      below = element("p.bad", { role: "alert", hidden: "" });
    const failed = (/** @type {Error} */ error) => {
      below.textContent = error.message;
      below.hidden = false;
    };
    box.append(
      element(
        "p.soft",
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
      const live = liveOf(store),
        disk = live.ask.onDisk();
      const { knobs, settings } = /** @type {{knobs: Knob[], settings: Record<string, string>}} */ (run.panels.knobs),
        own = state.versions.find((one) => one.id === run.id);
      const alike = state.versions.filter((one) => !one.measured && one.source === own?.source);
      const key = JSON.stringify([
        run.id,
        alike.map((one) => [one.id, wallOf(one.wall), one.trouble !== null]),
        live.working,
        disk?.source,
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
      const isOld = disk !== undefined && own !== undefined && disk.source !== own.source;
      const focus = list.contains(document.activeElement)
        ? /** @type {HTMLElement} */ (document.activeElement).dataset.turn
        : undefined;
      const turn = (/** @type {string} */ name, /** @type {string | number | boolean} */ value, show = true) => {
        below.hidden = true;
        return live.ask
          .turn({ ...settings, [name]: typeof value === "boolean" ? Number(value) : value }, show)
          .catch(failed);
      };
      /** The version with a value of a knob, all else as here. @param {string} name @param {string | number | boolean} value */
      const found = (name, value) =>
        alike
          .filter((one) =>
            same(one.settings, { ...settings, [name]: typeof value === "boolean" ? Number(value) : value }),
          )
          .pop() ?? (String(now(name)) === String(value) ? own : undefined);
      const now = (/** @type {string} */ name) => settings[name] ?? knobs.find((one) => one.name === name)?.value;
      const best = (/** @type {Knob} */ knob) =>
        Math.min(...knob.values.map((value) => wallOf(found(knob.name, value)?.wall) ?? Infinity));

      const lines = knobs.map((knob) => {
        const least = best(knob),
          tried = knob.values.filter((value) => wallOf(found(knob.name, value)?.wall) !== null).length;
        const buttons = knob.values.map((value) => {
          const version = found(knob.name, value),
            wall = wallOf(version?.wall),
            is = String(now(knob.name)) === String(value),
            works = version && live.working.includes(version.id);
          const note = version?.trouble
            ? "does not run"
            : version?.noticed.some((line) => line.startsWith(`${knob.name} `))
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
              disabled: isOld && !version?.has_run ? "" : null,
              onclick: () => {
                if (version?.has_run) live.ask.take(version.id, true).catch(failed);
                else if (!works) turn(knob.name, value);
              },
            },
            element("b", String(value)),
            note ? element("span", note) : null,
          );
        });
        const free = element("input", {
          disabled: isOld ? "" : null,
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
          knob.values.length > 2 && !isOld
            ? element(
                "button.plain",
                {
                  title: "Simulate every value",
                  onclick: () => {
                    for (const value of knob.values) if (!found(knob.name, value)) turn(knob.name, value, false);
                  },
                },
                "try all",
              )
            : null;
        const written = settings[knob.name];
        const write =
          written === undefined || isOld
            ? null
            : element(
                "button.plain",
                {
                  title: `Write ${knob.name} = ${written} into ${placeText(knob).replace(/: $/, "")}`,
                  onclick: () => live.ask.writeSettings({ [knob.name]: written }).catch(failed),
                },
                "write into the file",
              );
        return element(
          "div.knob-line",
          { "data-knob": knob.name },
          element(
            "div",
            element("b.source", knob.name),
            element("span.soft", ` ${knob.text}, ${placeText(knob).replace(/: $/, "")}`),
          ),
          element("div.knob-values", ...buttons, free, all, write),
        );
      });
      const tiles = knobs.filter((knob) => knob.cuts.length).length;
      fill(
        list,
        isOld
          ? element(
              "p.verdict",
              `These are the knobs of ${own?.name}, but the files hold ${disk.name}: a knob is tried with the files as they are. Show ${disk.name}, or write ${own?.name} back in Versions.`,
            )
          : null,
        knobs.length === 0
          ? element(
              "p.soft",
              "No constant, option or field of this program can be turned. Give a size a name, such as TILE = 128.",
            )
          : null,
        ...lines.slice(0, tiles),
        tiles && tiles < lines.length
          ? element(
              "details",
              { open: tiles === 0 ? "" : null },
              element("summary", "sizes and options, which change what is computed"),
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
