"""Small programs, recorded and lowered: what the tests of checking start from."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuscope.check.memory_use import Usage, usages
from npuscope.chip.devices import load
from npuscope.lower.lowering import LoweringOptions
from npuscope.lower.program import PlannedBody, Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.run.execute import record

CHIP = "910b1"


def tensor(shape: tuple[int, ...], dtype: str) -> Any:
    return np.zeros(shape, BY_NAME[dtype].storage)


def program(fn: Any, *arguments: Any, options: LoweringOptions = LoweringOptions(), chip: str = CHIP) -> Program:
    """A program as its recording in shapes mode shows it; without arguments on zeros of the declared shapes."""
    arguments = arguments or tuple(parameter.new_array() for parameter in fn.parameters)
    return Program(record(fn, *arguments, mode="shapes").recording, load(chip), options)


def lowered(
    fn: Any, *arguments: Any, options: LoweringOptions = LoweringOptions(), chip: str = CHIP
) -> tuple[Program, tuple[PlannedBody, ...]]:
    recorded = program(fn, *arguments, options=options, chip=chip)
    return recorded, tuple(recorded.planned.values())


def used(found: tuple[PlannedBody, ...]) -> dict[tuple[str, str], int]:
    """Function and space -> bytes."""
    return {(usage.function, usage.space.space): usage.space.used for usage in usages(found)}


def usage(found: tuple[PlannedBody, ...], function: str, space: str) -> Usage:
    return next(one for one in usages(found) if (one.function, one.space.space) == (function, space))
