"""Programs of any month since spring 2026 run, and do what the compiler of their day made of them."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
from random_programs import module

import npuscope.tile as pl
from npuscope.base.errors import NpuscopeError
from npuscope.tile.language.history import HISTORY, renamed, renamed_keywords
from npuscope.tile.record.model import Mode, Recording
from npuscope.tile.run.execute import record
from npuscope.tile.script.run import run_script

MODES = pytest.mark.parametrize("mode", ["values", "shapes"])
X = np.arange(16 * 16, dtype=np.float32).reshape(16, 16)


def tasks(recording: Recording) -> list[str]:
    return [task.kernel for task in recording.tasks]


# --- one task


@pl.jit
def old_region(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.incore():
        y[:] = pl.add(x, 1.0)
    return y


@MODES
def test_incore_is_a_task_and_says_nothing_for_nothing_is_different(mode: Mode) -> None:
    finished = record(old_region, X, np.zeros_like(X), mode=mode)
    assert [(t.kernel, t.form) for t in finished.recording.tasks] == [("old_region_incore_0", "at")]
    assert finished.recording.notes == ()
    if mode == "values":
        np.testing.assert_array_equal(finished.result, X + 1)


@pl.jit
def split_by_hand(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, split=pl.SplitMode.UP_DOWN):
        y[:] = pl.add(x, 1.0)
    return y


def test_split_of_a_task_is_the_optimization_of_today() -> None:
    recording = record(split_by_hand, X, np.zeros_like(X)).recording
    assert [task.split for task in recording.tasks] == ["up_down"]
    assert "pl.at(split=)" in recording.notes[0]


# --- tasks drawn by the compiler


@pl.jit
def drawn_by_the_compiler(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.auto_incore(split=pl.SplitMode.NONE):
        twice = pl.mul(x, 2.0)  # before the loop: a task of its own
        for i in pl.parallel(0, 16, 1, chunk=6):  # 6 + 6 + 4 rows: three tasks
            y[i : i + 1, :] = pl.add(twice[i : i + 1, :], 1.0)
        y[0:1, :] = pl.add(y[0:1, :], 100.0)  # after it: another
    return y


@MODES
def test_auto_incore_cuts_tasks_at_chunks(mode: Mode) -> None:
    finished = record(drawn_by_the_compiler, X, np.zeros_like(X), mode=mode)
    assert len(finished.recording.tasks) == 1 + 3 + 1
    assert [task.turns[-1].kind for task in finished.recording.tasks[1:4]] == ["parallel"] * 3
    [note] = finished.recording.notes
    assert note.startswith("pl.auto_incore() was removed in 2026-06 (pypto#1819)")
    if mode == "values":
        want = 2 * X + 1
        want[0] += 100
        np.testing.assert_array_equal(finished.result, want)


ROWS = """import npuscope.tile as pl

@pl.jit
def main(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, {options}name_hint="rows"):
        for i in pl.{loop}(0, 16, 1, chunk=4):
            y[i : i + 1, :] = pl.add(x[i : i + 1, :], 1.0)
    return y
