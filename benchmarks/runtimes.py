"""Programs under both runtimes against pairs that were measured: python benchmarks/runtimes.py DATA/hbg_pairs.csv

Rows are device walls, or runner_run, which has the launch as well. What a call pays around its run was fitted on these
rows (chip/runtimes/*.toml), so the ratios are in-sample; "left out" takes it from the other rows alone.
"""

from __future__ import annotations

import csv
import statistics
import sys
from pathlib import Path

from npuscope.answer.request import Request
from npuscope.answer.runtimes import both_runtimes
from npuscope.chip.runtimes import HBG, TMR, runtime_named

HERE = Path(__file__).parent
KEPT = HERE / "validation" / "predicted" / "runtimes.md"  # for the page of validation
LAUNCHED = "runner_run"
METRICS = ("device_wall", LAUNCHED)
BOTH = (TMR, HBG)
HEAD = ("workload", "case", "tmr ms", "hbg ms", "ratio", "simulated tmr", "hbg", "ratio", "error", "left out")
GUESS = 0.91


def report(table: str) -> str:
    with open(table) as source:
        read = list(csv.DictReader(line for line in source if not line.startswith("#")))
    rows = [row for row in read if row["metric"] in METRICS]
    measured = [[float(row[f"{name}_ms"]) for name in BOTH] for row in rows]
    runs = []
    for row in rows:
        both = both_runtimes(Request(str(HERE / "runtime_pairs" / f"{row['workload']}.py"), ("--case", row["case"])))
        runs.append([both.tmr.simulated.wall / 1e6, both.hbg.simulated.wall / 1e6])
    launch = runtime_named(TMR).wall["launch"].value * 1e3
    around = [runtime_named(name).around_ns / 1e6 for name in BOTH]
    lines = [f"| {' | '.join(HEAD)} |", f"|---|---|{'---:|' * (len(HEAD) - 2)}"]
    errors, outside, guesses, signs = [], [], [], 0
    for n, row in enumerate(rows):
        others = [m for m, other in enumerate(rows) if m != n and other["metric"] != LAUNCHED]
        without = [statistics.median(measured[m][k] - runs[m][k] for m in others) for k in range(2)]
        more = launch if row["metric"] == LAUNCHED else 0.0
        told, left = ([run + one + more for run, one in zip(runs[n], way, strict=True)] for way in (around, without))
        ratio, said, alone = (pair[1] / pair[0] for pair in (measured[n], told, left))
        errors.append(abs(said / ratio - 1))
        outside.append(abs(alone / ratio - 1))
        guesses.append(abs(GUESS / ratio - 1))
        signs += (said < 1) == (ratio < 1)
        numbers = [f"{value:.3f}" for value in (*measured[n], ratio, *told, said)]
        cells = (row["workload"], row["case"], *numbers, f"{said / ratio - 1:+.1%}", f"{alone / ratio - 1:+.1%}")
        lines.append(f"| {' | '.join(cells)} |")
    middle = [f"{statistics.median(values):.1%}" for values in (errors, outside, guesses)]
    lines.append(
        f"\nSign right for {signs} of {len(rows)}; median error of the ratio {middle[0]}, left out {middle[1]}; "
        f"{GUESS} for every row, near their mean, would miss by {middle[2]}.\n"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    found = report(sys.argv[1])
    KEPT.write_text(found, encoding="utf-8")
    print(found)
