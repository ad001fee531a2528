// The page's talk with its server: it follows what happens there, and asks for what the reader wants.
// Without a server (a page that is a file) none of this runs.

import { element, fill } from "./format.js";
import { newestSave } from "./header.js";
import { unpackAll } from "./packed.js";
import { isCapture, liveOf } from "./store.js";

/** @typedef {import("./types").Version} Version */

const MOST_RUNS = 24, // held by the page; the server has the others
  SILENT_MS = 3000, // a stream that has not begun by then is held back on its way
  ASK_MS = 1000;

/** @param {string} address @param {object | undefined} body */
async function asked(address, body = undefined) {
  const how =
    body === undefined
      ? {}
      : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(address, how);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.message ?? `the server answered ${answer.status}`);
  return found;
}

/** A place in the program as people write it. @param {{file?: string, line?: number}} at */
export function placeText(at) {
  const name = (at.file ?? "").split("/").pop();
  return name ? `${name}${at.line ? `:${at.line}` : ""}: ` : "";
}

/** The versions of a document's server, newest last, with the one of this number changed or added. @param {Version[]} versions @param {Version} version */
function withVersion(versions, version) {
  return versions.some((one) => one.id === version.id)
    ? versions.map((one) => (one.id === version.id ? version : one))
    : [...versions, version];
}

export class Live {
  /** @param {import("./types").Store} store @param {HTMLElement} status @param {() => void} redraw */
  constructor(store, status, redraw) {
    this.store = store;
    this.status = status;
    this.redraw = redraw;
    /** Versions that the reader asked for here and waits to see. @type {Set<string>} */
    this.wanted = new Set();
    this.comparing = ""; // the pair that is being compared
    const { live } = this;
    store.set({
      live: { ...live, lost: false, gone: false, notice: "", failed: null, broken: null, look: null, ask: this },
    });
    store.on(["run"], () => this.note());
    store.on(["run", "beside", "panel"], () => this.compareAgain());
    this.note();
    if (live.perfetto) {
      store.on(["run"], () => this.link());
      this.link();
    }
  }

