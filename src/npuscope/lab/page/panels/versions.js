// The versions of the program: every save and every turned knob; go back to one, compare any two.

import { duration, element, fill, percent, worded } from "../format.js";
import { wallOf } from "../header.js";
import { liveOf } from "../store.js";
import { changes } from "./source_changes.js";

const WRITE = "write these files back …";

/** @typedef {import("../types").Version} Version */

/** @param {import("../types").Store} store @param {Version} version @param {Version | undefined} shown */
function outcome(store, version, shown) {
  if (version.trouble) return element("span.bad", { title: version.trouble.message }, "does not run");
  const wall = wallOf(version.wall),
    other = wallOf(shown?.wall);
  if (wall === null) return element("span.soft", liveOf(store).working.includes(version.id) ? "working …" : "–");
  if (!other || shown?.id === version.id) return element("span", duration(wall));
  const change = wall / other - 1;
  if (Math.abs(change) < 0.0005) return element("span", `${duration(wall)} `, element("span.soft", "the same"));
  return element(
    "span",
    `${duration(wall)} `,
    element("span", { class: change <= 0 ? "good" : "bad" }, `${change < 0 ? "" : "+"}${percent(change)}`),
  );
}

/** @type {import("../types").Panel} */
export const panel = {
  id: "versions",
  title: "Versions",
  group: "try",
  has: (_, state) => state.live !== null && state.versions.length > 0,
  mount(box, store) {
    const { ask: server } = liveOf(store),
      ask = () => server;
    const list = element("div"),
      below = element("div");
    const failed = (/** @type {Error} */ error) => {
      fill(below, element("p.bad", { role: "alert" }, error.message));
    };
    box.append(
      element(
        "p.soft",
        "Every save and every turned knob is a version. Percentages are against the one that is shown.",
      ),
      list,
      below,
    );

    /** Renames in place. @param {Version} version @param {HTMLElement} cell */
    const rename = (version, cell) => {
      const input = element("input", { value: version.name, "aria-label": `Name of ${version.name}`, maxlength: "80" });
      let over = false;
      const done = (/** @type {boolean} */ keep) => {
        if (over) return; // taking the input away is a blur, too
        over = true;
        if (keep && input.value.trim() && input.value.trim() !== version.name)
          ask().rename(version.id, input.value.trim()).catch(failed);
        input.remove();
        draw();
      };
      input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter") done(true);
        else if (event.key === "Escape") {
          event.stopPropagation();
          done(false);
        }
      });
      input.addEventListener("blur", () => done(true));
      fill(cell, input);
      input.focus();
      input.select();
    };

    /** The files of a version against those of another. @param {Version} version */
    const source = async (version) => {
      const shown = store.state.versions.find((one) => one.id === store.state.run),
        others = await ask().sources(version.id);
      const now = shown && !shown.measured && shown.id !== version.id ? await ask().sources(shown.id) : null;
      const files = Object.entries(others),
        differ = now === null ? [] : files.filter(([file, text]) => now[file] !== text);
      const write = element("button", WRITE);
      /** The save that would be written over, once the reader was asked. @type {Version | null | undefined} */
      let over = null;
      write.addEventListener("click", () => {
        if (!over) {
          over = ask().onDisk();
          write.textContent = `overwrite the files on disk (${over?.name}) with those of “${version.name}”?`;
          return;
        }
        const newest = over;
        over = null;
        write.textContent = WRITE;
        ask()
          .writeBack(version.id, newest.id)
          .then((/** @type {any} */ done) =>
            fill(
              below,
              element(
                "p",
                { role: "status" },
                done.written.length
                  ? `wrote ${done.written.join(", ")}`
                  : "nothing to write: the files are as they were then",
              ),
            ),
          )
          .catch(failed);
      });
      fill(
        below,
        element("h2", `Source of ${version.name}`),
        element("p", write),
        ...(now === null
          ? []
          : [
              element(
                "p.soft",
                differ.length
                  ? `against ${shown?.name}, which is shown:`
                  : `the same as ${shown?.name}, which is shown.`,
              ),
              changes(now, others),
            ]),
        ...files.map(([file, text]) =>
          element(
            "details",
            now === null && file === files[0][0] ? { open: "" } : {},
            element("summary", file),
            element("pre.source", /** @type {string} */ (text)),
          ),
        ),
      );
    };

    function draw() {
      if (list.contains(document.activeElement) && document.activeElement?.tagName === "INPUT") return; // a name is being written
      const { versions, run, beside } = store.state,
        shown = versions.find((one) => one.id === run);
      const act = (
        /** @type {string} */ text,
        /** @type {string} */ title,
        /** @type {() => any} */ what,
        able = true,
      ) =>
        element(
          "button",
          { title, disabled: able ? null : "", onclick: () => Promise.resolve(what()).catch(failed) },
          text,
        );
      fill(
        list,
        element(
          "div.scroll",
          element(
            "table.versions",
            element(
              "thead",
              element(
                "tr",
                ...[
                  ["version", ""],
                  ["when", ""],
                  ["time", "number"],
                  ["what bounds it", ""],
                  ["", ""],
                ].map(([title, style]) => element("th", { scope: "col", class: style }, title)),
              ),
            ),
            element(
              "tbody",
              ...[...versions].reverse().map((version) => {
                const name = element(
                  "td.name",
                  act(version.name, "Rename", () => rename(version, name)),
                );
                const settings = Object.entries(version.settings)
                  .map(([key, value]) => `${key} = ${value}`)
                  .join(", ");
                if (settings && settings.replaceAll(" ", "") !== version.name.replaceAll(" ", ""))
                  name.append(element("span.soft", ` ${settings}`));
                return element(
                  "tr",
                  {
                    class: version.id === run ? "chosen" : version.id === beside ? "beside" : "",
                    "data-version": version.id,
                  },
                  name,
                  element("td.when", version.measured ? "measured" : new Date(version.at * 1000).toLocaleTimeString()),
                  element("td.number", outcome(store, version, shown)),
                  element(
                    "td.bound",
                    ...worded(version.trouble ? version.trouble.message : version.verdict),
                    ...version.noticed.map((line) => element("div.bad", line)),
                  ),
                  element(
                    "td.do",
                    element(
                      "span.acts",
                      act(
                        "show",
                        "Show this version",
                        () => ask().take(version.id, true),
                        version.has_run && version.id !== run,
                      ),
                      act(
                        "compare",
                        `What has changed from this one to ${shown?.name ?? "the one shown"}`,
                        () => ask().compare(version.id, run),
                        version.has_run && version.id !== run && shown?.has_run,
                      ),
                      act("source", "The files as they were", () => source(version), version.has_source),
                    ),
                  ),
                );
              }),
            ),
          ),
        ),
      );
    }
    return { update: draw, destroy() {} };
  },
};
