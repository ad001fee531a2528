"""What it costs to cut forward passes out of a capture, beside reading it, and how that grows; in one run.

    python benchmarks/forward.py              about three minutes on two cores

The capture is longcat_910c of the real ones (tests/real_data.py), repeated 1, 34 and 264 times (3,785, 128,690 and
999,240 rows), with its steps and with none. The named peer (msmodeling's NPU Forward Inspector, measured by others)
took 0.17 s, 11.8 s and did not finish.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measure import Cost, cost, make, python_cost, table
from real_data import DATA

LONGCAT = DATA / "ascend" / "longcat_910c" / "kernel_details.csv"
READ = "import npuscope; t = npuscope.read({path!r}); assert t.slices.height"
PEER = {1: "0.17 s, 35 MB", 34: "11.8 s, 631 MB, 204 segments", 264: "not done after 273 s, 4.8 GB"}


def forward(path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "npuscope", "forward", str(path), *options]


def found(path: Path) -> str:
    done = subprocess.run(forward(path, "--list", "--json"), capture_output=True, check=True)
    passes = json.loads(done.stdout)["passes"]
    attentions = {p["attentions"] for p in passes}
    return f"{len(passes)} passes of {attentions}, {sum(p['disturbed'] for p in passes)} disturbed"


def ratio(cost: Cost, against: Cost) -> str:
    memory = f"{cost.megabytes:.0f} MB, {cost.megabytes / against.megabytes:.2f}x"
    return f"{cost.cpu:.2f} s, {cost.cpu / against.cpu:.2f}x; {memory}"


def main() -> None:
    if not LONGCAT.exists():
        raise SystemExit(f"left out: {LONGCAT} is not here")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for times in (1, 34, 264):
            for steps in (1, 0):
                path = Path(folder) / f"kernel_details_{times}_{steps}.csv"
                make("repeat_kernel_table", LONGCAT, path, times, steps)
                runs = 3 if times < 100 else 2
                reading = python_cost(READ.format(path=str(path)), runs=runs)
                listing = cost(forward(path, "--list"), runs)
                out = Path(folder) / f"passes_{times}_{steps}"
                export = cost(forward(path, "--list", "--select", "all", "--out", str(out)), runs)
                rows.append(
                    [
                        f"{times * 3785:,}{'' if steps else ', no steps'}",
                        f"{reading.cpu:.2f} s, {reading.megabytes:.0f} MB",
                        ratio(listing, reading),
                        ratio(export, reading),
                        found(path),
                        PEER[times],
                    ]
                )
                path.unlink()
    table(
        "Forward passes of LongCat (CPU, peak memory; ratio to reading)",
        ["rows", "read", "list", "list and export every pass", "found", "peer (list)"],
        rows,
    )


if __name__ == "__main__":
    main()