  /** Captures that are dropped onto the page are read; two of them, or one beside a run, are compared. */
  takeDrops() {
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", async (event) => {
      const files = [...(event.dataTransfer?.files ?? [])];
      if (files.length === 0) return;
      event.preventDefault();
      try {
        const before = this.store.state.run,
          /** @type {string[]} */ ids = [];
        for (const file of files) {
          this.say(`reading ${file.name} …`);
          ids.push(...(await this.drop(file)).ids);
        }
        this.say("");
        const [a, b] = ids.length > 1 ? ids : [before, ids[0]];
        if (a && b) await this.compare(a, b);
        else await this.take(ids[0], true);
      } catch (error) {
        this.say(/** @type {Error} */ (error).message);
      }
    });
  }

  start() {
    this.takeDrops();
    this.compareAgain(); // a page may open with a pair
    const source = (this.source = new EventSource("events"));
    let before = Promise.resolve(); // one after the other: panels may come while their run is being fetched
    const heard = (/** @type {() => any} */ event) =>
      (before = before
        .then(async () => this.hear(await event()))
        .then(() => this.breaks())
        .catch((error) => this.say(error.message)));
    let streams = false;
    source.onmessage = (message) => {
      streams = true;
      heard(() => JSON.parse(message.data));
    };
    // behind a proxy that holds events back, the page asks how things stand
    const ask = async () => {
      if (streams || this.live.gone) return;
      if (!this.live.lost) await heard(() => asked("hello.json"));
      setTimeout(ask, ASK_MS);
    };
    setTimeout(ask, SILENT_MS);
    source.onerror = () => {
      if (!this.live.gone) this.now({ lost: true });
    };
    addEventListener("pagehide", () => source.close());
  }

  get live() {
    return liveOf(this.store);
  }

  /** @param {Partial<import("./types").LiveState>} patch */
  now(patch) {
    this.store.set({ live: { ...this.live, ...patch } });
    this.note();
  }

  /** @param {string} text */
  say(text) {
    this.now({ notice: text });
  }

  link() {
    const { run } = this.store.state;
    this.store.set({ links: run ? [["Perfetto ↗", `perfetto/${run}/`]] : [] });
    this.redraw();
  }

  /** @param {any} event */
  async hear(event) {
    const { store, live } = this,
      { versions } = store.state;
    if (event.type === "hello") {
      store.set({ versions: event.versions });
      this.now({ lost: false, working: event.working, away: event.away });
      const newest = newestSave(event.versions);
      if (newest && !this.held(newest.id)) await this.take(newest.id, this.follows(newest.id));
      for (const one of event.versions) if (one.has_panels && this.held(one.id)) await this.panels(one.id);
    } else if (event.type === "working") {
      store.set({ versions: withVersion(versions, event.version) });
      this.now({ working: [...live.working, event.version.id], notice: "", failed: null });
    } else if (event.type === "version") {
      store.set({ versions: withVersion(versions, event.version) });
      const id = event.version.id,
        show = this.wanted.delete(id) || (event.version.saved && this.follows(id));
      if (show || event.version.saved) await this.take(id, show);
      this.now({ working: this.without(event.version.id) });
    } else if (event.type === "error") {
      store.set({ versions: withVersion(versions, event.version) });
      const failed = this.wanted.delete(event.version.id) ? event.version : null;
      this.now({ working: this.without(event.version.id), failed });
    } else if (event.type === "panels") {
      store.set({ versions: versions.map((one) => (one.id === event.id ? { ...one, has_panels: true } : one)) });
      if (this.held(event.id)) await this.panels(event.id, event.again);
    } else if (event.type === "renamed") {
      store.set({ versions: withVersion(versions, event.version) });
      const run = this.held(event.version.id);
      if (run) {
        run.name = event.version.name;
        this.redraw();
      }
    } else if (event.type === "dropped") {
      store.set({ versions: versions.filter((one) => one.id !== event.id) });
      this.now({ working: this.without(event.id) });
    } else if (event.type === "files") {
      this.now({ away: event.gone });
    } else if (event.type === "notice") {
      this.now({ working: this.without(event.id), notice: event.message });
    } else if (event.type === "gone") {
      this.source?.close();
      this.now({ gone: true, working: [] });
    }
  }

  /** The version that decides whether the program runs: a knob that was turned here, else the newest save. */
  decides() {
    return this.live.failed ?? this.onDisk();
  }

  /** Keeps the files of a save that does not run, for the panel that shows its lines. */
  async breaks() {
    const last = this.decides(),
      { broken } = this.live;
    if (last?.trouble && last.has_source) {
      if (broken?.id !== last.id)
        this.now({
          broken: { id: last.id, name: last.name, trouble: last.trouble, files: await this.sources(last.id) },
        });
    } else if (broken !== null && (last === undefined || last.has_run || last.trouble)) this.now({ broken: null }); // while it works nothing is known
  }

  /** @param {string} id */
  held(id) {
    return this.store.state.runs.find((run) => run.id === id) ?? null;
  }

  /** @param {string} id */
  without(id) {
    return this.live.working.filter((one) => one !== id);
  }

  /** Whether the reader looks at the newest save, or at what was tried since, and so wants the one after it. @param {string} id */
  follows(id) {
    const { versions, run } = this.store.state,
      before = newestSave(versions.filter((one) => one.id !== id)),
      shown = versions.find((one) => one.id === run);
    return !before || !shown || shown.measured || Number(run) >= Number(before.id);
  }

  /** Fetches a run, and shows it. @param {string} id @param {boolean} show */
  async take(id, show) {
    const { store } = this,
      before = store.run();
    if (!this.held(id)) {
      const run = await unpackAll(await asked(`run/${id}.json`));
      if (store.state.runs.length === 0) {
        location.reload();
        return;
      } // the first one: the page is made anew with it
      run.expected = before && !isCapture(before) ? Object.keys(before.panels) : [];
      await this.view(run, store.state.rank);
      const kept =
        store.state.runs.length < MOST_RUNS
          ? store.state.runs
          : store.state.runs.filter(
              (one, n) => n > 0 || isCapture(one) || one.id === store.state.run || one.id === store.state.beside,
            );
      const runs = this.held(id) ? kept : [...kept, run];
      const first = before && isCapture(before) && !runs.some((one) => !isCapture(one) && one.id !== id); // a capture and its program
      const beside = first && store.state.beside === null ? before.id : store.state.beside,
        panel = first && store.state.panel === store.state.opens ? "source" : store.state.panel;
      store.set(show ? { runs, run: id, beside: beside === id ? null : beside, panel } : { runs });
    } else if (show) store.set({ run: id });
  }

  /** Shows another rank of the runs that are shown, or all of them. @param {string} rank */
  async rank(rank) {
    const { run, beside, selection } = this.store.state;
    for (const id of [run, beside]) if (id !== null) await this.view(this.held(id), rank);
    this.store.set({ rank, selection: selection?.kind === "slice" ? null : selection });
  }

  /** Fetches a rank of a run where it has that and is told of another. @param {import("./types").Run | null} run @param {string} rank */
  async view(run, rank) {
    if (!run?.ranks || run.views?.[rank] || !["all", ...run.ranks.map(String)].includes(rank) || rank === `${run.rank}`)
      return;
    const { id, name, ranks, panels } = run,
      view = await this.panel(id, "rank", { rank });
    const part = rank === "all" ? view.name : `${view.name} of ${ranks.length}`;
    run.views = {
      ...run.views,
      [rank]: { ...view, id, name, part, rank, ranks, panels: { ...view.panels, ranks: panels.ranks } },
    };
  }

  /** What a run's panels show, which is made after its timeline, and `again` once fixes were tried. @param {string} id @param {boolean} again */
  async panels(id, again = false) {
    const run = this.held(id);
    if (!run || (run.panels.knobs !== undefined && !again)) return;
    const later = await unpackAll(await asked(`panels/${id}.json`));
    Object.assign(run.panels, later.panels);
    for (const view of Object.values(run.views ?? {})) view.panels.ranks = run.panels.ranks;
    run.diagnosis = later.diagnosis;
    run.expected = [];
    this.now({});
    this.redraw();
  }

  // ---- what panels ask for

  /** @param {Record<string, string | number>} settings @param {boolean} show */
  async turn(settings, show = true) {
    const { id } = await asked("knob", { settings });
    const version = this.store.state.versions.find((one) => one.id === id);
    if (show && version?.has_run) await this.take(id, true);
    else if (show) this.wanted.add(id);
  }

  /** @param {string} id @param {string} name */
  rename(id, name) {
    return asked(`version/${id}`, { name });
  }

  /** The newest save, which the files on disk hold; it may not run. */
  onDisk() {
    return this.store.state.versions.findLast((one) => one.saved && !one.measured);
  }

  /** @param {string} id @param {string} over the save that the reader means to write over */
  writeBack(id, over) {
    return asked(`version/${id}`, { write: true, over });
  }

  /** Writes a file of the program; `before` is the text that the reader means to write over. @param {string} file @param {string} text @param {string} before */
  edit(file, text, before) {
    return asked("edit", { file, text, before });
  }

  /** Writes values of settings into the program's files. @param {Record<string, string | number>} settings */
  writeSettings(settings) {
    return asked("knob", { settings, write: true });
  }

  /** The fixes of a run's program, each tried. @param {string} id @returns {Promise<import("./types").Mending>} */
  fixes(id) {
    return asked(`fixes/${id}`, {});
  }

  /** Draws the program with a fix as a run of its own, beside this one. @param {string} id @param {string} key */
  async tryFix(id, key) {
    const made = await asked(`fixes/${id}`, { key });
    this.store.set({ beside: id });
    this.wanted.add(made.id);
  }

  /** Writes a fix into its file; the save that follows shows what came of it. @param {string} id @param {string} key */
  applyFix(id, key) {
    return asked(`fixes/${id}`, { key, write: true });
  }

  /** What is asked of a run: a panel that is made when it is opened, a kind of block, a change. @param {string} id @param {string} what @param {object} body */
  async panel(id, what, body) {
    return unpackAll(await asked(`panel/${id}/${what}`, body));
  }

  /** A capture that the reader dropped onto the page. @param {File} file @returns {Promise<{ids: string[]}>} */
  async drop(file) {
    const how = { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file };
    const answer = await fetch(`capture?name=${encodeURIComponent(file.name)}`, how),
      found = await answer.json();
    if (!answer.ok) throw new Error(found.message ?? `the server answered ${answer.status}`);
    return found;
  }

  /** @param {string} id */
  sources(id) {
    return asked(`sources/${id}.json`);
  }

  /** What has changed between two versions, which stand beside each other from then on: A is the older. @param {string} one @param {string} other @param {boolean} show */
  async compare(one, other, show = true) {
    const order = this.store.state.versions.map((version) => version.id),
      [a, b] = order.indexOf(one) <= order.indexOf(other) ? [one, other] : [other, one];
    const found = await asked(`compare/${a}/${b}.json`);
    await this.take(a, false);
    await this.take(b, false);
    const shared = { ...this.store.state.shared, compare: { ...found, ids: [a, b] } };
    this.store.set({ shared, run: b, beside: a, ...(show ? { panel: "compare" } : {}) });
  }

  /** A comparison that is looked at follows what is shown; one that nobody looks at goes. */
  compareAgain() {
    const { shared, run, beside, panel, versions } = this.store.state,
      ids = shared.compare?.ids ?? [];
    if (shared.compare && beside === null) {
      const { compare: _, ...others } = shared;
      this.store.set({ shared: others });
    }
    if (beside === null || (!shared.compare && panel !== "compare") || (ids[0] === beside && ids[1] === run)) return;
    const key = `${beside} ${run}`,
      able = [beside, run].every((id) => versions.find((one) => one.id === id)?.has_run);
    if (!able || this.comparing === key) return;
    this.comparing = key;
    this.compare(beside, run, false)
      .catch((error) => this.say(error.message))
      .finally(() => (this.comparing = ""));
  }

  /** The line below the title: what is under way, what went wrong. */
  note() {
    const { live } = this,
      { versions } = this.store.state,
      last = this.decides();
    const lines = [];
    if (live.gone) lines.push(element("span.bad", "The lab has ended. The page keeps what it shows."));
    else if (live.lost) lines.push(element("span.bad", "The connection to the lab is lost; trying again …"));
    if (live.working?.length)
      lines.push(
        element(
          "span.working",
          `${live.working.map((id) => versions.find((one) => one.id === id)?.name ?? id).join(", ")}: working …`,
        ),
      );
    if (live.away?.length)
      lines.push(
        element(
          "div.trouble",
          element("b", `${live.away.join(", ")}. `),
          element("span.soft", "Work goes on when it is back; a version's source can be written back."),
        ),
      );
    if (last?.trouble) lines.push(this.trouble({ ...last, trouble: last.trouble }));
    const shown = versions.find((one) => one.id === this.store.state.run);
    if (shown?.noticed?.length)
      lines.push(element("div.trouble", element("b", `${shown.name}: `), shown.noticed.join(" ")));
    if (live.notice) lines.push(element("span", live.notice));
    fill(this.status, ...lines);
    this.status.hidden = lines.length === 0;
  }

  /** Why a version has no run; each place leads to its line. @param {Version & {trouble: import("./types").Trouble}} version */
  trouble(version) {
    const { message, remedy, more } = version.trouble,
      { broken } = this.live,
      { edits = [], name = "" } = version.versus ?? {};
    const place = (/** @type {import("./types").Place} */ at, /** @type {number} */ n) =>
      at.line > 0 && broken?.id === version.id && broken.files[at.file] !== undefined
        ? element("button.plain.source", { title: "Show the line", onclick: () => this.lookAt(n) }, placeText(at))
        : element("span.source", placeText(at));
    const kept = version.has_run || this.store.state.runs.length === 0 ? "" : "What is shown is the last that ran.";
    return element(
      "div.trouble",
      element("b", `${version.name} does not run. `),
      place(version.trouble, 0),
      element("span", ` ${message}${/[.!?]$/.test(message) ? "" : "."} ${remedy ?? ""} `),
      edits.length ? element("b", `Edited since ${name}: ${edits.map((one) => one.text).join(", ")}. `) : null,
      element("span.soft", kept),
      more.length ? element("ul", ...more.map((one, n) => element("li", place(one, n + 1), one.message))) : null,
    );
  }

  /** To the line of a trouble. @param {number} place */
  lookAt(place) {
    this.store.set({ panel: "source", live: { ...this.live, look: { place } } });
  }
}
