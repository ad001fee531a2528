// The timeline's model without a browser: three cores, four slices, the truth counted by hand.

import assert from "node:assert/strict";
import test from "node:test";
import { counterAt, counterMean } from "../../../src/npuscope/lab/page/timeline/counters.js";
import { layoutOf, pairHeight } from "../../../src/npuscope/lab/page/timeline/layout.js";
import { levelsOf } from "../../../src/npuscope/lab/page/timeline/levels.js";
import { lowerBound, Model } from "../../../src/npuscope/lab/page/timeline/model.js";
import { totalsOf } from "../../../src/npuscope/lab/page/timeline/totals.js";

// core 0: load 0-40, mm 60-100; core 1: mm 10-90 (task 7, block 1); core 2: nothing
function run() {
  const lane = (name, used = true) => ({ lane: 0, name, unit: "AIC", role: null, used });
  return {
    id: "0",
    timeline: {
      window: 100,
      lanes: [lane("AIC 0"), lane("AIC 1"), lane("AIC 2", false)],
      units: { AIC: "Cube cores" },
      rows: [
        [0, 0],
        [1, 0],
        [2, 0],
      ],
      kernels: ["load", "mm"],
      device_kernels: 2,
      areas: ["MLP", "other"],
      reasons: [{ id: "dependency" }, { id: "starved" }],
      slices: {
        begins: Uint32Array.of(0, 2, 3, 3),
        start: Float64Array.of(0, 60, 10),
        dur: Uint32Array.of(40, 40, 80),
        kernel: Uint8Array.of(0, 1, 1),
        task: Int32Array.of(0, 1, 1),
        block: Int32Array.of(0, 0, 1),
      },
      bubbles: {
        begins: Uint32Array.of(0, 1, 3, 4),
        start: Float64Array.of(40, 0, 90, 0),
        dur: Uint32Array.of(20, 10, 10, 100),
        reason: Uint8Array.of(0, 1, 1, 1),
      },
      tasks: Float64Array.of(3, 7),
      sites: [],
      edges: { kinds: ["raw"], src: Int32Array.of(0), dst: Int32Array.of(1), kind: Uint8Array.of(0) },
      counters: [],
    },
  };
}

test("the first place that is not below a value", () => {
  const values = [1, 3, 3, 8];
  assert.deepEqual(
    [0, 1, 2, 3, 4, 9].map((wanted) => lowerBound(values, wanted, 0, 4)),
    [0, 0, 1, 1, 3, 4],
  );
});

test("a moment of a row has its slice, its idle time, or the nearest slice within reach", () => {
  const model = new Model(run());
  assert.equal(model.sliceAt(0, 39, 0), 0);
  assert.equal(model.sliceAt(0, 50, 0), -1);
  assert.equal(model.sliceAt(0, 56, 5), 1);
  assert.equal(model.bubbleAt(0, 50), 0);
  assert.equal(model.bubbleAt(1, 95), 2);
  assert.deepEqual(
    [0, 1, 2].map((slice) => model.rowOf(slice)),
    [0, 0, 1],
  );
});

test("a task has its slices, its producers and its consumers", () => {
  const model = new Model(run());
  assert.deepEqual([...model.slicesOfTask(1)], [1, 2]);
  assert.deepEqual(model.producers(1), [{ task: 0, kind: "raw" }]);
  assert.deepEqual(model.consumers(0), [{ task: 1, kind: "raw" }]);
  assert.deepEqual(model.producers(0), []);
});

test("the slice of another run that is most alike: kernel, task and block before kernel and block", () => {
  const model = new Model(run());
  assert.equal(model.alike({ kind: "slice", kernel: "mm", task: 7, block: 1 }), 2);
  assert.equal(model.alike({ kind: "slice", kernel: "mm", task: 99, block: 0 }), 1);
  assert.equal(model.alike({ kind: "slice", kernel: "gone", task: 7, block: 1 }), -1);
});

test("a search ignores case and gives hits in order of time", () => {
  const found = new Model(run()).search(" MM ");
  assert.deepEqual([...found.slices], [2, 1]);
  assert.equal(new Model(run()).search("  "), null);
});

test("totals of a range are clipped to it, the largest first", () => {
  const { kernels, reasons } = totalsOf(new Model(run()), 20, 80);
  assert.deepEqual(
    kernels.map(({ name, ns, count }) => [name, ns, count]),
    [
      ["mm", 80, 2], // 60 of core 1 and 20 of core 0
      ["load", 20, 1],
    ],
  );
  assert.deepEqual(
    reasons.map(({ id, ns }) => [id, ns]),
    [
      ["starved", 60], // core 2
      ["dependency", 20],
    ],
  );
});

test("a lane that nothing ran on is folded away until it is asked for", () => {
  const { timeline } = run();
  const names = (folded) => layoutOf(timeline, folded, true, false).tracks.map((track) => track.name);
  assert.equal(names([]).includes("AIC 2"), false);
  assert.equal(names(["unused-AIC"]).includes("AIC 2"), true);
  assert.deepEqual(names(["AIC"]), ["Cube cores: 2 of 3 lanes"]);
});

test("lanes of two runs are equally high, and low enough to see them all", () => {
  const few = run().timeline,
    many = { ...few, lanes: Array(40).fill(few.lanes[0]), rows: Array.from({ length: 40 }, (_, lane) => [lane, 0]) };
  assert.equal(pairHeight([few], [], "", 400), undefined);
  const each = pairHeight([few, many], [], "", 400);
  for (const timeline of [few, many]) {
    const { tracks, height } = layoutOf(timeline, [], false, true, "", 400, each);
    assert.ok(tracks.filter((track) => track.row >= 0).every((track) => track.height === each));
    assert.ok(height <= 400);
  }
  assert.equal(pairHeight([few, many], [], "", 1e6), 22);
  assert.equal(pairHeight([few, many], [], "", 10), 4);
});

test("a row of many slices is as busy at every coarseness as its slices are", () => {
  const count = 10_000;
  const one = run();
  one.timeline.window = count * 10;
  one.timeline.rows = [[0, 0]];
  const slices = { begins: Uint32Array.of(0, count), start: new Float64Array(count), dur: new Uint32Array(count) };
  one.timeline.slices = { ...slices, kernel: new Uint8Array(count), task: new Int32Array(count) };
  for (let i = 0; i < count; i++) {
    slices.start[i] = i * 10;
    slices.dur[i] = 1 + (i % 9);
  }
  one.timeline.bubbles = { begins: Uint32Array.of(0, 0), start: new Float64Array(0), dur: [], reason: [] };
  const busy = slices.dur.reduce((sum, dur) => sum + dur, 0);
  const levels = levelsOf(new Model(one), 0);
  assert.ok(levels.length > 1);
  for (const level of levels) {
    const sum = level.busy.reduce((total, part) => total + part, 0);
    assert.ok(Math.abs(sum - busy) < busy * 1e-4, `${sum} for ${busy}`);
  }
});

test("a counter's value holds until the next sample", () => {
  const counter = { time: Float64Array.of(0, 10, 30), value: Float64Array.of(4, 1, 2) };
  assert.deepEqual(
    [-1, 0, 9, 10, 99].map((moment) => counterAt(counter, moment)),
    [null, 4, 4, 1, 2],
  );
  assert.equal(counterMean(counter, 0, 20), (4 * 10 + 1 * 10) / 20);
  assert.equal(counterMean(counter, 20, 40), (1 * 10 + 2 * 10) / 20);
});
