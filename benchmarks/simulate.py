"""What simulating costs, in one run: recording, lowering, timing bodies, the chip; against a SimPy model of it.

python benchmarks/simulate.py            # Qwen3-14B, 40 layers, BF16 and A8W8 (needs simpy)
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from simpy_chip import Chip  # noqa: E402

from npuscope.device.chip import load  # noqa: E402
from npuscope.lower.program import Program  # noqa: E402
from npuscope.simulate.chip.engine import run_chip  # noqa: E402
from npuscope.simulate.chip.prepare import prepare  # noqa: E402
from npuscope.tile.script import run_script  # noqa: E402

PROGRAMS = {"BF16": "models/qwen3_14b/decode.py", "A8W8": "models/qwen3_14b/decode_a8w8.py"}
BOUND, FASTER = 0.1, 40


def main() -> int:
    print(
        f"{'':6} {'tasks':>7} {'blocks':>7} {'record':>8} {'prepare':>8} {'chip':>8} {'SimPy':>8} {'ratio':>7}  CPU-s"
    )
    bad = 0
    for name, path in PROGRAMS.items():
        clock = time.process_time
        start = clock()
        recording = run_script(ROOT / path, [], "shapes").recordings[0]
        recorded = clock() - start
        start = clock()
        prepared = prepare(Program(recording, load("910b2")))
        ready = clock() - start
        run_chip(prepared.job, prepared.machine)  # compiles, or loads what was compiled
        times = []
        for _ in range(5):
            start = clock()
            run_chip(prepared.job, prepared.machine)
            times.append(clock() - start)
        start = clock()
        end = Chip(prepared.job, prepared.machine).run()
        peer = clock() - start
        print(f"{name}: {run_chip(prepared.job, prepared.machine)[1] / 1e6:.2f} ms, SimPy {end / 1e6:.2f} ms")
        best = min(times)
        bad += best > BOUND or peer / best < FASTER
        counts = f"{len(prepared.job.shape):7,} {len(prepared.job.block_class):7,}"
        print(f"{name:6} {counts} {recorded:8.2f} {ready:8.2f} {best:8.4f} {peer:8.2f} {peer / best:8.0f}")
    print(f"bounds: chip {BOUND} s warm, {FASTER} times SimPy")
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
