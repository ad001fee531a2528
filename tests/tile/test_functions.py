"""Functions of a program: inline helpers, incore and extern kernels, programs as classes, launches by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.golden import TensorSpec, run_jit
from npuscope.tile.record.model import Mode
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
MODES = pytest.mark.parametrize("mode", ["values", "shapes"])
X: Any = pl.Tensor[[4, 16], pl.FP32]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pl.jit.inline
def scaled(x: X, y: X, factor: pl.Scalar[pl.FP32], ids: pl.Array[2, pl.TASK_ID], slot: pl.Scalar[pl.INDEX]):
    """Writes reach the caller's tensor; the task id leaves in the caller's array."""
    with pl.at(level=CORE, name_hint="scale") as tid:
        y[:] = pl.mul(x, factor)
    ids[slot] = tid
    return ids


@pl.jit
def two_scales(x: X, y: pl.Out[X], z: pl.Out[X]):
    ids = pl.array.create(2, pl.TASK_ID)
    ids = scaled(x, y, 2.0, ids, 0)
    ids = scaled(y, z, factor=3.0, ids=ids, slot=1)
    with pl.at(level=CORE, name_hint="sum", deps=[ids[i] for i in range(2)]):
        z[:] = pl.add(y, z)
    with pl.at(level=CORE, name_hint="all", deps=[ids]):
        y[:] = pl.add(z, 0.0)
    return z


scaled_again = pl.inline(scaled._func)


@pl.jit
def with_both(x: X, y: pl.Out[X], z: pl.Out[X]):
    ids = pl.array.create(2, pl.TASK_ID)
    ids = scaled(x, y, 2.0, ids, 0)
    ids = scaled_again(y, z, 3.0, ids, 1)
    return z


def test_an_inline_function_may_be_made_inline_again() -> None:
    """As modules of public programs do with a function of a sibling."""
    finished = record(with_both, ones(4, 16), ones(4, 16), ones(4, 16), mode="values")
    assert [task.kernel for task in finished.recording.tasks] == ["scale", "scale"]
    assert (finished.result == 6).all()


@MODES
def test_inline_parameters_alias_the_callers_variables(mode: Mode) -> None:
    finished = record(two_scales, ones(4, 16), ones(4, 16), ones(4, 16), mode=mode)
    tasks = finished.recording.tasks
    assert [(t.kernel, t.layer, t.deps) for t in tasks] == [
        ("scale", "scaled#1", ()),
        ("scale", "scaled#2", ()),
        ("sum", "", (0, 1)),
        ("all", "", (0, 1)),
    ]
    if mode == "values":
        assert (finished.result == 8).all()


@pl.jit.inline
def lost(x: X, y: X):
    x = pl.add(x, 1.0)
    y[:] = x
    return y


@pl.jit
def calls_lost(x: pl.InOut[X], y: pl.Out[X]):
    with pl.at(level=CORE):
        lost(x, y)
    return x


def test_giving_a_parameters_name_to_a_new_value_is_a_finding() -> None:
    finished = record(calls_lost, ones(4, 16), ones(4, 16))
    assert (finished.result == 1).all()  # the caller's x
    (finding,) = [f for f in finished.recording.notices if f.kind == "rebound"]
    assert "lost() gives the name x of its parameter [4, 16] to a new value" in finding.message
    assert finished.recording.sites[finding.site].function == "lost"


@pl.jit.incore
def add_one(x: X, y: pl.Out[X]):
    t = pl.load(x, [0, 0], [4, 16])
    return pl.store(pl.add(t, 1.0), [0, 0], y)


@pl.jit.incore
def accumulates(x: X, y: pl.Out[X]):
    return pl.store(pl.add(pl.load(y, [0, 0], [4, 16]), pl.load(x, [0, 0], [4, 16])), [0, 0], y)


@pl.jit
def by_call(x: X, y: pl.Out[X]):
    middle = pl.create_tensor([4, 16], dtype=pl.FP32)
    middle = add_one(x, middle)
    out, tid = pl.submit(add_one, middle, y, deps=[])
    with pl.at(level=CORE, deps=[tid]):
        y[:] = pl.add(out, 1.0)
    return y


@MODES
def test_each_call_of_a_kernel_is_a_task_with_its_declared_directions(mode: Mode) -> None:
    finished = record(by_call, ones(4, 16), ones(4, 16), mode=mode)
    tasks = finished.recording.tasks
    assert [(t.kernel, t.form) for t in tasks] == [("add_one", "call"), ("add_one", "call"), (tasks[2].kernel, "at")]
    assert [a.declared for a in tasks[0].arguments] == ["In", "Out"]
    assert tasks[2].deps == (1,)
    if mode == "values":
        assert (finished.result == 4).all()


@pl.jit
def by_launch(x: X, y: pl.Out[X]):
    with pl.spmd(4):
        row_kernel(x, y)
    return y


@pl.jit.incore
def row_kernel(x: X, y: pl.Out[X]):
    i = pl.tile.get_block_idx()
    return pl.store(pl.load(x, [i, 0], [1, 16]), [i, 0], y)


@pl.jit
def by_submit(x: X, y: pl.Out[X]):
    out, tid = pl.spmd_submit(self.row_kernel, x, y, core_num=4, sync_start=True)  # type: ignore[name-defined] # noqa: F821, as in PyPTO
    with pl.at(level=CORE, deps=[tid]):
        y[:] = pl.add(out, 1.0)
    return y


@MODES
@pytest.mark.parametrize(("program", "want"), [(by_launch, 1.0), (by_submit, 2.0)])
def test_a_launch_dispatches_a_kernel_on_every_block(program, want: float, mode: Mode) -> None:
    finished = record(program, ones(4, 16), np.zeros((4, 16), np.float32), mode=mode)
    first = finished.recording.tasks[0]
    assert (first.kernel, first.form, first.blocks) == ("row_kernel", "spmd", 4)
    assert [a.declared for a in first.arguments] == ["In", "Out"]
    if mode == "values":
        assert (finished.result == want).all()


@pl.jit
def mis_declared(x: X, y: pl.InOut[X]):
    accumulates(x, y)
    return y


def test_a_kernel_that_reads_its_out_first_is_a_finding() -> None:
    (finding,) = record(mis_declared, ones(4, 16), ones(4, 16)).recording.notices
    assert "the kernel accumulates declares y [4, 16] pl.Out and reads it before it writes it" in finding.message


@pl.program
class Softmax:
    SCALE = 0.5

    @pl.function(type=pl.FunctionType.InCore)
    def half(self, x: X, out: pl.Out[X]):
        return pl.store(pl.mul(pl.load(x, [0, 0], [4, 16]), self.SCALE), [0, 0], out)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(self, x: X, y: pl.Out[X]):
        middle = pl.create_tensor([4, 16], dtype=pl.FP32)
        middle = self.half(x, middle)
        y = self.half(middle, y)
        return y


@MODES
def test_a_program_is_a_class_whose_methods_are_functions(mode: Mode) -> None:
    finished = record(Softmax, ones(4, 16), np.zeros((4, 16), np.float32), mode=mode)
    assert [t.kernel for t in finished.recording.tasks] == ["half", "half"]
    if mode == "values":
        assert (finished.result == 0.25).all()


def test_a_factory_keeps_what_its_programs_close_over() -> None:
    def made(factor: float):
        @pl.jit.inline
        def helper(x: X, y: X):
            with pl.at(level=CORE):
                y[:] = pl.mul(x, factor)
            return y

        @pl.jit
        def program(x: X, y: pl.Out[X]):
            return helper(x, y)

        return program

    for factor in (2.0, 3.0):
        y = np.zeros((4, 16), np.float32)
        made(factor)(ones(4, 16), y)
        assert (y == factor).all()


@pl.jit.extern(core_type="aic", source="kernel.cpp")
def written_in_cpp(x: X, y: pl.Out[X]): ...


@pl.jit
def uses_cpp(x: X, y: pl.Out[X]):
    y = written_in_cpp(x, y)
    return y


def test_a_kernel_in_another_language_needs_a_substitute_for_its_values() -> None:
    (task,) = record(uses_cpp, ones(4, 16), ones(4, 16), mode="shapes").recording.tasks
    assert (task.kernel, task.form, task.core) == ("written_in_cpp", "extern", "AIC")
    with pytest.raises(TileError, match="written_in_cpp has no Python body"):
        uses_cpp(ones(4, 16), ones(4, 16))
    y = np.zeros((4, 16), np.float32)
    written_in_cpp.bind(lambda x, y: np.copyto(y, x + 41))
    try:
        uses_cpp(ones(4, 16), y)
    finally:
        written_in_cpp.substitute = None
    assert (y == 42).all()


def test_a_method_may_be_written_in_another_language_too() -> None:
    @pl.program
    class Program:
        @pl.function(type=pl.FunctionType.AIC, external_source="kernel.cpp")
        def written(self, x: X, y: pl.Out[X]): ...

        @pl.function(type=pl.FunctionType.Orchestration)
        def main(self, x: X, y: pl.Out[X]):
            y = self.written(x, y)
            return y

    (task,) = record(Program, ones(4, 16), ones(4, 16), mode="shapes").recording.tasks
    assert (task.kernel, task.form, task.core) == ("written", "extern", "AIC")
    with pytest.raises(TileError, match="the extern kernel written has no Python body"):
        record(Program, ones(4, 16), ones(4, 16))


FLAG = False


@pl.jit
def flagged(y: pl.Out[X]):
    with pl.at(level=CORE):
        if FLAG:
            y[:] = pl.full([4, 16], dtype=pl.FP32, value=1.0)
        else:
            y[:] = pl.full([4, 16], dtype=pl.FP32, value=2.0)
    return y


def test_module_flags_are_read_at_each_call(monkeypatch) -> None:
    y = np.zeros((4, 16), np.float32)
    flagged(y)
    assert (y == 2).all()
    monkeypatch.setitem(globals(), "FLAG", True)
    flagged(y)
    assert (y == 1).all()


def test_a_failed_golden_says_what_the_run_noticed() -> None:
    @pl.jit
    def reads_nothing(y: pl.Out[X]):
        scratch = pl.create_tensor([4, 16], dtype=pl.FP32)
        with pl.at(level=CORE):
            y[:] = pl.add(scratch, 1.0)
        return y

    def golden(values: dict) -> None:
        values["y"][:] = 1

    result = run_jit(fn=reads_nothing, specs=[TensorSpec("y", [4, 16], pl.FP32, is_output=True)], golden_fn=golden)
    assert not result.passed
    assert "reads [4, 16] of scratch [4, 16], of which nothing was ever written" in (result.error or "")
    assert f"{__file__}, line " in (result.error or "")


def test_a_helper_does_not_run_alone() -> None:
    with pytest.raises(TileError, match="lost is a helper of tile programs"):
        lost(ones(4, 16), ones(4, 16))
