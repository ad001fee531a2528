// Which save is shown, what it is held against, and what changed since: without a browser.

import assert from "node:assert/strict";
import test from "node:test";
import { changedKernels, ratioText, standing, wallText } from "../../../src/npuscope/lab/page/header.js";

const version = (id, more = {}) => ({ id, name: `save ${id}`, saved: true, has_run: true, measured: false, ...more });

test("a page on an older save says so and leads to the newest", () => {
  const versions = [version("c1", { measured: true }), version("1"), version("2"), version("3")];
  assert.deepEqual(standing(versions, "3"), { text: "save 3 of 3", newest: null });
  assert.deepEqual(standing(versions, "2"), { text: "save 2 of 3", newest: versions[3] });
  assert.deepEqual(standing(versions, "c1"), { text: "", newest: null });
});

test("a save that does not run is counted, and is not the newest to look at", () => {
  const versions = [version("1"), version("2"), version("3", { has_run: false })];
  assert.deepEqual(standing(versions, "2"), { text: "save 2 of 3", newest: null });
  assert.equal(standing(versions, "1").newest.id, "2");
});

test("a turned knob names the save that it was tried on", () => {
  const tried = version("4", { saved: false, versus: { name: "save 2" } });
  const versions = [version("1"), version("2"), tried];
  assert.deepEqual(standing(versions, "4"), { text: "tried on save 2", newest: versions[1] });
});

test("a ratio stands with its interval and the probability of what it says", () => {
  const versus = { name: "save 1", ratio: 0.8, low: 0.7, high: 0.9, probability_faster: 0.97, verdict: "faster" };
  assert.equal(ratioText(versus), "0.8x save 1 (0.7 to 0.9), 97% likely faster");
  assert.equal(
    ratioText({ ...versus, ratio: 1.5, probability_faster: 0.001, verdict: "slower" }),
    "1.50x save 1 (0.7 to 0.9), 99% likely slower", // never certain
  );
  assert.match(
    ratioText({ ...versus, probability_faster: 0.6, verdict: "undecided" }),
    /undecided, 60% likely faster$/,
  );
  assert.equal(ratioText({ name: "save 1", edits: [] }), "");
  assert.equal(wallText({ value: 1500, low: 1000, high: 2000 }), "1.5 µs (1 to 2 µs)");
});

test("kernels that changed most come first, new and gone ones among them", () => {
  const before = [
    { name: "same", core_ns: 1000 },
    { name: "less", core_ns: 1000 },
    { name: "gone", core_ns: 100 },
  ];
  const now = [
    { name: "same", core_ns: 1001 },
    { name: "less", core_ns: 500 },
    { name: "new", core_ns: 50 },
  ];
  assert.deepEqual(changedKernels(before, now), [
    { name: "less", change: -0.5 },
    { name: "gone", change: -1 },
    { name: "new", change: null },
  ]);
});
