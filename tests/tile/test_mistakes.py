"""One call, one mistake: what is said about it, and at which line, the same in both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tile_mistakes import X, Y, message_of

import npuscope.tile as pl
from npuscope.tile.record.model import Mode

CORE = pl.Level.CORE_GROUP
NAN = float("nan")
ARRAY = np.ones((16, 32), np.float32)


@pl.jit.incore
def doubled(x: X, y: Y):
    return pl.store(pl.add(pl.load(x, [0, 0], [16, 32]), 1.0), [0, 0], y)


# a call with a mistake, and parts of the message
IN_A_TASK: list[Any] = [
    (
        lambda x, y: pl.and_(x, x),
        "pl.and works on the bits of whole numbers, not on [16, 32] FP32 and [16, 32] FP32",
        "Cast it",
    ),
    (lambda x, y: pl.shls(x, 2), "pl.shl works on the bits of whole numbers, not on [16, 32] FP32 and 2"),
    (
        lambda x, y: pl.ors(pl.full([16, 32], pl.INT32, 3), 0.5),
        "pl.or works on the bits of whole numbers, not on [16, 32] INT32 and 0.5",
    ),
    (lambda x, y: pl.not_(x), "pl.not works on the bits of whole numbers, not on [16, 32] FP32"),
    (
        lambda x, y: pl.read(pl.add(x, 1.0), ARRAY),
        "an element of [16, 32] FP32: an index must be a whole number, not a NumPy array",
    ),
    (lambda x, y: pl.load(x, [NAN, 0], [4, 4]), "pl.load: an offset must be a whole number, not nan"),
    (lambda x, y: pl.store(pl.add(x, 1.0), None, y), "pl.store: offsets must be a list of whole numbers, not None"),
    (lambda x, y: pl.assemble(y, pl.add(x, 1.0), ["0", 0]), "pl.assemble: an offset must be a whole number, not '0'"),
    (lambda x, y: pl.slice(x, [4, 4], [0]), "pl.slice: 1 offsets [0] for 2 axes"),
    (lambda x, y: pl.load(x, [0, 0], [4, 4], valid_shape=[4]), "valid_shape [4] for a box [4, 4]"),
    (lambda x, y: pl.set_validshape(pl.add(x, 1.0), "8", 32), "an extent must be a whole number, not '8'"),
    (lambda x, y: pl.sel(x[0:8, :], x, x), "pl.sel: shapes [16, 32] FP32 and [8, 32] FP32 do not fit together"),
    (lambda x, y: pl.sel(x, x, None), "pl.sel takes a number for FP32, not None"),
    (lambda x, y: pl.prelu(x, x[0:8, :]), "pl.lrelu: shapes [16, 32] FP32 and [8, 32] FP32 do not fit together"),
    (
        lambda x, y: pl.matmul_bias(x[:, 0:16], x[:, 0:16], x[:, 0:16]),
        "pl.matmul_bias: a bias [16, 16] FP32 for a product [16, 16] FP32",
    ),
    (lambda x, y: pl.fillpad_expand(x, [8, 32]), "pl.fillpad_expand: [16, 32] FP32 does not grow to [8, 32]"),
    (lambda x, y: pl.fillpad(x, pad_value="min"), "a padding must be pl.PadValue.… or a number, not 'min'"),
    (lambda x, y: pl.tri(0, [16]), "pl.tri makes rows and columns, not [16]"),
    (lambda x, y: pl.tri(0.5, [16, 16]), "pl.tri: the diagonal must be a whole number, not 0.5"),
    (lambda x, y: pl.gather(x, mask_pattern=0), "pl.gather: no mask pattern 0", "1 to 7"),
    (lambda x, y: pl.gather(x, mask_pattern=1.5), "pl.gather: mask_pattern= must be a whole number, not 1.5"),
    (lambda x, y: pl.gather(x, dim=-1, index=x), "pl.gather: indices must be whole numbers, not [16, 32] FP32"),
    (
        lambda x, y: pl.gather(x[0:8, :], dim=-1, index=pl.full([16, 8], pl.INT32, 0)),
        "pl.gather: indices [16, 8] INT32 for [8, 32] FP32",
    ),
    (
        lambda x, y: pl.gather(x, dim=2, index=pl.full([16, 8], pl.INT32, 0)),
        "along dim=2",
    ),
    (
        lambda x, y: pl.mrgsort(pl.reshape(x, [1, 512]), x, exhausted=pl.add(x, 1.0)),
        "pl.mrgsort: exhausted= must be True or False, not [16, 32] FP32",
    ),
    (
        lambda x, y: pl.mrgsort(pl.reshape(x, [1, 512]), block_len=NAN),
        "pl.mrgsort: block_len= must be a whole number, not nan",
    ),
    (lambda x, y: pl.add(x, 10**400), "pl.add: a number of 401 digits is too large for FP32"),
    (lambda x, y: pl.add(pl.full([16, 32], pl.INT32, 0), 1 << 31), "pl.add: 2147483648 is not a value of INT32"),
    (lambda x, y: pl.full([16, 32], dtype=pl.INT32, value=1.5), "pl.full: 1.5 is not a value of INT32"),
    (lambda x, y: pl.expands(x, None), "pl.expands takes a number for FP32, not None"),
    (lambda x, y: pl.arange(x, [1, 32]), "pl.arange takes a number for INT32, not [16, 32] FP32"),
    (
        lambda x, y: pl.matmul(x, x, b_trans=True, out_dtype="bf16"),
        "pl.matmul: 'bf16' is not a data type of the language",
    ),
    (lambda x, y: pl.matmul(x, x, b_trans=ARRAY), "pl.matmul: b_trans= must be True or False, not a NumPy array"),
    (lambda x, y: pl.move(x, target_memory="L1"), "pl.move needs target_memory=pl.MemorySpace.…, not 'L1'"),
    (lambda x, y: pl.add(x, ARRAY), "pl.add takes a tensor or a tile, not a NumPy array: pass it as an argument"),
    (lambda x, y: x[8:24, :], "pl.slice", "8 to 24 of axis 0", "x of shape [16, 32]"),
    (lambda x, y: pl.load(x, [0, -16], [16, 16]), "pl.load", "-16 to 0 of axis 1", "x of shape [16, 32]"),
    (lambda x, y: pl.add(x, 1.0)[:, 30:34], "pl.slice", "30 to 34 of axis 1", "the tile of shape [16, 32]"),
    (lambda x, y: pl.store(pl.add(x, 1.0), [16, 0], y), "pl.store", "16 to 32 of axis 0", "y of shape [16, 32]"),
    (
        lambda x, y: pl.slice(x, [16, 32], [0, 0], valid_shape=[17, 32]),
        "pl.slice: valid_shape [17, 32] is larger than the box [16, 32]",
    ),
    (lambda x, y: pl.row_sum(pl.reshape(x, [512])), "pl.row_sum needs rows and columns, not [512] FP32"),
    (lambda x, y: pl.concat(x, x[0:8, :]), "pl.concat", "[16, 32] FP32 and [8, 32] FP32", "side by side"),
    (lambda x, y: pl.arange(0, [2, 32], dtype=pl.INT32), "pl.arange makes one row, not [2, 32]"),
    (lambda x, y: pl.matmul(x, x), "pl.matmul", "[16, 32] FP32 times [16, 32] FP32", "32 columns meet 16 rows"),
    (
        lambda x, y: pl.matmul(pl.reshape(x, [512]), x, a_trans=True),
        "pl.matmul needs matrices, not [512] FP32 and [16, 32] FP32",
    ),
    (
        lambda x, y: pl.matmul(x, pl.cast(x, pl.BF16), b_trans=True),
        "pl.matmul: operands [16, 32] FP32 and [16, 32] BF16 differ in type",
    ),
    (
        lambda x, y: pl.matmul_acc(pl.full([16, 32], dtype=pl.FP32, value=0.0), x, x, b_trans=True),
        "pl.matmul_acc",
        "accumulator is [16, 32] FP32",
        "product [16, 16] FP32",
    ),
    (
        lambda x, y: pl.load(x, [0, 0], [16, 32], target_memory=pl.MemorySpace.Left),
        "pl.load fills Vec or Mat, not Left",
        "pl.move",
    ),
    (lambda x, y: pl.load(x, [0, 0], [16, 32], target_memory=pl.MemorySpace.Acc), "pl.load fills Vec or Mat, not Acc"),
    (
        lambda x, y: pl.move(pl.matmul(x, x, b_trans=True), target_memory=pl.MemorySpace.Acc),
        "pl.move",
        "[16, 16] FP32",
        "from Acc to Acc",
    ),
    (lambda x, y: pl.cast(x, pl.INT32, mode="up"), "pl.cast: no rounding mode 'up'", "rint"),
    (
        lambda x, y: pl.assemble(pl.slice(x, [16, 32], [0, 0], valid_shape=[8, 32]), pl.add(x, 1.0), [0, 0]),
        "pl.assemble",
        "0 to 16 of axis 0",
        "valid region of the tile",
        "shape [8, 32]",
    ),
    (
        lambda x, y: pl.write(pl.slice(x, [16, 32], [0, 0], valid_shape=[8, 32]), [9, 0], 1.0),
        "pl.write",
        "9 to 10 of axis 0",
        "valid region",
        "shape [8, 32]",
    ),
    (
        lambda x, y: pl.set_validshape(pl.add(x, 1.0), 17, 32),
        "pl.set_validshape: [17, 32] is larger than [16, 32] FP32",
    ),
    (lambda x, y: pl.system.task_dummy(deps=[]), "task_dummy inside a task"),
    (lambda x, y: pl.tile.reshap(x, [32, 16]), "pl.tile.reshap is not supported by npuscope", "pl.tile.reshape"),
    (lambda x, y: pl.max(x, x), "pl.max takes two scalars", "pl.maximum", "pl.row_max"),
    (lambda x, y: pl.aiv_shard(x), "pl.aiv_shard outside a pl.split_aiv region"),
    (lambda x, y: sum(pl.add(x, 1.0)), "Python cannot walk over a tile"),
    (lambda x, y: pl.add(x, 1.0) < 3.0, "Python cannot compare a tile", "pl.cmp"),
]
IN_ORCHESTRATION: list[Any] = [
    (lambda x, y: pl.read(x, [1.5, 2]), "an element of [16, 32] FP32: an index must be a whole number, not 1.5"),
    (lambda x, y: pl.slice(x, [4, 4], [0.5, 0]), "pl.slice: an offset must be a whole number, not 0.5"),
    (lambda x, y: pl.tensor.dim(x, None), "pl.tensor.dim: an axis must be a whole number, not None"),
    (lambda x, y: pl.transpose(None, 0, 1), "pl.transpose takes a tensor or a tile, not NoneType"),
    (lambda x, y: pl.transpose(x, "rows", 1), "pl.transpose: an axis must be a whole number, not 'rows'"),
    (lambda x, y: pl.create_tensor("16", dtype=pl.FP32), "a shape must be a list of whole numbers, not '16'"),
    (
        lambda x, y: pl.create_tensor([2.5, 16], dtype=pl.FP32),
        "the shape [2.5, 16]: an extent must be a whole number, not 2.5",
    ),
    (
        lambda x, y: pl.create_tensor([1 << 40, 1 << 40], dtype=pl.FP32),
        "a shape [1099511627776, 1099511627776] has",
        "more than any memory holds",
    ),
    (
        lambda x, y: pl.slice(x, [1, 32], [0, 0], drop_dims=[1]),
        "drop_dims=[1] of a box [1, 32]",
        "only an axis of 1 can go",
    ),
    (lambda x, y: pl.array.create(2, "ids"), "pl.array.create: 'ids' is not a data type of the language"),
    (
        lambda x, y: pl.array.get_element(x, 0),
        "pl.array.get_element takes an array of pl.array.create, not [16, 32] FP32",
    ),
    (lambda x, y: pl.array.create(2, pl.INT32)[0.5], "pl.array: an index must be a whole number, not 0.5"),
    (
        lambda x, y: pl.array.update_element(pl.array.create(2, pl.TASK_ID), 0, 7),
        "an array of task ids takes a task id, not int",
    ),
    (lambda x, y: pl.read(x, [16, 0]), "pl.read", "16 to 17 of axis 0", "x of shape [16, 32]"),
    (lambda x, y: pl.reshape(x, [16, 16]), "pl.reshape: [16, 32] FP32 cannot become [16, 16]", "number of elements"),
    (lambda x, y: pl.reshape(x[:, 0:16], [256]), "pl.reshape of a view [16, 16] FP32 of x that is not contiguous"),
    (lambda x, y: pl.transpose(x, axis1=0, axis2=2), "pl.transpose: no axis 2 in [16, 32] FP32"),
    (
        lambda x, y: pl.create_tensor([16, 32], dtype=pl.BF16, init_value=1.0),
        "pl.create_tensor: BF16 can start as 0 only",
    ),
    (lambda x, y: pl.add(x, x), "misplaced tensor op", "pl.add", "outside a task", "Put it inside"),
    (lambda x, y: x * 2.0, "misplaced tensor op", "pl.mul", "outside a task"),
    (lambda x, y: pl.full([16, 32], dtype=pl.FP32, value=0.0), "misplaced tensor op", "pl.full"),
    (lambda x, y: pl.create_tile([16, 32], dtype=pl.FP32), "misplaced tensor op", "pl.create_tile"),
    (lambda x, y: pl.load(x, [0, 0], [16, 32]), "misplaced tensor op", "pl.load"),
    (lambda x, y: pl.system.syncall(core_type="mix"), "misplaced tensor op", "pl.system.syncall"),
    (lambda x, y: doubled(x), "doubled() needs the argument y"),
    (lambda x, y: pl.const(3, None), "pl.const: None is not a data type of the language"),
]


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize(("call", "parts"), [pytest.param(row[0], row[1:], id=row[1]) for row in IN_A_TASK])
def test_a_mistake_in_a_task(call: Callable[..., object], parts: tuple[str, ...], mode: Mode) -> None:
    @pl.jit
    def program(x: X, y: Y):
        with pl.at(level=CORE):
            call(x, y)

    check(program, call, parts, mode)


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize(("call", "parts"), [pytest.param(row[0], row[1:], id=row[1]) for row in IN_ORCHESTRATION])
def test_a_mistake_in_orchestration(call: Callable[..., object], parts: tuple[str, ...], mode: Mode) -> None:
    @pl.jit
    def program(x: X, y: Y):
        call(x, y)

    check(program, call, parts, mode)


def check(program: Any, call: Callable[..., object], parts: tuple[str, ...], mode: Mode) -> None:
    message = message_of(program, mode)
    for part in parts:
        assert part in message, message
    lines = [line for _, _, line in call.__code__.co_lines() if line]
    assert any(f"test_mistakes.py, line {line}: " in message for line in lines), message
