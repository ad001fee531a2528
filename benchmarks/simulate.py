"""What simulating costs, in one run: recording, lowering, timing bodies, the chip; against a SimPy model of it.

python benchmarks/simulate.py            # Qwen3-14B, a layer and steps of 40, BF16 and A8W8 (needs simpy)
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from simpy_chip import Chip  # noqa: E402

from npuscope.chip.devices import load  # noqa: E402
from npuscope.lower.program import Program  # noqa: E402
from npuscope.tile.script.run import run_script  # noqa: E402
from npuscope.time.chip.engine import run_chip  # noqa: E402
from npuscope.time.chip.prepare import Prepared, prepare  # noqa: E402

PROGRAMS = {
    "layer BF16": ("models/qwen3_14b/decode_layer.py", []),
    "step BF16": ("models/qwen3_14b/decode.py", []),
    "step A8W8": ("models/qwen3_14b/decode_a8w8.py", []),
    "step A8W8, serialised": ("models/qwen3_14b/decode_a8w8.py", ["--serialised"]),
}
BOUND, FASTER, PREPARE = 0.1, 40, 2.0  # seconds of the chip, times SimPy, seconds to lower and time a layer's bodies


def prepared_of(path: str, argv: list[str]) -> tuple[Prepared, float, float]:
    """With how long recording and preparing took."""
    start = process_time()
    recording = run_script(ROOT / path, argv, "shapes").recordings[0]
    recorded = process_time() - start
    start = process_time()
    return prepare(Program(recording, load("910b2"))), recorded, process_time() - start


def best_of(prepared: Prepared, times: int = 7) -> float:
    taken = []
    for _ in range(times):
        start = process_time()
        run_chip(prepared.job, prepared.machine)
        taken.append(process_time() - start)
    return min(taken)


def main() -> int:
    first, _, _ = prepared_of(*PROGRAMS["layer BF16"])
    run_chip(first.job, first.machine)  # compiles, or loads what was compiled
    print("CPU seconds, on ascend910b2; the SimPy model has neither rings, early staging nor places behind")
    print("| | tasks | blocks | recorded | prepared | chip | SimPy | times | simulated ms | SimPy's |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    bad = 0
    for name, (path, argv) in PROGRAMS.items():
        prepared, recorded, ready = prepared_of(path, argv)
        best = best_of(prepared)
        _, wall = run_chip(prepared.job, prepared.machine)
        start = process_time()
        end = Chip(prepared.job, prepared.machine).run()
        peer = process_time() - start
        bad += best > BOUND or peer / best < FASTER or (name.startswith("layer") and ready > PREPARE)
        counts = f"{len(prepared.job.shape):,} | {len(prepared.job.block_class):,}"
        times = f"{recorded:.2f} | {ready:.2f} | {best:.4f} | {peer:.2f} | {peer / best:.0f}"
        print(f"| {name} | {counts} | {times} | {wall / 1e6:.3f} | {end / 1e6:.3f} |")
    print(
        f"bounds {'missed' if bad else 'held'}: chip {BOUND} s, {FASTER} times SimPy, a layer prepared in {PREPARE} s"
    )
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
