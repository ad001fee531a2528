// A small editor: a text area over the same text in colours. Saved to the file by the server, which refuses to write over
// what nobody here has seen.

import { element, fill } from "../format.js";
import { coloured, highlighted } from "../python_text.js";

const INDENT = "    ";

export class Editor {
  /** @param {string} path @param {string} text as the file has it @param {import("../live.js").Live} ask @param {() => void} close */
  constructor(path, text, ask, close) {
    this.path = path;
    this.saved = text; // what the file holds as far as is known here
    this.ask = ask;
    /** Texts that were saved over, the newest last. @type {string[]} */
    this.before = [];
    /** @type {Set<number>} */
    this.faults = new Set();
    /** @type {number[] | null} */
    this.caret = null;
    const name = path.split("/").at(-1) ?? path;
    this.area = /** @type {HTMLTextAreaElement} */ (
      element("textarea", { spellcheck: "false", wrap: "off", autocomplete: "off", "aria-label": `Text of ${name}` })
    );
    this.area.value = text;
    this.back = element("pre", { "aria-hidden": "true" });
    this.note = element("span.soft", { role: "status" });
    const act = (/** @type {string} */ words, /** @type {string} */ title, /** @type {() => void} */ what) =>
      element("button", { title, onclick: what }, words);
    this.undo = act("undo the save", "The file as it was before the last save from here", () => this.takeBack());
    this.box = element(
      "div.editing",
      element(
        "div.tools",
        element("b.source", name),
        act("save", "Write the file (Ctrl+S)", () => this.save()),
        this.undo,
        act("close", "Back to the lines with their times", close),
        this.note,
      ),
      element("div.editor", this.back, this.area),
    );
    this.area.addEventListener("input", () => {
      this.note.textContent = this.area.value === this.saved ? "" : "not saved";
      this.draw();
    });
    this.area.addEventListener("scroll", () => this.scroll());
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.draw();
  }

  /** Before the panel is drawn anew: where the reader writes. */
  keepCaret() {
    const { selectionStart, selectionEnd, scrollTop } = this.area;
    this.caret = document.activeElement === this.area ? [selectionStart, selectionEnd, scrollTop] : null;
  }

  /** Lines that do not run. @param {number[]} lines */
  mark(lines) {
    this.faults = new Set(lines);
    this.draw();
  }

  draw() {
    const lines = highlighted(this.area.value.split("\n"));
    fill(
      this.back,
      ...lines.map((parts, n) =>
        element(
          "div",
          { class: this.faults.has(n + 1) ? "failed" : null },
          element("span.line", String(n + 1)),
          ...coloured(parts),
          "\n",
        ),
      ),
    );
    this.undo.hidden = this.before.length === 0;
    this.scroll();
  }

  scroll() {
    this.back.scrollTop = this.area.scrollTop;
    this.back.scrollLeft = this.area.scrollLeft;
  }

  /** Text at the caret, which the browser's own undo takes back. @param {string} text */
  type(text) {
    document.execCommand("insertText", false, text);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    event.stopPropagation(); // letters are no commands here
    const { selectionStart: at, value } = this.area;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") this.save();
    else if (event.key === "Tab" && !event.shiftKey) this.type(INDENT);
    else if (event.key === "Enter" && !event.ctrlKey && !event.shiftKey) {
      const line = value.slice(value.lastIndexOf("\n", at - 1) + 1, at),
        [indent] = line.match(/^[ \t]*/) ?? [""];
      this.type(`\n${indent}${/[:([{]\s*$/.test(line) ? INDENT : ""}`);
    } else return;
    event.preventDefault();
  }

  /** Goes to a line. @param {number} line */
  goTo(line) {
    const lines = this.area.value.split("\n").slice(0, Math.max(line - 1, 0)),
      place = lines.join("\n").length + (lines.length ? 1 : 0);
    this.area.focus();
    this.area.setSelectionRange(place, place);
    this.area.scrollTop = Math.max(line - 6, 0) * 18;
    this.scroll();
  }

  async save() {
    const text = this.area.value,
      before = this.saved;
    if (text === before) return;
    if (await this.write(text)) this.before.push(before);
    this.draw();
  }

  async takeBack() {
    const text = this.before.at(-1);
    if (text === undefined || !(await this.write(text))) return;
    this.before.pop();
    this.area.value = text;
    this.draw();
  }

  /** @param {string} text */
  async write(text) {
    try {
      await this.ask.edit(this.path, text, this.saved);
    } catch (error) {
      this.note.textContent = /** @type {Error} */ (error).message;
      return false;
    }
    this.saved = text;
    this.note.textContent = "saved";
    return true;
  }
}
