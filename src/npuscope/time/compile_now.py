"""Compiles the simulator and leaves: what a process that has no machine code yet starts in the background."""

from __future__ import annotations

import os
import sys

import numpy as np

from npuscope.lower.program import Program
from npuscope.tile.run.execute import record
from npuscope.time.programs import chip_to_time
from npuscope.time.run import simulate
from npuscope.time.smallest_program import smallest

DEVICE = "ascend910b1"


def smallest_run() -> Program:
    """A program that needs all of the simulator, recorded."""
    arrays = [np.ones((64, 64), np.float32) for _ in range(3)]
    return Program(record(smallest, *arrays, mode="values").recording, chip_to_time(DEVICE))


def compile_now() -> None:
    if sys.platform != "win32":
        os.nice(5)
    simulate(smallest_run())
