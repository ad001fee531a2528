// Panels that are a report of parts: those that the document has, and those that the server makes when they are opened.

import { element, fill } from "../format.js";
import { partsOf } from "../parts.js";
import { isCapture } from "../store.js";

/** @typedef {import("../types").Run} Run */
/** What can be asked for: fields with their values at first; `now`: it is asked for when the panel is opened. @typedef {{for: (run: Run) => boolean, words: string, fields: [string, string][], now?: boolean}} Asked */

/** Id, title, group, and what a served page asks for. @type {[string, string, "run" | "program", Asked?][]} */
const REPORTS = [
  ["step", "Step", "run"],
  ["rank", "Variants", "run"],
  ["sweep", "Settings", "run"],
  [
    "roofline",
    "Roofline",
    "run",
    {
      for: isCapture,
      words: "Every kernel against the limits of its chip.",
      fields: [["device", ""]],
      now: true,
    },
  ],
  [
    "passes",
    "Passes",
    "run",
    { for: isCapture, words: "Forward passes and their layers.", fields: [["anchor", ""]], now: true },
  ],
  ["align", "Alignment", "run"],
  ["several", "Several runs", "run"],
  ["values", "Values", "run"],
  ["history", "History", "run"],
  ["sql", "SQL", "run", { for: () => true, words: "A question to the tables of the trace.", fields: [["text", ""]] }],
  [
    "tpot",
    "TPOT",
    "program",
    {
      for: (run) => !isCapture(run),
      words: "The time per token of a program that is one decode step, over a growing context.",
      fields: [
        ["batch", "16"],
        ["context", "4096"],
        ["tokens", "48"],
      ],
    },
  ],
];

/** What was asked and answered stays while the page does. @type {WeakMap<Run, Record<string, {parts: any[]}>>} */
const kept = new WeakMap();
/** The last query. */
const last = { text: "" };

/**
 * A form and its answer; what takes nothing is asked for at once.
 * @param {string} id @param {Asked} asked @param {HTMLElement} box @param {import("../types").Store} store
 */
function mountAsked(id, asked, box, store) {
  const run = store.run(),
    answers = kept.get(run) ?? {},
    ask = store.state.live?.ask,
    examples = store.state.live?.examples ?? []; // of explain/sql.py: question and query
  last.text ||= examples[0]?.[1] ?? "";
  kept.set(run, answers);
  const shown = element("div.parts", { "data-panel": id }),
    status = element("p.soft", { role: "status" });
  const draw = () => fill(shown, ...(answers[id] ? partsOf(answers[id].parts) : []));
  const inputs = asked.fields.map(([name, value]) => {
    const isText = name === "text";
    const input = isText
      ? element("textarea.query.source", { rows: "4", spellcheck: "false", "aria-label": "Query" })
      : element("input", { size: "12", "aria-label": name, placeholder: value === "" ? "found by itself" : null });
    input.value = isText ? last.text : value;
    return { name, input, isText };
  });
  const send = async () => {
    const body = Object.fromEntries(
      inputs
        .filter(({ input }) => input.value.trim() !== "")
        .map(({ name, input }) => [name, /^\d+$/.test(input.value) ? Number(input.value) : input.value]),
    );
    last.text = body.text ?? last.text;
    status.textContent = "working …";
    try {
      answers[id] = await ask?.panel(run.id, id, body);
      status.textContent = "";
    } catch (error) {
      status.textContent = /** @type {Error} */ (error).message;
    }
    draw();
  };
  const form = element(
    "form.tools",
    element("span.soft", asked.words),
    ...inputs.map(({ name, input, isText }) => (isText ? input : element("label", `${name} `, input))),
    inputs.length ? element("button", "ask") : null,
    ...(id === "sql"
      ? examples.map(([words, text]) =>
          element(
            "button.plain",
            {
              type: "button",
              onclick: () => {
                inputs[0].input.value = text;
                send();
              },
            },
            words,
          ),
        )
      : []),
  );
  form.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    send();
  });
  form.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
  });
  box.append(form, status, shown);
  if (answers[id]) draw();
  else if (asked.now) send();
}

/** @type {import("../types").Panel[]} */
export const reports = REPORTS.map(([id, title, group, asked]) => ({
  id,
  title,
  group,
  has: (run, state) =>
    Boolean(state.shared[id] ?? run?.panels[id]) ||
    (state.live !== null && run !== undefined && Boolean(asked?.for(run))),
  mount(box, store) {
    const found = store.state.shared[id] ?? store.run()?.panels[id];
    if (found) box.append(element("div.parts", { "data-panel": id }, ...partsOf(found.parts)));
    else if (asked) mountAsked(id, asked, box, store);
    return {};
  },
}));
