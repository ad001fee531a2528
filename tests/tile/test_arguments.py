"""What an entry is called with: arrays against their annotations, scalars, dimensions known at run time."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.record.model import Mode
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
ROWS, COLS = pl.dynamic("ROWS"), 16


@pl.jit
def copy(
    x: pl.Tensor[[ROWS, COLS], pl.FP32],
    y: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
    shift: pl.Scalar[pl.FP32] = 0.0,
):
    x.bind_dynamic(0, ROWS)
    rows = pl.tensor.dim(x, 0)
    for i in pl.parallel(rows):
        with pl.at(level=CORE):
            y[i : i + 1, :] = pl.add(x[i : i + 1, :], shift)
    return y


def array(rows: int, cols: int = COLS, dtype=np.float32) -> np.ndarray:
    return np.arange(rows * cols).reshape(rows, cols).astype(dtype)


def read_only(rows: int) -> np.ndarray:
    fixed = array(rows)
    fixed.flags.writeable = False
    return fixed


@pytest.mark.parametrize("rows", [1, 3])
def test_a_dimension_is_what_the_argument_has(rows: int) -> None:
    y = np.zeros((rows, COLS), np.float32)
    finished = record(copy, array(rows), y, shift=1.5)
    np.testing.assert_array_equal(y, array(rows) + 1.5)
    assert len(finished.recording.tasks) == rows


@pytest.mark.parametrize(
    ("arguments", "named", "part"),
    [
        ((array(2), array(3)), {}, r"axis 0 of y is declared 2, the argument has shape \[3, 16\]"),
        ((array(2, dtype=np.int32), array(2)), {}, "x is declared FP32, the argument is INT32"),
        ((array(2).reshape(-1), array(2)), {}, r"x is declared \['ROWS', 16\], the argument has shape \[32\]"),
        ((array(2, dtype=np.float64), array(2)), {}, "x has the type float64, which the chip has not"),
        ((array(2),), {}, "needs the argument y"),
        ((array(2), array(2), 1.0, 2.0), {}, r"takes 3 arguments \(x, y, shift\), not 4"),
        ((array(2), array(2)), {"shfit": 1.0}, "has no parameter shfit. It has x, y, shift"),
        ((pl.Placeholder((2, COLS), pl.FP32), array(2)), {}, "x is a placeholder. Record it in shapes mode"),
        ((3, array(2)), {}, "x is declared a tensor, the argument is 3"),
        ((None, array(2)), {}, "x is declared a tensor, the argument is None"),
        (([[1.0]], array(2)), {}, r"x is declared a tensor, the argument is \[\[1.0\]\]"),
        ((np.float32(3), array(2)), {}, "x is declared a tensor, the argument is"),
        ((np.array(3.0), array(2)), {}, r"x is declared a tensor, the argument has shape \[\]"),
        ((array(2), array(2)), {"x": array(2)}, "is given x twice, by place and by name"),
        ((np.ma.masked_array(array(2)), array(2)), {}, "x is a masked array. Fill it first"),
        ((array(2), read_only(2)), {}, "y is declared pl.Out, the array is read-only"),
        ((array(2), array(2), "much"), {}, "shift is declared a scalar, the argument is 'much'"),
        ((array(2), array(2), 10**400), {}, "shift: a number of 401 digits is too large for FP32"),
    ],
)
def test_an_argument_that_does_not_fit_is_named_at_the_call(arguments, named, part: str) -> None:
    with pytest.raises(TileError, match=rf"test_arguments.py, line \d+: copy\(\).*{part}"):
        copy(*arguments, **named)


def test_a_function_is_compiled_for_the_shapes_that_it_is_given() -> None:
    """Of what a @pl.jit function declares, PyPTO takes the layout alone: a batch of 1 runs where 16 stands."""
    x, y = array(2, 8), np.zeros((2, 8), np.float32)
    finished = record(copy, x, y)
    np.testing.assert_array_equal(y, x)
    said = [one.message for one in finished.recording.notices if one.kind == "extent"]
    assert any("axis 1 of x is declared 16, the argument has shape [2, 8]" in one for one in said)

    @pl.program
    class Fixed:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[2, COLS], pl.FP32], y: pl.Out[pl.Tensor[[2, COLS], pl.FP32]]):
            with pl.at(level=CORE):
                y[:] = pl.add(x, 0.0)
            return y

    with pytest.raises(TileError, match="axis 1 of x is declared 16"):
        record(Fixed, x, y)


def test_shapes_need_no_values() -> None:
    tensor = pl.Placeholder((3, COLS), pl.FP32)
    assert len(record(copy, tensor, tensor, mode="shapes").recording.tasks) == 3


@pl.jit
def typed(n: pl.Scalar[pl.INT32], flag: pl.Scalar[pl.INT32], s: pl.Scalar[pl.FP32], y: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        pl.write(y, [0, n], s)
        if flag:
            pl.write(y, [0, n + 1], s / 3)
    return y


@pytest.mark.parametrize("one", [1, True, np.int64(1), np.array(1), np.bool_(True)])
def test_scalars_come_in_many_forms(one) -> None:
    y = np.zeros((1, 4), np.float32)
    typed(one, one, 0.1, y)
    np.testing.assert_array_equal(y, [[0, np.float32(0.1), np.float32(0.1) / np.float32(3), 0]])


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.int8, np.int32])
def test_an_array_of_each_type_is_a_tensor_of_that_type(dtype) -> None:
    @pl.jit
    def same(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=CORE):
            y[:] = x
        return y

    y = np.zeros((2, COLS), dtype)
    same(array(2, dtype=dtype), y)
    np.testing.assert_array_equal(y, array(2, dtype=dtype))


@pl.jit
def counted(x: pl.Tensor[[2, COLS], pl.FP32], n: pl.Scalar[pl.INT32]):
    for i in pl.range(n):
        with pl.at(level=CORE):
            pl.adds(x, i)


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (1.5, "n is declared INT32, the argument is 1.5"),
        (float("nan"), "n is declared INT32, the argument is nan"),
        (1 << 31, "n: 2147483648 is not a value of INT32"),
        (np.array([1, 2]), r"n is declared a scalar, the argument has shape \[2\]"),
        (np.array("two"), "n has the type <U3, which the chip has not"),
    ],
)
@pytest.mark.parametrize("mode", ["values", "shapes"])
def test_a_scalar_is_a_value_of_its_type(value, part: str, mode: Mode) -> None:
    with pytest.raises(TileError, match=part):
        record(counted, array(2), value, mode=mode)
    assert len(record(counted, array(2), np.int32(2), mode=mode).recording.tasks) == 2


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2.5, 16), pl.FP32), ("16", pl.FP32), ((2, 16), "fp32"), ((-2,), pl.FP32)]
)
def test_a_placeholder_has_a_shape_and_a_type(shape, dtype) -> None:
    with pytest.raises(TileError, match=r"test_arguments.py"):
        pl.Placeholder(shape, dtype)


def test_a_declared_shape_has_extents() -> None:
    with pytest.raises(TileError, match=r"a declared shape has whole numbers or pl.dynamic names, not 'a'"):
        pl.Tensor[[32, "a"], pl.FP32]
    with pytest.raises(TileError, match=r"declared with a data type such as pl.FP32, not 'fp32'"):
        pl.Tensor[[32, 16], "fp32"]

    @pl.jit
    def late(x: pl.Tensor[[32, 1.5], pl.FP32]):
        pass

    with pytest.raises(TileError, match=r"names, not 1.5"):
        late(array(32))


@pl.jit
def scribbles(x: pl.Tensor[[2, COLS], pl.FP32], y: pl.Out[pl.Tensor[[2, COLS], pl.FP32]]):
    with pl.at(level=CORE):
        x[:, :] = pl.add(x, 1.0)
        y[:, :] = x
    return y


def test_what_a_program_writes_to_a_read_only_input_stays_on_the_chip() -> None:
    x, y = read_only(2), np.zeros((2, COLS), np.float32)
    scribbles(x, y)
    np.testing.assert_array_equal(x, array(2))
    np.testing.assert_array_equal(y, array(2) + 1)
