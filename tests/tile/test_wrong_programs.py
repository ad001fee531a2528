"""Programs with one mistake each: tasks where none may be, loops, Python where the language has another word."""

from __future__ import annotations

import numpy as np
import pytest
from tile_mistakes import Mistake, X, Y, mistakes, says

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.graph import task_graph
from npuscope.tile.record.model import Mode
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
NAN = float("nan")
ARRAY = np.ones((16, 32), np.float32)


@pl.jit.incore
def doubled(x: X, y: Y):
    return pl.store(pl.add(pl.load(x, [0, 0], [16, 32]), 1.0), [0, 0], y)


MISTAKES = """
pl.slice: an offset must be a whole number
    with pl.at(level=CORE):
        for i in pl.range(4):
            t = pl.slice(x, [4, 32], [i / 2, 0])  # here
pl.write: 1.5 is not a value of INT32
    counts = pl.create_tensor([1, 16], dtype=pl.INT32, init_value=0)
    with pl.at(level=CORE):
        pl.write(counts, [0, 0], 1.5)  # here
pl.add: shapes [16, 32] FP32 and [8, 32] FP32 do not fit together
    with pl.at(level=CORE):
        y[:] = pl.add(x, x[0:8, :])  # here
pl.row_expand_mul: [16, 32] FP32 needs a vector [16, 1], not [1, 32] FP32
    with pl.at(level=CORE):
        y[:] = pl.row_expand_mul(x, x[0:1, :])  # here
a slice [8, 32] of [16, 32] FP32 cannot take [16, 32] FP32
    with pl.at(level=CORE):
        y[0:8, :] = pl.add(x, 1.0)  # here
[16, 32] BF16 cannot be written to y [16, 32] FP32 && pl.cast
    with pl.at(level=CORE):
        y[:] = pl.cast(x, pl.BF16)  # here
pl.store && [16, 16] INT32 cannot be written to scratch [16, 16] INT8
    scratch = pl.create_tensor([16, 16], dtype=pl.INT8)
    with pl.at(level=CORE):
        a = pl.cast(x, pl.INT8, mode="trunc")
        pl.store(pl.matmul(a, a, b_trans=True), [0, 0], scratch)  # here
no atomic add && [16, 32] UINT8 && FP32, FP16, BF16, INT32, INT16, INT8
    scratch = pl.create_tensor([16, 32], dtype=pl.UINT8, init_value=0)
    with pl.at(level=CORE):
        t = pl.full([16, 32], dtype=pl.UINT8, value=1)
        pl.assemble(scratch, t, [0, 0], atomic=pl.AtomicType.Add)  # here
atomic= adds to GM from inside a task
    part = pl.create_tensor([16, 32], dtype=pl.FP32, init_value=0)
    y = pl.assemble(y, part, [0, 0], atomic=pl.AtomicType.Add)  # here
pl.store && valid region of y && shape [8, 32]
    part = pl.set_validshape(y, 8, 32)
    with pl.at(level=CORE):
        pl.store(pl.add(x, 1.0), [0, 0], part)  # here
a task inside the task outer
    with pl.at(level=CORE, name_hint="outer"):
        with pl.at(level=CORE):  # here
            y[:] = x
a task inside the task outer
    with pl.at(level=CORE, name_hint="outer"):
        for i in pl.spmd(2):  # here
            y[:] = x
a scope inside a task
    with pl.at(level=CORE):
        with pl.scope():  # here
            y[:] = x
a manual scope inside a manual scope
    with pl.manual_scope():
        with pl.manual_scope():  # here
            pass
an automatic scope inside a manual scope
    with pl.manual_scope():
        with pl.scope():  # here
            pass
pl.pipeline outside a task
    for i in pl.pipeline(4, stage=2):  # here
        pass
neither reads pl.tile.get_block_idx() nor calls a kernel
    with pl.spmd(4):  # here
        y[:] = pl.add(x, 1.0)
deps= entries must be task ids, not int
    with pl.at(level=CORE, deps=[3]) as tid:  # here
        y[:] = x
deps= entries must be task ids, not Tensor
    with pl.at(level=CORE, deps=[x]) as tid:  # here
        y[:] = x
predicate && one element with a whole number
    with pl.spmd(1, predicate=(x[0, 0] > x[0, 1])) as tid:  # here
        doubled(x, y)
no_dep_args= lists tensors, not int
    with pl.at(level=CORE, no_dep_args=[3]):  # here
        y[:] = x
pl.add() got an unexpected keyword argument 'precise'
    with pl.at(level=CORE):
        y[:] = pl.add(x, 1.0, precise=True)  # here
pl.row_maximum is not supported by npuscope && pl.row_max
    with pl.at(level=CORE):
        y[:] = pl.row_maximum(x)  # here
a tensor has no truth value && pl.read
    if x:  # here
        pass
index 2 of an array of 2
    ids = pl.array.create(2, pl.TASK_ID)
    ids[2] = pl.system.task_dummy(deps=[])  # here
pl.pipeline needs stage= of at least 1, not None
    with pl.at(level=CORE):
        for i in pl.pipeline(4):  # here
            pass
pl.unroll needs bounds known when the program is read && n is a run-time value
    n = pl.read(x, [0, 0])
    for i in pl.unroll(n):  # here
        pass
pl.unroll needs bounds known when the program is read && i is a run-time value
    for i in pl.range(4):
        for j in pl.unroll(i + 1):  # here
            pass
pl.unroll carries no values
    with pl.at(level=CORE):
        for i, (a,) in pl.unroll(4, init_values=(x,)):  # here
            a = pl.yield_(a)
branches of this if yield 1 and 2 values
    with pl.at(level=CORE):
        if pl.tile.get_block_idx() == 0:  # here
            a = pl.yield_(x)
        else:
            a, b = pl.yield_(x, x)
pl.yield_ hands on 1 values, init_values of its pl.range 2
    with pl.at(level=CORE):
        for i, (a, b) in pl.range(4, init_values=(x, x)):
            c = pl.yield_(a)  # here
must end with `names = pl.yield_(values)`
    with pl.at(level=CORE):
        for i, (a,) in pl.range(4, init_values=(x,)):  # here
            a = pl.add(a, 1.0)
first statement of a pl.while_ loop must be pl.cond
    for (n,) in pl.while_(init_values=(0,)):  # here
        n = pl.yield_(n + 1)
break in a pl.parallel loop && pl.range and pl.while_
    for i in pl.parallel(4):
        break  # here
continue in a pl.spmd loop
    for i in pl.spmd(4):
        continue  # here
return inside pl.spmd
    for i in pl.spmd(4):
        return y  # here
the name late is not bound here
    for i in pl.spmd(4):
        if i == 0:
            late = x[0:1, :]
        y[i : i + 1, :] = late  # here
the name late is not bound here
    for i in pl.spmd(0):
        late = x[0:1, :]
    with pl.at(level=CORE):
        y[0:1, :] = late  # here
pl.split_aiv(3) && 2 vector cores
    with pl.at(level=CORE):
        for lane in pl.split_aiv(3, mode=pl.SplitMode.NONE):  # here
            pass
pl.matmul of [16, 32] FP32 and [16, 32] FP32 inside a pl.split_aiv region
    with pl.at(level=CORE):
        for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            t = pl.matmul(x, x, b_trans=True)  # here
pl.add (its result is [16, 32] FP32) stands outside every pl.split_aiv region
    with pl.at(level=CORE):
        t = pl.add(x, 1.0)  # here
        for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            y[:] = pl.mul(x, 2.0)
pl.exp reads a cube value, [16, 16] FP32 && pl.aiv_shard
    with pl.at(level=CORE):
        scores = pl.matmul(x, x, b_trans=True)
        for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            t = pl.exp(scores)  # here
pl.matmul reads a value of a pl.split_aiv region, [16, 32] FP32 && pl.aic_gather
    with pl.at(level=CORE):
        for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            t = pl.exp(x)
        s = pl.matmul(t, x, b_trans=True)  # here
pl.col_sum of [16, 32] FP32 reduces the axis that pl.split_aiv halves
    with pl.at(level=CORE):
        for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            t = pl.col_sum(x)  # here
pl.range: a bound must be a whole number, not 1.9
    for i in pl.range(1.9):  # here
        pass
pl.range: a bound must be a whole number, not nan
    with pl.at(level=CORE):
        for i in pl.range(NAN):  # here
            pass
pl.range with step 0
    with pl.at(level=CORE):
        for i in pl.range(0, 4, 0):  # here
            pass
pl.range with step 0
    for i in pl.range(0, 4, 0):  # here
        pass
pl.range of 1000000000000 turns
    with pl.at(level=CORE):
        for i in pl.range(10**12):  # here
            t = pl.add(x, 1.0)
pl.cond: its condition must be True or False, not 'more'
    for (n,) in pl.while_(init_values=(0,)):
        pl.cond("more")  # here
        n = pl.yield_(n + 1)
pl.spmd: the number of blocks must be a whole number, not 2.9
    for i in pl.spmd(2.9):  # here
        y[i : i + 1, :] = x[i : i + 1, :]
pl.spmd with 1000000000000 blocks
    for i in pl.spmd(10**12):  # here
        y[i : i + 1, :] = x[i : i + 1, :]
this pl.spmd was not seen as a launch && Write pl.spmd(…) alone in its own statement
    launch = pl.spmd
    for i in launch(2):  # here
        y[i : i + 1, :] = x[i : i + 1, :]
this pl.spmd was not seen as a launch && alone in its own statement
    with pl.manual_scope(), pl.spmd(2):  # here
        i = pl.tile.get_block_idx()
        y[i : i + 1, :] = x[i : i + 1, :]
pl.at() got an unexpected keyword argument 'unknown'
    with pl.at(level=CORE, unknown=1):  # here
        pass
pl.at needs level=pl.Level.…, not 'core'
    with pl.at(level="core"):  # here
        pass
pl.at: name_hint= must be a printable string, not 5
    with pl.at(level=CORE, name_hint=5):  # here
        pass
pl.at: name_hint= must be a printable string, not 'a\\nb'
    with pl.at(level=CORE, name_hint="a\\nb"):  # here
        pass
pl.scope needs mode=pl.ScopeMode.…, not 'manual'
    with pl.scope(mode="manual"):  # here
        pass
Python cannot walk over a tensor && pl.range
    for row in x:  # here
        pass
nothing can be deleted from a tensor
    del x[0:1]  # here
Python cannot compare a tensor && pl.cmp
    if x == y:  # here
        pass
"""


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("mistake", mistakes(MISTAKES, CORE=CORE, NAN=NAN, doubled=doubled))
def test_a_mistake_is_named_at_its_line(mistake: Mistake, mode: Mode) -> None:
    says(mistake, mode)


