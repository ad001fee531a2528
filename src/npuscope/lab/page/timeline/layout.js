// What stands where on a timeline: groups of lanes by unit, folded or not, with counters above and unused lanes folded away.

/** @typedef {{kind: "group" | "lane" | "row" | "unused" | "counter", top: number, height: number, id: string, row: number, name: string, place: number}} Track */

const HEAD = 20,
  COUNTER = 26,
  LOW = 13,
  HIGH = 22,
  DEEP = 15,
  LEAST = 4,
  FEW_COUNTERS = 6;

/**
 * How high the lanes of runs are that stand below one another, each in this room: the same in all of them, so that they can be compared,
 * and as low as it takes to see every lane, LEAST at least. Nothing where there is one run, whose lanes have room to be read.
 * @param {import("../types").Timeline[]} timelines @param {string[]} folded @param {string} filter @param {number} room
 */
export function pairHeight(timelines, folded, filter, room) {
  if (timelines.length < 2) return undefined;
  const heights = timelines.map((timeline) => {
    const { tracks, height } = layoutOf(timeline, folded, false, true, filter), // counters come below, scrolled to
      lanes = tracks.filter((track) => track.row >= 0),
      others = height - lanes.reduce((sum, track) => sum + track.height, 0);
    return Math.floor((room - others) / Math.max(lanes.length, 1));
  });
  return Math.min(Math.max(Math.min(...heights), LEAST), HIGH);
}

/**
 * The tracks from top to bottom, and how high they are together. `folded` has the ids of folded groups, and of groups of unused lanes that are open.
 * Counters come first unless there is little room (`last`) or they are many, which would push the lanes out of sight.
 * Of the lanes those are there whose name, role or unit has one of the words of `filter`; they become higher where `room` is left, unless
 * `each` says how high they are.
 * @param {import("../types").Timeline} timeline @param {string[]} folded @param {boolean} counters @param {boolean} last @param {string} filter @param {number} room
 * @param {number | undefined} each
 * @returns {{tracks: Track[], height: number, ofRow: Int32Array}}
 */
export function layoutOf(timeline, folded, counters, last, filter = "", room = 0, each = undefined) {
  /** @type {Track[]} */
  const tracks = [];
  const isFolded = new Set(folded),
    ofRow = new Int32Array(timeline.rows.length).fill(-1);
  let top = 0;
  const add = (/** @type {Omit<Track, "top">} */ track) => {
    tracks.push({ ...track, top });
    top += track.height;
  };
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  const wanted = filter
    .toLowerCase()
    .split(/[\s,]+/)
    .filter(Boolean);
  const fits = timeline.lanes.map((lane) => {
    const text = `${lane.name} ${lane.role ?? ""} ${lane.unit}`.toLowerCase();
    return wanted.length === 0 || wanted.some((word) => text.includes(word));
  });
  timeline.rows.forEach(([lane], row) => {
    const unit = timeline.lanes[lane].unit;
    if (!fits[lane]) return;
    if (!groups.has(unit)) groups.set(unit, []);
    groups.get(unit)?.push(row);
  });
  const busy = timeline.lanes.filter((lane) => lane.used).length,
    deep = new Set(timeline.rows.filter(([, depth]) => depth > 1).map(([lane]) => lane));
  const high = busy <= 24 ? HIGH : busy <= 40 ? 17 : LOW;
  const counted = timeline.counters.map((track, place) => ({ track, place })).filter((one) => one.track.most !== 0);
  const addCounters = () => {
    if (!counters || counted.length === 0) return;
    add({ kind: "group", height: HEAD, id: "counters", row: -1, name: `Counters: ${counted.length}`, place: -1 });
    if (!isFolded.has("counters"))
      counted.forEach(({ track, place }) =>
        add({ kind: "counter", height: COUNTER, id: `counter ${place}`, row: -1, name: track.name, place }),
      );
  };
  const below = last || counted.length > FEW_COUNTERS;
  if (!below) addCounters();
  for (const [unit, rows] of groups) {
    const lanes = new Set(rows.map((row) => timeline.rows[row][0])),
      used = [...lanes].filter((lane) => timeline.lanes[lane].used).length;
    const title = timeline.units[unit] ?? unit;
    add({
      kind: "group",
      height: HEAD,
      id: unit,
      row: -1,
      name: `${title}: ${used === lanes.size ? lanes.size : `${used} of ${lanes.size}`} ${lanes.size === 1 ? "lane" : "lanes"}`,
      place: -1,
    });
    if (isFolded.has(unit)) continue;
    const open = isFolded.has(`unused-${unit}`);
    for (const row of rows) {
      const [place, depth] = timeline.rows[row],
        lane = timeline.lanes[place];
      if (!lane.used && !open) continue;
      ofRow[row] = tracks.length;
      const name = depth > 0 ? "" : lane.role ? `${lane.name} ${lane.role}` : lane.name;
      add({
        kind: depth === 0 ? "lane" : "row",
        height: each ?? (deep.has(place) ? Math.min(DEEP, high) : high),
        id: `row ${row}`,
        row,
        name,
        place,
      });
    }
    if (used < lanes.size) {
      const count = lanes.size - used;
      add({
        kind: "unused",
        height: 16,
        id: `unused-${unit}`,
        row: -1,
        name: `${open ? "hide" : "show"} ${count} never used`,
        place: -1,
      });
    }
  }
  if (below) addCounters();
  const lanes = tracks.filter((track) => track.row >= 0),
    more = Math.min(Math.floor((room - top) / Math.max(lanes.length, 1)), HIGH - high);
  if (more > 0 && each === undefined) {
    top = 0;
    for (const track of tracks) {
      track.height += track.row >= 0 ? more : 0;
      track.top = top;
      top += track.height;
    }
  }
  return { tracks, height: top, ofRow };
}
