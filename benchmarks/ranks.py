"""What a report of a run over many ranks costs beside reading it, and whether memory grows with the ranks alone.

    python benchmarks/ranks.py                  8, 16, 32 and 64 ranks of 100,000 slices (some minutes, 0.7 GB of disk)
    python benchmarks/ranks.py 8 16 --slices 20000

CPU seconds are of a fresh process and include imports. The goal: the report within 3 times the CPU of reading, and as
much memory per rank with 64 as with 8.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measure import python_cost, table
from planted_ranks import write_large

READ = "from npuscope.trace.formats import read; read({path!r})"
REPORT = "from npuscope.cli import main; import sys; sys.argv = ['npuscope', 'report', {path!r}]; main()"
HEADER = ["ranks", "slices each", "read CPU s", "report CPU s", "ratio", "report MB", "MB per rank"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", nargs="*", type=int, default=[8, 16, 32, 64])
    parser.add_argument("--slices", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=1)
    asked = parser.parse_args()
    rows = []
    for ranks in asked.ranks:
        with tempfile.TemporaryDirectory() as folder:
            path = str(write_large(Path(folder) / "run", ranks, asked.slices))
            read = python_cost(READ.format(path=path), runs=asked.runs)
            report = python_cost(REPORT.format(path=path), runs=asked.runs)
            shutil.rmtree(path)
        ratio, each = f"{report.cpu / read.cpu:.2f}", f"{report.megabytes / ranks:.0f}"
        cells = [f"{read.cpu:.1f}", f"{report.cpu:.1f}", ratio, f"{report.megabytes:.0f}", each]
        rows.append([str(ranks), f"{asked.slices:,}", *cells])
    table("A report of many ranks", HEADER, rows)


if __name__ == "__main__":
    main()