@pl.jit.incore
def backwards(x: X, y: Y):
    pl.store(pl.load(y, [0, 0], [16, 32]), [0, 0], x)


@pl.jit
def reads_after_backwards(x: X, y: pl.InOut[pl.Tensor[[16, 32], pl.FP32]]):
    made = pl.create_tensor([16, 32], dtype=pl.FP32)
    backwards(made, y)
    with pl.at(level=CORE):
        y[:] = pl.add(made, 2.0)
    return y


def test_what_a_kernel_writes_to_is_an_output_though_it_does_not_say_so() -> None:
    """The compiler lifts the direction, and who reads it later waits."""
    x, y = np.ones((16, 32), np.float32), np.ones((16, 32), np.float32)
    recording = record(reads_after_backwards, x, y).recording
    assert (1, 0) in {(edge.dst, edge.src) for edge in task_graph(recording).edges}
    assert np.array_equal(y, np.full((16, 32), 3, np.float32))


@pl.jit
def forgets(x: X, y: Y, z: Y):
    with pl.at(level=CORE):
        x[:] = pl.add(x, 1.0)
        y[:] = x
    return y


def test_an_entry_that_forgets_an_output_or_writes_an_input_is_a_finding() -> None:
    """PyPTO compiles both: what is written to an input stays on the chip."""
    x = np.ones((16, 32), np.float32)
    findings = [f.message for f in record(forgets, x, np.zeros_like(x), np.zeros_like(x)).recording.notices]
    assert any("writes to x [16, 32] FP32, an input of the entry" in message for message in findings)
    assert any("never writes to z [16, 32], which is declared pl.Out" in message for message in findings)
    assert not any("never writes to y" in message for message in findings)


def plain(x: X, y: Y):
    pass


@pytest.mark.parametrize(
    ("decorate", "part"),
    [
        (lambda: pl.jit(pl.jit(plain)), "plain has two decorators of the language. Keep one"),
        (lambda: pl.jit.inline(pl.jit.incore(plain)), "plain has two decorators"),
        (lambda: pl.jit(type("Layer", (), {})), "Layer is a class. Write @pl.program on a class"),
        (lambda: pl.jit(5), "a decorator of the language stands on a function, not on 5"),
        (lambda: pl.jit()(5), "a decorator of the language stands on a function, not on 5"),
        (lambda: pl.program(plain), "@pl.program stands on a class, not on plain"),
        (lambda: pl.function(type="zz"), "pl.function needs type=pl.FunctionType.…, not 'zz'"),
    ],
)
def test_a_decorator_says_what_it_stands_on(decorate, part: str) -> None:
    with pytest.raises(TileError, match=rf"test_wrong_programs.py, line \d+: {part}"):
        decorate()