"""
CALLED = "optimization=pl.chunked_loop_optimizer(split=pl.SplitMode.UP_DOWN), "
LISTED = "optimizations=[pl.auto_chunk, pl.split(pl.SplitMode.UP_DOWN)], "


@MODES
@pytest.mark.parametrize(
    ("options", "count", "split"),
    [("optimization=pl.chunked_loop_optimizer, ", 4, ""), (LISTED, 4, "up_down"), (CALLED, 4, "up_down"), ("", 1, "")],
)
def test_every_spelling_of_such_a_scope_draws_the_same_tasks(
    options: str, count: int, split: str, mode: Mode, tmp_path: Path
) -> None:
    text = ROWS.format(options=options, loop="parallel" if options else "range")
    finished = record(module(text, tmp_path / "rows.py").main, X, np.zeros_like(X), mode=mode)
    assert tasks(finished.recording) == ["rows"] * count
    assert {task.split for task in finished.recording.tasks} == {split}
    assert bool(finished.recording.notes) is (count > 1)
    if mode == "values":
        np.testing.assert_array_equal(finished.result, X + 1)


@pl.jit
def around(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, optimization=pl.chunked_loop_optimizer):
        total = pl.row_sum(x)  # a run of ops that compute …
        half = pl.mul(total, 0.5)  # … is one task
        first = 4  # a number is orchestration and ends it
        more = pl.add(half, 1.0)  # so this is another
        for _ in pl.range(3):  # and the loop belongs to it
            more = pl.add(more, half)
        y[0:first, 0:1] = more[0:first, :]  # arranging tensors is orchestration
        for k in pl.range(2):  # a loop around chunks is, too
            low = pl.mul(half, 2.0)  # a task in each of its turns
            for i in pl.parallel(0, 4, chunk=2):  # and two for the chunks
                y[4 + k * 4 + i : 5 + k * 4 + i, 0:1] = pl.add(low[i : i + 1, :], 1.0)
    return y


@MODES
def test_statements_between_chunks_are_grouped_as_the_compiler_did(mode: Mode) -> None:
    finished = record(around, X, np.zeros_like(X), mode=mode)
    assert len(finished.recording.tasks) == 2 + 2 * (1 + 2)
    if mode == "values":
        half = X.sum(1) / 2
        want = np.zeros_like(X)
        want[:4, 0] = half[:4] + 1 + 3 * half[:4]
        want[4:8, 0] = want[8:12, 0] = 2 * half[:4] + 1
        np.testing.assert_allclose(finished.result, want)


@pl.jit
def sequential_chunks(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.auto_incore():
        for i in pl.range(0, 16, 1, chunk=4):
            y[i : i + 1, :] = pl.add(x[i : i + 1, :], 1.0)
    return y


@pl.jit
def nested_chunks(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.auto_incore():
        for i in pl.parallel(0, 16, 8, chunk=1):
            for j in pl.parallel(0, 16, 8, chunk=1):
                y[i : i + 8, j : j + 8] = pl.add(x[i : i + 8, j : j + 8], 1.0)
    return y


@MODES
@pytest.mark.parametrize(("program", "count"), [(sequential_chunks, 1), (nested_chunks, 2)])
def test_chunks_in_order_stay_in_one_task_and_those_in_chunks_share_the_outer(program, count: int, mode: Mode) -> None:
    assert len(record(program, X, np.zeros_like(X), mode=mode).recording.tasks) == count


def test_what_such_a_scope_cannot_say_is_refused() -> None:
    @pl.jit
    def with_deps(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, optimization=pl.chunked_loop_optimizer, allow_early_resolve=True):
            y[:] = pl.add(x, 1.0)
        return y

    @pl.jit
    def interchanged(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.auto_incore():
            for i in pl.parallel(0, 16, 8, chunk=1, chunk_policy="leading_full"):
                for j in pl.parallel(0, 16, 8, chunk=1):
                    y[i : i + 8, j : j + 8] = pl.add(x[i : i + 8, j : j + 8], 1.0)
        return y

    with pytest.raises(NpuscopeError, match="about one task"):
        record(with_deps, X, np.zeros_like(X))
    with pytest.raises(NpuscopeError, match="leading_full"):
        record(interchanged, X, np.zeros_like(X))


# --- names


@pl.jit
def old_names(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        part = pl.load(x, [0, 0], [16, 16], valid_shapes=[16, 8])
        y[:, 0:8] = pl.maxs(part, 3.0)[:, 0:8]
        y[:, 8:9] = pl.tile.sum(x, axis=1, keepdim=True)
        y[0:1, :] = pl.tile.max(x, axis=0, keepdim=True)
        rows = pl.tile.min(4, 9)
        y[rows : rows + 1, 15:16] = pl.add(y[rows : rows + 1, 15:16], 0.0)
    return y


def test_old_names_mean_what_the_table_says() -> None:
    finished = record(old_names, X, np.zeros_like(X))
    want = np.zeros_like(X)
    want[:, :8] = np.maximum(X[:, :8], 3)
    want[:, 8] = X.sum(1)
    want[0] = X.max(0)
    np.testing.assert_array_equal(finished.result[:, :9], want[:, :9])
    assert finished.recording.notes == ()


def test_the_table_is_what_the_language_reads() -> None:
    assert renamed_keywords()["load", "valid_shapes"] == "valid_shape"
    for old, now in renamed().items():
        assert getattr(pl, old) is getattr(pl, now)
    assert len({spelling.old for spelling in HISTORY}) == len(HISTORY)
    for spelling in HISTORY:
        assert spelling.since <= spelling.until
        assert spelling.does or not spelling.matters, f"{spelling.old} decides {spelling.effect}: say what is done"


def test_a_function_is_reached_by_its_private_name() -> None:
    assert list(inspect.signature(old_region._func).parameters) == ["x", "y"]


# --- a loop that the compiler leaves out


LOOPED = """import npuscope.tile as pl

