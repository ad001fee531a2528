// The panels, in the order of their tabs. A new panel is a module here and a line below.

import { panel as overview } from "./overview.js";
import { panel as compare } from "./compare.js";
import { panel as ranks } from "./ranks.js";
import { panel as versions } from "./versions.js";
import { panel as knobs } from "./knobs.js";

/** @type {import("../types").Panel[]} */
export const PANELS = [versions, knobs, compare, ranks, overview];
