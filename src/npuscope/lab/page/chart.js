// A chart from its data (report/charts/): one look, one set of colours and tooltips for all of them.

import { bars } from "./chart/bars.js";
import { columns } from "./chart/columns.js";
import { knobs } from "./chart/knobs.js";
import { lines } from "./chart/lines.js";
import { ribbons } from "./chart/ribbons.js";
import { scatter } from "./chart/scatter.js";
import { waterfall } from "./chart/waterfall.js";

/** @type {Record<string, (spec: any) => any>} */
const KINDS = { bars, columns, knobs, lines, ribbons, scatter, waterfall };

/** @param {any} spec */
export function chart(spec) {
  return KINDS[spec.chart](spec);
}