one = 1

@pl.jit
def main(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    last = {last}
    for _ in pl.range(0, last, 1):
        for i in pl.parallel(2):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[i * 8 : i * 8 + 8, :] = pl.add(x[i * 8 : i * 8 + 8, :], 1.0)
    return y
"""


@MODES
@pytest.mark.parametrize(
    ("last", "around"), [("one * 1", ["parallel"]), ("pl.tensor.dim(x, 0) // 16", ["range", "parallel"])]
)
def test_a_loop_of_one_turn_known_beforehand_is_none(last: str, around: list[str], mode: Mode, tmp_path: Path) -> None:
    """Under a sequential loop the writers of a tensor wait for each other; the compiler folds such a loop."""
    program = module(LOOPED.format(last=last), tmp_path / "looped.py").main
    recording = record(program, X, np.zeros_like(X), mode=mode).recording
    assert [[turn.kind for turn in task.turns] for task in recording.tasks] == [around] * 2


# --- the harness

APRIL = """
import numpy as np
import pypto.language as pl
from pypto.backend import BackendType
from pypto.runtime import RunConfig, TensorSpec, run

@pl.program
class AddOne:
    @pl.function(type=pl.FunctionType.Opaque)
    def add_one(self, x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:] = pl.add(x, 1.0)
        return y

def golden(tensors, params):
    tensors["y"][:] = tensors["x"] + {added}

specs = [TensorSpec("x", [16, 16], pl.FP32, init_value=2.0), TensorSpec("y", [16, 16], pl.FP32, is_output=True)]
config = RunConfig(platform="a2a3", rtol=1e-3, atol=1e-3, backend_type=BackendType.Ascend910B)
result = run(program=AddOne, tensor_specs=specs, golden=golden, config=config)
raise SystemExit(0 if result.passed else 1)
"""

LATE_APRIL = (
    APRIL.replace("from pypto.runtime import RunConfig, TensorSpec, run", "from golden import RunConfig, run\n")
    .replace("import numpy as np\n", "import numpy as np\nfrom golden.tensor_spec import TensorSpec\n")
    .replace("def golden(tensors, params)", "def golden(tensors)")
    .replace("platform=", "runtime=dict(platform=")
    .replace('"a2a3", rtol', '"a2a3"), rtol')
    .replace(", backend_type=BackendType.Ascend910B", ", compile=dict(dump_passes=True)")
    .replace("golden=golden", "golden_fn=golden")
)


@MODES
@pytest.mark.parametrize("text", [APRIL, LATE_APRIL], ids=["april", "late april"])
def test_a_script_of_april_runs_and_is_checked(text: str, mode: Mode, tmp_path: Path) -> None:
    file = tmp_path / "old.py"
    file.write_text(text.replace("{added}", "1"))
    ran = run_script(file, mode=mode)
    assert [len(recording.tasks) for recording in ran.recordings] == [1]
    assert ran.passed is (True if mode == "values" else None)
    if mode == "values":
        file.write_text(text.replace("{added}", "2"))
        assert run_script(file).passed is False
