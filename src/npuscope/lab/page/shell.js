// The frame of the app: what it is about, tabs, the timeline above and a panel below it, diagnosis and selection beside.

import { element, fill } from "./format.js";
import { answer, newestSave } from "./header.js";
import { followTheme, switchTheme, themeButton } from "./theme.js";
import { linkOf, linkSays, selectionOf } from "./link.js";
import { Pane, modelOf } from "./timeline/pane.js";
import { DiagnosisBox } from "./diagnosis.js";
import { SelectionBox } from "./selection.js";
import { PinsBox } from "./pins.js";
import { splitter } from "./splitter.js";
import { listenKeys } from "./keys.js";
import { helpSheet } from "./help.js";
import { PANELS } from "./panels/all.js";

const FLASH_MS = 2600;

export class Shell {
  /** @param {import("./types").Store} store */
  constructor(store) {
    this.store = store;
    this.pane = new Pane(store);
    this.diagnosis = new DiagnosisBox(store, this.pane);
    this.pins = new PinsBox(store);
    this.selection = new SelectionBox(
      store,
      this.pane,
      () => this.pins.add(),
      () => `${location.href.split("#")[0]}#${this.link()}`,
    );
    this.help = helpSheet();
    this.tabs = element("div.tabs", { role: "tablist", "aria-label": "Panels" });
    this.place = element("section.panel-place", { id: "panel", role: "tabpanel", tabindex: "-1" });
    this.head = element("header");
    this.status = element("div.status", { role: "status", "aria-live": "polite", hidden: "" }); // for what the server says
    /** @type {import("./types").Room} */
    let from = store.state.room;
    const begin = () => (from = store.state.room);
    const rows = splitter("y", "Room for the timeline and for the panel", begin, (by) => {
      const share = from.timeline + (100 * by) / Math.max(this.main.clientHeight, 1);
      store.set({ room: { ...from, timeline: Math.round(Math.min(Math.max(share, 12), 88)) }, split: true });
    });
    const columns = splitter("x", "Room for the diagnosis", begin, (by) =>
      store.set({ room: { ...from, aside: Math.round(Math.min(Math.max(from.aside - by, 180), innerWidth * 0.6)) } }),
    );
    this.main = element("div.main", this.pane.box, rows, this.place);
    this.aside = element(
      "aside",
      { "aria-label": "Diagnosis and selection" },
      this.selection.box,
      this.pins.box,
      this.diagnosis.box,
    );
    this.box = element(
      "div.app",
      this.head,
      this.status,
      this.tabs,
      element("div.body", this.main, columns, this.aside),
      this.help,
    );
    /** @type {{id: string, run: import("./types").Run | undefined, payload: unknown, due: boolean, shared: unknown, made: import("./types").Mounted} | null} */
    this.mounted = null;
    this.first = store.state.run;
    this.box.dataset.runs = String(store.state.runs.length);
  }

  start() {
    const { store } = this;
    const { patch, select } = linkSays(location.hash, store.state);
    if (patch.panel === undefined && store.state.runs.length === 0) patch.panel = this.panels()[0]?.id; // about no run: no timeline
    store.set(patch);
    if (patch.window === undefined) store.set({ window: store.full() });
    const selection =
      select === null ? null : selectionOf(select, store.find, (run, slice) => modelOf(run).selection(slice));
    store.set({ selection });
    if (selection?.kind === "slice") this.pane.reveal(selection);
    this.drawHead();
    this.drawTabs();
    this.mount();
    store.on(["run", "rank"], () => this.flash());
    store.on(["runs", "run", "beside", "rank", "live", "versions", "shared"], () => {
      this.drawHead();
      this.drawTabs();
      this.mount();
    });
    store.on(["panel", "split", "shared"], () => {
      this.drawTabs();
      this.mount();
    });
    const makeRoom = () => {
      this.box.style.setProperty("--timeline", `${store.state.room.timeline}%`);
      this.box.style.setProperty("--aside", `${store.state.room.aside}px`);
    };
    store.on(["room"], makeRoom);
    makeRoom();
    /** @type {(keyof import("./types").State)[]} */
    const kept = [
      "run",
      "beside",
      "rank",
      "panel",
      "window",
      "selection",
      "search",
      "shown",
      "folded",
      "lanes",
      "pins",
      "split",
      "room",
    ];
    store.on(kept, () => this.keepLink());
    store.on(["selection", "window", "search", "shown", "versions", "live"], (state) =>
      this.mounted?.made.update?.(state),
    );
    addEventListener("hashchange", () => {
      if (location.hash.slice(1) !== this.link()) this.follow(location.hash);
    });
    listenKeys(this);
    followTheme(() => this.repaint());
  }

