// The panels, in the order of their tabs. A new panel is a module here and a line below.

import { panel as overview } from "./overview.js";
import { panel as compare } from "./compare.js";
import { panel as ranks } from "./ranks.js";

/** @type {import("../types").Panel[]} */
export const PANELS = [compare, ranks, overview];
