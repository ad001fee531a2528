"""Small programs, recorded and lowered: what the tests of checking start from."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuscope.check.memory import Kernel, Usage, kernels, usages
from npuscope.check.program import Program
from npuscope.device.chip import load
from npuscope.lower.passes import Options
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.run.execute import record

CHIP = "910b1"


def tensor(shape: tuple[int, ...], dtype: str) -> Any:
    return np.zeros(shape, BY_NAME[dtype].storage)


def program(fn: Any, *arguments: Any, chip: str = CHIP) -> Program:
    """A program as its recording in shapes mode shows it."""
    return Program(record(fn, *arguments, mode="shapes").recording, load(chip))


def lowered(
    fn: Any, *arguments: Any, options: Options = Options(), chip: str = CHIP
) -> tuple[Program, tuple[Kernel, ...]]:
    recorded = program(fn, *arguments, chip=chip)
    return recorded, kernels(recorded, options)


def used(found: tuple[Kernel, ...]) -> dict[tuple[str, str], int]:
    """Function and space -> bytes."""
    return {(usage.function, usage.space.space): usage.space.used for usage in usages(found)}


def usage(found: tuple[Kernel, ...], function: str, space: str) -> Usage:
    return next(one for one in usages(found) if (one.function, one.space.space) == (function, space))
