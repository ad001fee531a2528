"""Predicted against measured: everything in the public measurements that a tile program can represent.

    python benchmarks/validate.py                  the table
    python benchmarks/validate.py --only c185      rows whose key begins so
    python benchmarks/validate.py --write          also writes docs/validation.md
    python benchmarks/validate.py --fit            fits constants of [timing] to the calibrating rows and prints them
    python benchmarks/validate.py --fit --write    also writes them into the device files

Rows, and which of them calibrate, are in validation/rows.toml; the programs are in validation/ and models/.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parent))

from validation.predictions import Bench, Value, predict

from npuscope.device.chip import load

ROWS = Path(__file__).parent / "validation" / "rows.toml"


@dataclass(frozen=True)
class Row:
    """One measurement. Of a change `measured` is after over before. `beside`: another form of a row, not counted."""

    key: str
    what: str
    unit: str
    source: str
    measured: float
    pair: tuple[float, float] | None
    decides: str
    beside: bool

    @property
    def change(self) -> bool:
        return self.pair is not None


@dataclass(frozen=True)
class Result:
    row: Row
    value: Value

    @property
    def predicted(self) -> float:
        return self.value[1] / self.value[0] if isinstance(self.value, tuple) else self.value

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.row.measured

    @property
    def error(self) -> float:
        """How far off, as a factor minus one: 2 times and half are the same error."""
        return max(self.ratio, 1 / self.ratio) - 1 if self.ratio > 0 else float("inf")

    @property
    def right(self) -> bool:
        """Of a change: whether it goes the way it was measured to go."""
        return (self.predicted < 1) == (self.row.measured < 1)


def rows() -> list[Row]:
    found = []
    for row in tomllib.loads(ROWS.read_text())["row"]:
        pair = (row["before"], row["after"]) if "before" in row else None
        measured = pair[1] / pair[0] if pair else row["measured"]
        told = (row.get("decides", ""), row.get("beside", False))
        found.append(Row(row["key"], row["what"], row["unit"], row["source"], measured, pair, *told))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="910b1")
    parser.add_argument("--only", default="", help="rows whose key begins so")
    parser.add_argument("--write", action="store_true", help="write docs/validation.md, or what was fitted")
    parser.add_argument("--fit", action="store_true", help="fit constants to the calibrating rows and print them")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write needs all rows: leave out --only")
    if options.fit:
        from validation.fit import fit, put

        before = load(options.device)
        fitted = fit(before, {row.key: row.measured for row in rows() if row.decides})
        for name, constant in fitted.timing.items():
            if constant != before.timing[name]:
                print(f"{name}: {before.timing[name].value:.4g} → {constant.value:.4g} {constant.unit}")
        if options.write:
            put(fitted)
        return
    bench, results = Bench(load(options.device)), []
    begun = perf_counter()
    for row in rows():
        if row.key.startswith(options.only):
            results.append(Result(row, predict(row.key, bench)))
            told = results[-1]
            mark = "calibrates" if row.decides else ""
            value = " → ".join(f"{v:.4g}" for v in told.value) if isinstance(told.value, tuple) else ""
            print(
                f"{row.key:22} {row.unit:8} measured {row.measured:9.4g} predicted {told.predicted:9.4g} "
                f"ratio {told.ratio:5.2f} {mark:10} {value}  [{perf_counter() - begun:.0f} s]",
                flush=True,
            )
    if options.write:
        from validation.page import write

        write(results, bench.device)


if __name__ == "__main__":
    main()
