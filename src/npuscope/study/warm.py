"""What a warm process has loaded: all that records, checks and simulates a program, and the compiled simulator."""

from __future__ import annotations

import contextlib
import io

import numpy as np

from npuscope.check.checked import check
from npuscope.lower.program import Program
from npuscope.simulate.programs import chip_to_time
from npuscope.simulate.run import is_compiled, simulate
from npuscope.simulate.uncertainty import known_misses
from npuscope.study.smallest_program import smallest
from npuscope.tile.run.execute import record

DEVICE = "ascend910b1"


def warm_up() -> None:
    """Runs the smallest program once, so that machine code, tables and caches are there before the first job."""
    with contextlib.redirect_stdout(io.StringIO()):
        arrays = [np.ones((64, 64), np.float32) for _ in range(3)]
        ran = record(smallest, *arrays, mode="values")
        program = Program(ran.recording, chip_to_time(DEVICE))
        check(program)
        known_misses()
        if is_compiled():
            simulate(program)
