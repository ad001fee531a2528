// The panels, in the order of their tabs, group by group. A new panel is a module here and a line below.

import { panel as source } from "./source.js";
import { panel as inside } from "./inside.js";
import { panel as kernels } from "./kernels.js";
import { panel as memory } from "./memory.js";
import { panel as graph } from "./graph.js";
import { reports } from "./reports.js";
import { panel as overview } from "./overview.js";
import { panel as compare } from "./compare.js";
import { panel as ranks } from "./ranks.js";
import { panel as fixes } from "./fixes.js";
import { panel as whatif } from "./whatif.js";
import { panel as versions } from "./versions.js";
import { panel as knobs } from "./knobs.js";

/** @type {import("../types").Panel[]} */
export const PANELS = [
  kernels,
  overview,
  ranks,
  ...reports.filter((one) => one.group === "run"),
  source,
  inside,
  memory,
  graph,
  ...reports.filter((one) => one.group === "program"),
  knobs,
  fixes,
  whatif,
  versions,
  compare,
];
