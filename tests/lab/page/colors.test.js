// Kernels keep their colours, texts on them can be read, and short names stay different.

import assert from "node:assert/strict";
import test from "node:test";
import { colorsOf, inkOn, rgb } from "../../../src/npuscope/lab/page/colors.js";
import { Names, shortNames } from "../../../src/npuscope/lab/page/timeline/names.js";

const hue = (color) => {
  const [r, g, b] = rgb(color),
    most = Math.max(r, g, b),
    span = most - Math.min(r, g, b) || 1;
  const sixth = most === r ? ((g - b) / span + 6) % 6 : most === g ? (b - r) / span + 2 : (r - g) / span + 4;
  return 60 * sixth;
};
const light = (color) =>
  rgb(color)
    .map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, n) => sum + part * [0.2126, 0.7152, 0.0722][n], 0);

test("a kernel keeps its colour whatever stands beside it, in whatever order", () => {
  const one = colorsOf(["up_proj", "copy"], ["MLP", "other"]);
  const other = colorsOf(["copy", "softmax", "up_proj"], ["other", "attention", "MLP"]);
  assert.equal(one.get("up_proj"), other.get("up_proj"));
  assert.equal(one.get("copy"), other.get("copy"));
});

test("an area has a hue of its own, and the kernels in it different shades", () => {
  const names = Array.from({ length: 12 }, (_, n) => `gate_${n}`);
  const colors = colorsOf(
    names,
    names.map(() => "MLP"),
  );
  assert.equal(new Set(colors.values()).size, 12);
  for (const color of colors.values()) assert.ok(Math.abs(hue(color) - 158) <= 20, color);
  assert.ok(Math.abs(hue(colorsOf(["fa"], ["attention"]).get("fa")) - 38) <= 20);
});

test("text on every colour has the contrast that people need", () => {
  const names = Array.from({ length: 300 }, (_, n) => `kernel ${n}`);
  for (const color of colorsOf(
    names,
    names.map((_, n) => ["MLP", "attention", "other"][n % 3]),
  ).values()) {
    const [a, b] = [light(color), light(inkOn(color))].sort((x, y) => y - x);
    assert.ok((a + 0.05) / (b + 0.05) >= 4.5, color);
  }
});

test("short names lose what they have in common and stay different", () => {
  assert.deepEqual(shortNames(["void ns::gemm<128, float>(int)", "ns::softmax<float>"]), ["gemm", "softmax"]);
  const twins = ["f<int>", "f<float>"];
  assert.deepEqual(shortNames(twins), twins);
  assert.deepEqual(shortNames(["qwen3_decode_q_proj", "qwen3_decode_k_proj"]), ["q_proj", "k_proj"]);
});

test("names that are cut stay different where letters allow it", () => {
  const names = new Names(["gate_proj_a", "gate_proj_b", "up_proj", "up_proj"]);
  assert.equal(names.fit(2, 4), "up_…");
  assert.equal(names.fit(3, 4), "up_…");
  assert.notEqual(names.fit(0, 5), names.fit(1, 5));
  assert.ok([0, 1, 2].every((place) => names.fit(place, 5).length <= 5));
});
