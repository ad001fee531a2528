// What the app knows and shows: one object, changed by `set`, followed by `on`.

/** @typedef {import("./types").State} State */

export const ROOM = { timeline: 48, aside: (globalThis.innerWidth ?? 0) >= 1900 ? 440 : 340 };
export const SHOWN = { bubbles: true, path: true, arrows: true, counters: true };

/** @param {import("./types").Document} document @returns {import("./types").Store} */
export function createStore(document) {
  /** @type {{keys: (keyof State)[], act: (state: State) => void}[]} */
  const followers = [];
  /** @type {State} */
  const state = {
    title: document.title,
    runs: document.runs,
    run: document.run ?? document.runs[0]?.id ?? "",
    beside: document.beside ?? null,
    rank: "",
    opens: document.panel ?? "timeline",
    panel: document.panel ?? "timeline",
    window: [0, 1],
    selection: null,
    search: "",
    shown: { ...SHOWN },
    folded: [],
    lanes: "",
    pins: [],
    split: true,
    room: document.beside && (globalThis.innerHeight ?? 0) <= 900 ? { ...ROOM, timeline: 62 } : ROOM, // two need more
    shared: document.shared ?? {},
    live: document.live,
    versions: document.live?.versions ?? [],
    links: [],
  };
  const seen = (/** @type {import("./types").Run | undefined} */ run) => run?.views?.[state.rank] ?? run;
  const find = (/** @type {string | null} */ id) => seen(state.runs.find((run) => run.id === id)) ?? null;
  const store = {
    state,
    /** @param {Partial<State>} patch */
    set(patch) {
      const changed = /** @type {(keyof State)[]} */ (Object.keys(patch)).filter((key) => state[key] !== patch[key]);
      if (changed.length === 0) return;
      Object.assign(state, patch);
      for (const { keys, act } of [...followers]) if (keys.some((key) => changed.includes(key))) act(state);
    },
    /** Calls `act` after any of the keys changed; the answer ends that. @param {(keyof State)[]} keys @param {(state: State) => void} act */
    on(keys, act) {
      const one = { keys, act };
      followers.push(one);
      return () => {
        const place = followers.indexOf(one);
        if (place >= 0) followers.splice(place, 1);
      };
    },
    find,
    run: () => find(state.run) ?? state.runs[0],
    beside: () => find(state.beside),
    /** The whole time axis: of the run and the one beside it. @returns {[number, number]} */
    full: () => [0, Math.max(store.run()?.timeline.window ?? 1, store.beside()?.timeline.window ?? 1, 1)],
  };
  return store;
}

/** What a panel knows of the server that only a served page has. @param {import("./types").Store} store */
export const liveOf = (store) => /** @type {import("./types").LiveState} */ (store.state.live);

/** Whether a served run was opened as a capture, measured or written by a simulation: its number is c1, c2, … (lab/program_runs.py). @param {import("./types").Run} run */
export const isCapture = (run) => run.id.startsWith("c");
