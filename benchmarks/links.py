"""Fits the constants of links and collectives to released measurements, and says how far each row is missed.

python benchmarks/links.py            the fit, in sample, and with each row left out
python benchmarks/links.py --check    only how far the constants of the device file miss
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import spearmanr

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "tests")]

from validation import measured  # noqa: E402

from npuscope.chip.devices import load  # noqa: E402
from npuscope.time.ranks.collective import Collective, constants_of, parts_of, times_of  # noqa: E402

FREE = (
    "put_local", "put_remote", "notify_set", "remote_load", "remote_load_rate", "signal_latency", "remote_issue",
    "collective_wall", "slot_chip", "slot_host", "slot_rank", "call_composite", "call_host", "call_domain", "hccl_call",
    "hccl_rate", "hand_wall", "hand_rate",
)  # fmt: skip
FORM = {
    "hccl": "hccl", "fit B hccl": "hccl", "hand-written AIV kernel": "hand", "pypto composite mesh": "composite",
    "fit B composite mesh": "composite", "fit B composite ring": "ring", "pypto host builtin mesh": "host",
    "fit B host builtin": "host", "chip builtin": "builtin", "host builtin": "host",
    "host builtin lanes branch": "host",
}  # fmt: skip
LARGE = (1 << 20, 1 << 22)  # two sizes that a rate is read off


@dataclass(frozen=True)
class MeasuredCollective:
    line: int
    asked: Collective
    metric: str
    value: float  # nanoseconds, or bytes per nanosecond
    fresh_domain: bool
    impl: str


def read_rows(file: Path) -> list[MeasuredCollective]:
    """Rows of PyPTO's and HCCL's collectives; those of other systems have another implementation."""
    with file.open() as lines:
        told = [line for line in lines if not line.startswith("#")]
    found = []
    for number, row in enumerate(csv.DictReader(told)):
        if row["system"] != "B2" or row["impl"] not in FORM:
            continue
        asked = Collective(
            row["op"],
            int(row["ranks"]),
            int(row["bytes"] or 0),
            int(row["aiv_cores"] or 1),
            FORM[row["impl"]],
            row["dtype"].upper(),
        )
        metric = row["metric"].removeprefix("hccl_")
        scale = 1.0 if metric == "GB_per_s" else 1e3
        fresh = "allocated per call" in row["note"]
        found.append(MeasuredCollective(number, asked, metric, float(row["time_us"]) * scale, fresh, row["impl"]))
    return found


def predicted(row: MeasuredCollective, c: Mapping[str, float]) -> float:
    if row.metric == "GB_per_s":
        small, large = (_main(row.asked, size, c) for size in LARGE)
        return (LARGE[1] - LARGE[0]) / (large - small)
    return times_of(row.asked, c)[row.metric] + (c["call_domain"] if row.fresh_domain else 0.0)


def _main(asked: Collective, size: int, c: Mapping[str, float]) -> float:
    one = Collective(asked.op, asked.ranks, size, asked.cores, asked.form, asked.dtype)
    return next(iter(times_of(one, c).values()))


def fitted(rows: Sequence[MeasuredCollective], start: Mapping[str, float]) -> dict[str, float]:
    first = np.log([max(start[name], 1e-9) for name in FREE])

    def constants(x: np.ndarray) -> dict[str, float]:
        return {
            **start,
            **dict(zip(FREE, np.exp(x).tolist(), strict=True)),
            "put_rate": exp(x[FREE.index("remote_load_rate")]),
        }

    def misses(x: np.ndarray) -> np.ndarray:
        c = constants(x)
        miss = [log(predicted(row, c) / row.value) for row in rows]
        return np.array([*miss, *(0.02 * (x - first))])  # a constant that no row decides stays where it was

    return constants(least_squares(misses, first, loss="soft_l1", f_scale=0.1).x)


def told(title: str, rows: Sequence[MeasuredCollective], values: Sequence[float]) -> None:
    miss = np.array([log(value / row.value) for row, value in zip(rows, values, strict=True)])
    print(f"{title}: {len(rows)} rows, median {100 * (exp(np.median(np.abs(miss))) - 1):.1f} %, "
          f"within 15 % {100 * np.mean(np.abs(miss) < log(1.15)):.0f} %, "
          f"rank order {spearmanr(values, [row.value for row in rows]).statistic:.3f}")  # fmt: skip
    for metric in dict.fromkeys(row.metric for row in rows):
        some = [n for n, row in enumerate(rows) if row.metric == metric]
        order = spearmanr([values[n] for n in some], [rows[n].value for n in some]).statistic if len(some) > 2 else 1.0
        median, wide = (exp(np.quantile(np.abs(miss[some]), share)) for share in (0.5, 0.8))
        print(f"  {metric}: {len(some)} rows, median {100 * (median - 1):.1f} %, 80 % within a factor of {wide:.3f}, "
              f"rank order {order:.3f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, default=measured.FOLDER, help="the measured tables")
    parser.add_argument("--check", action="store_true", help="only the constants of the device file")
    args = parser.parse_args()
    rows, start = read_rows(args.measured / "collectives_measured.csv"), constants_of(load("ascend910b2"))
    told("the device file", rows, [predicted(row, start) for row in rows])
    if args.check:
        return
    best = fitted(rows, start)
    told("fitted, in sample", rows, [predicted(row, best) for row in rows])
    left_out = [predicted(row, fitted([other for other in rows if other is not row], best)) for row in rows]
    told("each row left out", rows, left_out)
    for row, value, alone in zip(rows, (predicted(row, best) for row in rows), left_out, strict=True):
        bound = "" if row.asked.form in ("hccl", "hand") else parts_of(row.asked, best).bound
        one = row.asked
        print(f"  {row.impl:28s} {one.op:13s} {one.ranks} ranks {one.bytes:>9,} B x{one.cores:<3d}{row.metric:12s} "
              f"{row.value:12.4g} in sample {value:12.4g} left out {alone:12.4g}  {bound}")  # fmt: skip
    for name in FREE:
        print(f"{name} = {best[name]:.4g}  (was {start[name]:.4g}; nanoseconds, or per nanosecond)")


if __name__ == "__main__":
    main()
