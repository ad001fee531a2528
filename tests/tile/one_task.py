"""Programs of one task: what a body makes of its inputs, and numbers to give it."""

# No `from __future__ import annotations`: signatures below name types that are local to a function.

from typing import Any

import numpy as np

import npuscope.tile as pl
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
RNG = np.random.default_rng(7)


def run_on(body: Any, inputs: list[np.ndarray], shape: tuple[int, ...], dtype: Any = np.float32, **layouts: Any) -> Any:
    """A program of one task: what `body` makes of its inputs is stored; its output. `layouts`: of inputs by place."""
    types = [
        pl.Tensor[list(x.shape), type_of(x), *([layouts[f"x{n}"]] if f"x{n}" in layouts else [])]
        for n, x in enumerate(inputs)
    ]
    a, b, c, d = (types * 4)[:4] if len(types) < 4 else types[:4]
    out_type = pl.Tensor[list(shape), type_of(np.zeros(0, dtype))]

    @pl.jit
    def one(x0: a, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0), [0, 0], out)
        return out

    @pl.jit
    def two(x0: a, x1: b, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0, x1), [0, 0], out)
        return out

    @pl.jit
    def three(x0: a, x1: b, x2: c, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0, x1, x2), [0, 0], out)
        return out

    @pl.jit
    def four(x0: a, x1: b, x2: c, x3: d, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0, x1, x2, x3), [0, 0], out)
        return out

    out = np.zeros(shape, dtype)
    finished = record([one, two, three, four][len(inputs) - 1], *inputs, out)
    return out, finished.recording


def type_of(x: np.ndarray) -> Any:
    from npuscope.ops.dtypes import of_storage

    return of_storage(x.dtype)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)
