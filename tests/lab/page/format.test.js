// Numbers read on a page as they read in text: tests/table/test_formats.py goes through the same cases.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import * as format from "../../../src/npuscope/lab/page/format.js";

const CASES = JSON.parse(readFileSync(new URL("../../table/numbers.json", import.meta.url), "utf8"));
const FUNCTIONS = { ...format, figures_in_column: (value) => format.figures(value, 4) };

for (const [name, cases] of Object.entries(CASES)) {
  test(name, () => {
    for (const [value, text] of cases) assert.equal(FUNCTIONS[name](value), text, `${name}(${value})`);
  });
}
