// The types that modules share; read by the type checker alone.

export type Packed = { type: "u8" | "u16" | "u32" | "i32" | "f64"; delta?: "i32"; data: string };
export type Column = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float64Array;
export type Lane = { lane: number; name: string; unit: string; role: string | null; used: boolean };
export type Band = { title: string; spans: [number, number, string][] };
export type CounterTrack = { name: string; time: Float64Array; value: Float64Array; most: number; note: string };
export type Fact = { name: string; number?: Float64Array; code?: Column; text?: string[] };

/** lab/payload/timeline.py, unpacked. Times are nanoseconds from the window's start. */
export type Timeline = {
  window: number;
  origin: number;
  lanes: Lane[];
  units: Record<string, string>;
  rows: [number, number][];
  kernels: string[];
  device_kernels: number;
  areas: string[];
  core_lanes: number[];
  reasons: { id: string; title: string; sentence: string }[];
  parts: string[];
  chain: boolean;
  slices: {
    begins: Column;
    start: Float64Array;
    dur: Column;
    kernel: Column;
    task: Int32Array;
    block?: Int32Array;
    before?: Column;
    after?: Column;
    drawn?: Column;
    body?: Int32Array;
    site?: Int32Array;
  };
  facts: Fact[];
  tasks: Float64Array;
  sites: { file: string; line: number }[];
  bubbles: {
    begins: Column;
    start: Float64Array;
    dur: Column;
    reason: Uint8Array;
    kernel: Int32Array;
    blocker: Int32Array;
  };
  path: { lane: Int32Array; start: Float64Array; end: Float64Array; part: Uint8Array; kernel: Column };
  edges: { kinds: string[]; src: Int32Array; dst: Int32Array; kind: Uint8Array };
  bands: Band[];
  counters: CounterTrack[];
  notes: string[];
};

export type Gain = { ns: number; low_ns: number; high_ns: number };
export type Cause = {
  kind: string;
  sentence: string;
  share: number;
  evidence: string[];
  remedy: string;
  confidence: string;
  gain: Gain | null;
  where: [number, number, number | null][];
};
export type Diagnosis = {
  verdict: string;
  bound: string;
  wall_ns: number;
  window: [number, number];
  causes: Cause[];
  together: { findings: number; gain: Gain } | null;
};

/** Nanoseconds: of a measured run a number, of a simulated one with its interval. */
export type Wall = number | { value: number; low?: number; high?: number; coverage?: number };

/** A fix after its trial; `changes` as lab/payload/files.py has them. */
export type TriedFix = {
  key: string;
  title: string;
  offered: boolean;
  why: string;
  numbers: string;
  before_ns: number;
  wall_ns: number;
  versus: { ratio: number; low: number; high: number; probability_faster: number } | null;
  changes: any[];
};

export type Mending = { fixes: TriedFix[]; unmended: { id: string; place: string; why: string }[] };

export type Run = {
  id: string;
  name: string;
  text: string;
  measured: boolean;
  wall: Wall;
  part?: string; // of several ranks: which one this is
  rank?: number | string; // which one it is of,
  ranks?: number[]; // of these;
  views?: Record<string, Run>; // what was asked of others of them, and of "all"
  diagnosis: Diagnosis;
  timeline: Timeline;
  panels: Record<string, any>;
  expected?: string[];
  model?: import("./timeline/model.js").Model;
};

/** Why a version has no run: lab/messages.py. */
export type Place = { message: string; file: string; line: number };
export type Trouble = Place & { remedy: string; more: Place[] };

export type Edit = { file: string; line: number; text: string };
/** A version against the save before it; a version that did not run has edits alone. */
export type Versus = {
  id: string;
  name: string;
  edits: Edit[];
  ratio?: number;
  low?: number;
  high?: number;
  probability_faster?: number;
  verdict?: string;
};

/** A version of the program as the server lists it: lab/versions.py. */
export type Version = {
  id: string;
  name: string;
  at: number;
  settings: Record<string, string>;
  measured: boolean;
  named: boolean;
  saved: boolean;
  source: string;
  wall: Wall | null;
  verdict: string;
  noticed: string[];
  trouble: Trouble | null;
  versus: Versus | null;
  has_run: boolean;
  has_panels: boolean;
  has_source: boolean;
};

/** A save that does not run, with its files by their paths. */
export type Broken = { id: string; name: string; trouble: Trouble; files: Record<string, string> };

export type LiveState = {
  program: string | null;
  perfetto: boolean;
  /** Queries of the SQL panel: question and text. */
  examples?: [string, string][];
  working: string[];
  lost: boolean;
  gone: boolean;
  notice: string;
  away: string[];
  failed: Version | null;
  broken: Broken | null;
  look: { place: number } | null;
  ask: import("./live.js").Live;
};

/** A document as the page holds it: lab/document.py. */
export type Document = {
  title: string;
  runs: Run[];
  shared?: Record<string, any>;
  live: (LiveState & { versions: Version[] }) | null;
  panel?: string;
  run?: string | null;
  beside?: string | null;
};

export type Selection =
  | {
      kind: "slice";
      run: string;
      slice: number;
      kernel: string;
      task: number | null;
      block: number | null;
      body: number;
      file: string | null;
      line: number | null;
    }
  | { kind: "line"; file: string; line: number; bodies?: number[] }
  | { kind: "kernel"; kernel: string }
  | { kind: "cause"; cause: number }
  | { kind: "range"; start: number; end: number }
  | { kind: "task"; task: number };

/** A stretch that a reader marked, in nanoseconds from the window's start, with a note. */
export type Pin = { start: number; end: number; text: string };
/** The timeline's share of the height in percent, and the width of what stands beside it in pixels. */
export type Room = { timeline: number; aside: number };

export type State = {
  title: string;
  runs: Run[];
  run: string;
  beside: string | null;
  rank: string; // of runs over ranks which one is shown, or "all"; "": the one that they are told of
  opens: string;
  panel: string;
  window: [number, number];
  selection: Selection | null;
  search: string;
  shown: { bubbles: boolean; path: boolean; arrows: boolean; counters: boolean };
  folded: string[];
  lanes: string;
  pins: Pin[];
  split: boolean;
  room: Room;
  shared: Record<string, any>;
  live: LiveState | null;
  versions: Version[];
  links: [string, string][];
};

export type Store = {
  state: State;
  set(patch: Partial<State>): void;
  on(keys: (keyof State)[], act: (state: State) => void): () => void;
  find(id: string | null): Run | null;
  run(): Run;
  beside(): Run | null;
  full(): [number, number];
};

export type Mounted = { update?(state: State): void; repaint?(): void; destroy?(): void };

export type Panel = {
  id: string;
  title: string;
  group: "run" | "program" | "try";
  has(run: Run, state: State): boolean;
  mount(box: HTMLElement, store: Store): Mounted;
};
