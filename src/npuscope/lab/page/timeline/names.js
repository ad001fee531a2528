// Names of kernels as short as they can be and still differ: on bars, in the legend.

import { clipped, clippedEnd } from "../format.js";

const MOST = 2000; // kernels whose names are compared

/** Without templates, arguments and namespaces. @param {string} name */
function bare(name) {
  const plain = name.replace(/^(void|auto) /, "").replace(/[<(].*$/s, "");
  return plain.split("::").at(-1)?.trim() || name;
}

/** What all names begin with, up to the end of a word. @param {string[]} names */
function commonHead(names) {
  if (names.length < 2) return "";
  let head = names[0];
  for (const name of names) while (!name.startsWith(head)) head = head.slice(0, -1);
  const end = Math.max(head.lastIndexOf("_"), head.lastIndexOf("."), head.lastIndexOf("/"));
  return end >= 3 ? head.slice(0, end + 1) : "";
}

/** Those of a list that stand for different names. @param {string[]} all @param {string[]} names */
function shared(all, names) {
  /** @type {Map<string, string>} */
  const seen = new Map(),
    found = new Set();
  all.forEach((one, n) => {
    if ((seen.get(one) ?? names[n]) !== names[n]) found.add(one);
    seen.set(one, names[n]);
  });
  return found;
}

/** Short names in the order of the long ones; no two of them are the same unless the long ones are. @param {string[]} names */
export function shortNames(names) {
  const plain = names.map(bare),
    twice = shared(plain, names),
    apart = names.map((name, n) => (twice.has(plain[n]) ? name : plain[n])),
    head = commonHead([...new Set(apart)]);
  return apart.map((name) => (name.length > head.length ? name.slice(head.length) : name));
}

/** The beginning, both ends, or the end of a name. @type {((name: string, room: number) => string)[]} */
const CLIPS = [clippedEnd, clipped, (name, room) => (name.length <= room ? name : `…${name.slice(1 - room)}`)];

/** Short names that are clipped so that they stay different. */
export class Names {
  /** @param {string[]} names */
  constructor(names) {
    this.short = names.length <= MOST ? shortNames(names) : names;
    /** @type {Map<number, string[]>} */
    this.kept = new Map();
  }

  /** A name in so many letters. @param {number} place @param {number} room */
  fit(place, room) {
    if (this.short[place].length <= room) return this.short[place];
    if (this.short.length > MOST) return clippedEnd(this.short[place], room);
    let found = this.kept.get(room);
    if (found === undefined) {
      const ways = CLIPS.map((clip) => this.short.map((name) => clip(name, room))),
        twice = ways.map((way) => shared(way, this.short));
      found = this.short.map((_, n) => (ways.find((way, k) => !twice[k].has(way[n])) ?? ways[0])[n]);
      this.kept.set(room, found);
    }
    return found[place];
  }
}
