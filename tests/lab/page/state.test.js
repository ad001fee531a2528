// What stands in the address, what charts write at their axes, how packed columns unpack: without a browser.

import assert from "node:assert/strict";
import test from "node:test";
import { deflateSync } from "node:zlib";
import { roundSteps, scale, si } from "../../../src/npuscope/lab/page/chart/frame.js";
import { linkOf, linkSays, selectionOf } from "../../../src/npuscope/lab/page/link.js";
import { unpackAll } from "../../../src/npuscope/lab/page/packed.js";
import { ROOM, SHOWN } from "../../../src/npuscope/lab/page/store.js";
import { SHOW } from "../../../src/npuscope/lab/page/table.js";

const FULL = [0, 100],
  find = () => null;

function state() {
  return {
    runs: [{ id: "1" }, { id: "2" }],
    run: "1",
    beside: null,
    rank: "",
    opens: "timeline",
    panel: "timeline",
    window: [...FULL],
    selection: null,
    search: "",
    shown: { ...SHOWN },
    folded: [],
    lanes: "",
    pins: [],
    split: true,
    room: ROOM,
  };
}

test("a page as it opens has an empty address", () => {
  assert.equal(linkOf(state(), FULL, "1"), "");
});

test("an address restores what it was made of", () => {
  const changed = {
    run: "2",
    panel: "source",
    window: [12.5, 40],
    search: "mm & load",
    shown: { ...SHOWN, path: false },
    folded: ["AIC"],
    lanes: "AIC_0 host",
    pins: [
      { start: 12, end: 30, text: "why? a - b & c" },
      { start: 40, end: 41, text: "" },
    ],
    split: false,
    room: { timeline: 30, aside: 500 },
  };
  const hash = linkOf(
    { ...state(), ...changed, rank: "all", selection: { kind: "line", line: 3, file: "a.b.py" } },
    FULL,
    "1",
  );
  const { patch, rank, select } = linkSays(`#${hash}`, state());
  assert.deepEqual(patch, changed);
  assert.equal(rank, "all");
  assert.deepEqual(
    selectionOf(select, find, () => null),
    { kind: "line", line: 3, file: "a.b.py" },
  );
});

test("an address of another page does no harm", () => {
  const { patch, select } = linkSays("#run=99&window=9-3&hide=nothing&select=cause.-1", state());
  assert.deepEqual(patch, { shown: SHOWN });
  assert.equal(
    selectionOf(select, find, () => null),
    null,
  );
});

test("axes have round places inside their range", () => {
  assert.deepEqual(roundSteps(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(roundSteps(0.13, 0.31, 4), [0.15, 0.2, 0.25, 0.3]);
  assert.equal(scale({}, [0, 10], [100, 200], 5).at(5), 150);
  assert.deepEqual(
    scale({ log: true, form: "si" }, [1, 1e6], [0, 60], 3).ticks.map((tick) => tick.text),
    ["1", "100", "10 k", "1 M"],
  );
  assert.equal(si(1_050_000_000_000), "1.05 T");
});

test("packed columns unpack inside whatever holds them", async () => {
  const packed = (type, array, more = {}) => ({
    type,
    data: deflateSync(Buffer.from(array.buffer)).toString("base64"),
    ...more,
  });
  const document = { a: [{ plain: packed("u16", Uint16Array.of(1, 2, 60000)) }], text: "x" };
  document.rising = packed("f64", Int32Array.of(5, 10, -3), { delta: "i32" });
  const { a, rising, text } = await unpackAll(document);
  assert.deepEqual([...a[0].plain], [1, 2, 60000]);
  assert.deepEqual([...rising], [5, 15, 12]);
  assert.equal(text, "x");
});

test("every kind of cell that is there reads as a person would write it", () => {
  assert.equal(SHOW.shape([16, 128]), "16×128");
  assert.equal(SHOW.shape([]), "one");
  assert.equal(SHOW.flag(false), "no");
  assert.equal(
    SHOW.turns([
      { turn: 0, of: 1 },
      { turn: 2, of: 4 },
    ]),
    "3 of 4",
  );
});