  /** What a link in the page, or a changed address, says. @param {string} hash */
  async follow(hash) {
    const { patch, rank, select } = linkSays(hash, this.store.state);
    await this.store.state.live?.ask.rank(rank);
    this.store.set({
      panel: this.store.state.opens,
      selection: null,
      search: "",
      ...patch,
      window: patch.window ?? this.store.full(),
    });
    if (select !== null)
      this.store.set({
        selection: selectionOf(select, this.store.find, (run, slice) => modelOf(run).selection(slice)),
      });
  }

  link() {
    const { state } = this.store; // a page that shows the newest save shows a newer one when it is opened again
    return linkOf(state, this.store.full(), newestSave(state.versions)?.id ?? this.first);
  }

  keepLink() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => history.replaceState(null, "", `#${this.link()}`), 120);
  }

  repaint() {
    this.pane.draw();
    this.pane.drawLegend();
    this.mounted?.made.repaint?.();
  }

  /** Shows a run; the server has those that the page does not hold. @param {string} id */
  show(id) {
    const { runs, live } = this.store.state;
    if (runs.some((one) => one.id === id)) this.store.set({ run: id });
    else live?.ask.take(id, true).catch((error) => live.ask.say(error.message));
  }

  /** Sets a run beside the shown one, or nothing. @param {string | null} id */
  async setBeside(id) {
    if (id !== null) await this.store.state.live?.ask.take(id, false);
    this.store.set({ beside: id });
  }

  drawHead() {
    const { store } = this,
      { state } = store;
    /** @type {{id: string, name: string}[]} */
    const able = state.live ? state.versions.filter((one) => one.has_run) : state.runs;
    const choose = (
      /** @type {string} */ label,
      /** @type {string | null} */ now,
      /** @type {{id: string, name: string}[]} */ runs,
      /** @type {string} */ before,
      /** @type {(id: string) => void} */ act,
    ) => {
      const box = element(
        "select",
        { "aria-label": label, title: label },
        before ? element("option", { value: "" }, "beside: none") : null,
        ...runs.map((one) => element("option", { value: one.id }, `${before}${one.name}`)),
      );
      box.value = now ?? "";
      box.addEventListener("change", () => act(box.value));
      return box;
    };
    const ranks = store.run()?.ranks ?? [],
      ofRanks = [
        { id: "all", name: `all ${ranks.length} ranks` },
        ...ranks.map((n) => ({ id: `${n}`, name: `rank ${n}` })),
      ];
    const several = able.length > 1,
      others = able.filter((one) => one.id !== state.run);
    fill(
      this.head,
      element("h1", state.title),
      several ? choose("Run", state.run, able, "", (id) => this.show(id)) : null,
      several
        ? choose("Run beside it", state.beside, others, "beside: ", (id) => this.setBeside(id === "" ? null : id))
        : null,
      ranks.length > 1
        ? choose("Rank", state.rank || `${store.run().rank}`, ofRanks, "", (id) =>
            state.live?.ask.rank(id).catch((error) => state.live?.ask.say(error.message)),
          )
        : null,
      ...answer(store, (id) => this.show(id)),
      element("span.grow"),
      element(
        "span.acts",
        ...state.links.map(([text, address]) =>
          element("a", { href: address, "aria-label": `open in ${text.split(" ")[0]}` }, text),
        ),
        element(
          "button",
          { "aria-label": "Keyboard and mouse", title: "Help (?)", onclick: () => this.toggleHelp() },
          "?",
        ),
        themeButton(() => this.repaint()),
      ),
    );
  }

  /** For a moment the header says that another run is shown now. */
  flash() {
    clearTimeout(this.flashing);
    this.head.classList.add("flash");
    this.flashing = setTimeout(() => this.head.classList.remove("flash"), FLASH_MS);
  }

  /** The panels that this document has something for. */
  panels() {
    const run = this.store.run();
    return PANELS.filter((panel) => panel.has(run, this.store.state) || run?.expected?.includes(panel.id)); // of a document without a run, those that belong to none
  }

  drawTabs() {
    const { store } = this,
      { panel, split } = store.state,
      none = store.state.runs.length === 0,
      all = [...(none ? [] : [{ id: "timeline", title: "Timeline", group: "run" }]), ...this.panels()];
    const groups = new Set(all.map((one) => one.group)),
      place = new Map(all.map((one, n) => [one.id, n]));
    fill(
      this.tabs,
      ...[...groups].flatMap((group) => [
        groups.size > 1 ? element("span.group", { role: "presentation" }, group) : "",
        ...all
          .filter((one) => one.group === group)
          .map((one) => {
            const n = place.get(one.id) ?? 9;
            return element(
              "button",
              {
                role: "tab",
                id: `tab-${one.id}`,
                "aria-controls": "panel",
                "aria-selected": String(one.id === panel),
                tabindex: one.id === panel ? "0" : "-1",
                title: n < 9 ? `${one.title} (${n + 1})` : one.title,
                onclick: () => store.set({ panel: one.id }),
              },
              one.title,
            );
          }),
      ]),
      element("span.grow"),
      panel === "timeline" || none
        ? null
        : element(
            "button.plain.split",
            {
              "aria-pressed": String(split),
              title: "The timeline above a panel, or only its overview (T)",
              onclick: () => store.set({ split: !split }),
            },
            split ? "▴ fold" : "▾ timeline",
          ),
    );
  }

  mount() {
    const { state } = this.store,
      run = this.store.run(),
      panel = this.panels().find((one) => one.id === state.panel) ?? null;
    this.box.dataset.panel = panel === null ? "timeline" : panel.id;
    this.box.dataset.split = String(state.split);
    const due = panel !== null && !panel.has(run, state),
      payload = run?.panels[panel?.id ?? ""]; // the server makes it after the timeline
    if (
      this.mounted !== null &&
      this.mounted.id === panel?.id &&
      this.mounted.run === run &&
      this.mounted.payload === payload &&
      this.mounted.due === due &&
      this.mounted.shared === state.shared
    ) {
      this.mounted.made.update?.(state);
      return;
    }
    if (this.mounted?.id !== panel?.id) this.place.scrollTop = 0;
    this.mounted?.made.destroy?.();
    this.mounted = null;
    this.place.replaceChildren();
    this.place.hidden = panel === null;
    if (panel !== null) {
      this.place.setAttribute("aria-labelledby", `tab-${panel.id}`);
      if (due) this.place.append(element("p.soft", "being made …"));
      this.mounted = {
        id: panel.id,
        run,
        payload,
        due,
        shared: state.shared,
        made: due ? {} : panel.mount(this.place, this.store),
      };
      this.mounted.made.update?.(state);
    }
  }

  /** The tabs in their order. */
  ids() {
    return [...(this.store.state.runs.length ? ["timeline"] : []), ...this.panels().map((panel) => panel.id)];
  }

  /** The next tab. @param {number} by */
  nextTab(by) {
    const ids = this.ids(),
      place = ids.indexOf(this.store.state.panel);
    this.store.set({ panel: ids[(place + by + ids.length) % ids.length] });
    document.getElementById(`tab-${this.store.state.panel}`)?.focus();
  }

  /** @param {number} place */
  tab(place) {
    const id = this.ids()[place];
    if (id !== undefined) this.store.set({ panel: id });
  }

  toggleHelp() {
    if (this.help.open) this.help.close();
    else this.help.showModal();
  }
  switchTheme() {
    switchTheme(() => this.repaint());
  }
}
