"""What must hold for every program of this autumn: a graph is its plain form, boxes hold what rows hold, small types
come back as they went.
"""

# No `from __future__ import annotations`: signatures below name types that are local to a function.

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import npuscope.tile as pl
from npuscope.ops.dtypes import HALF_BYTES, SMALL_FLOATS, packed, unpacked
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
STEPS = st.lists(st.tuples(st.sampled_from(["mul", "add", "maximum"]), st.integers(-3, 3)), min_size=1, max_size=4)


def model(steps: list[tuple[str, int]], calls: int, form: str) -> Any:
    """A part of several tasks that is called several times, each time with another number: inlined, as a graph, or as
    a graph in place.
    """

    def part(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]], by: pl.Scalar[pl.FP32]):
        for n in pl.unroll(len(steps)):
            with pl.at(level=CORE, name_hint=f"step{n}"):
                x[:] = getattr(pl, steps[n][0])(pl.mul(x, by), float(steps[n][1]))
        return x

    called = pl.jit.graph(part) if form == "graph" else pl.jit.inline(part)

    @pl.jit
    def whole(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]]):
        for n in pl.unroll(calls):
            if form == "region":
                with pl.graph("part"):
                    x = called(x, 0.5 * (n + 1))
            else:
                x = called(x, 0.5 * (n + 1))
        return x

    return whole


@given(STEPS, st.integers(1, 4), st.integers(0, 1 << 30))
@examples(25)
def test_a_graph_is_its_plain_form(steps: list[tuple[str, int]], calls: int, seed: int) -> None:
    start = np.random.default_rng(seed).standard_normal((16, 32)).astype(np.float32)
    found = []
    for form in ("plain", "graph", "region"):
        x = start.copy()
        run = record(model(steps, calls, form), x)
        tasks = [
            (task.kernel, task.core, [(a.buffer, a.reads, a.writes) for a in task.arguments])
            for task in run.recording.tasks
        ]
        found.append((x.tobytes(), tasks, len(run.recording.bodies)))
    assert found[0] == found[1] == found[2]


def in_boxes(x: np.ndarray) -> np.ndarray:
    """A matrix in the order of NZ: column blocks of 32 bytes, in each 16 rows after the other."""
    rows, columns = x.shape
    wide = 32 // x.dtype.itemsize
    split = x.reshape(rows // 16, 16, columns // wide, wide)
    return split.transpose(2, 0, 1, 3).copy().reshape(x.shape)


@st.composite
def products(draw: Any) -> tuple[Any, int, int, int, int, int]:
    dtype = draw(st.sampled_from([ml_dtypes.bfloat16, np.float16, np.int8]))
    step = 32 if dtype is np.int8 else 16
    k, n = (step * draw(st.integers(1, 4)) for _ in range(2))
    row = 16 * draw(st.integers(0, k // 16 - 1))
    column = step * draw(st.integers(0, n // step - 1))
    return dtype, k, n, row, column, draw(st.integers(0, 1 << 30))


@given(products())
@examples(25)
def test_a_weight_in_boxes_is_the_weight_in_rows(case: tuple[Any, int, int, int, int, int]) -> None:
    dtype, k, n, row, column, seed = case
    deep, wide = k - row, n - column
    rng = np.random.default_rng(seed)
    x, w = (rng.integers(-5, 6, shape).astype(dtype) for shape in ((16, deep), (k, n)))
    kind = {np.int8: pl.INT8, np.float16: pl.FP16}.get(dtype, pl.BF16)
    out = np.int32 if dtype is np.int8 else np.float32
    results = []
    for layout, weight in ((pl.ND, w), (pl.NZ, in_boxes(w))):

        @pl.jit
        def product(
            a: pl.Tensor[[16, deep], kind],
            b: pl.Tensor[[k, n], kind, layout],
            y: pl.Out[pl.Tensor[[16, wide], pl.INT32 if dtype is np.int8 else pl.FP32]],
        ):
            with pl.at(level=CORE):
                y = pl.store(pl.matmul(a, b[row:k, column:n]), [0, 0], y)
            return y

        y = np.zeros((16, wide), out)
        product(x, weight, y)
        results.append(y)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], x.astype(np.float64) @ w[row:, column:].astype(np.float64))


@given(st.sampled_from(HALF_BYTES), st.integers(1, 5), st.integers(1, 8), st.integers(0, 1 << 30))
@examples(40)
def test_two_to_a_byte_and_back(dtype: Any, rows: int, pairs: int, seed: int) -> None:
    carrier = np.random.default_rng(seed).integers(0, 256, (rows, pairs)).astype(np.uint8)
    alone = unpacked(carrier, dtype)
    assert alone.shape == (rows, 2 * pairs)
    again = np.zeros_like(carrier)
    packed(alone, again)
    np.testing.assert_array_equal(again, carrier)


def test_every_value_of_a_small_float_is_kept_by_a_load_and_a_store() -> None:
    for dtype in SMALL_FLOATS:
        assert dtype.storage is not None
        codes = np.arange(16 if dtype in HALF_BYTES else 256, dtype=np.uint8).reshape(16, -1)
        values = codes.view(dtype.storage)
        x = np.tile(values, (1, 32 // values.shape[1]))

        @pl.jit
        def copied(a: pl.Tensor[[16, 32], dtype], y: pl.Out[pl.Tensor[[16, 32], dtype]]):
            with pl.at(level=CORE):
                y = pl.store(pl.load(a, [0, 0], [16, 32]), [0, 0], y)
            return y

        y = np.zeros_like(x)
        copied(x, y)
        wide = x.astype(np.float32)
        np.testing.assert_array_equal(y.astype(np.float32), wide)
        np.testing.assert_array_equal(y.view(np.uint8)[~np.isnan(wide)], x.view(np.uint8)[~np.isnan(wide)])
