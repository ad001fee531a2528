"""Spellings of before June 2026 still run, and say what they are called now."""

from __future__ import annotations

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.run.execute import record

MODES = pytest.mark.parametrize("mode", ["values", "shapes"])
X = np.arange(16 * 16, dtype=np.float32).reshape(16, 16)


@pl.jit
def old_region(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.incore():
        y[:] = pl.add(x, 1.0)
    return y


@MODES
def test_incore_is_a_task(mode: str) -> None:
    finished = record(old_region, X, np.zeros_like(X), mode=mode)
    assert [(t.kernel, t.form) for t in finished.recording.tasks] == [("old_region_incore_0", "at")]
    assert any("pl.incore()" in note and "pl.at" in note for note in finished.recording.notes)
    if mode == "values":
        np.testing.assert_array_equal(finished.result, X + 1)


@pl.jit
def drawn_by_the_compiler(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.auto_incore(split=pl.SplitMode.NONE):
        twice = pl.mul(x, 2.0)  # before the loop: a task of its own
        for i in pl.parallel(0, 16, 1, chunk=6):  # 6 + 6 + 4 rows: three tasks
            y[i : i + 1, :] = pl.add(twice[i : i + 1, :], 1.0)
        y[0:1, :] = pl.add(y[0:1, :], 100.0)  # after it: another
    return y


@MODES
def test_auto_incore_cuts_tasks_at_chunks(mode: str) -> None:
    finished = record(drawn_by_the_compiler, X, np.zeros_like(X), mode=mode)
    assert len(finished.recording.tasks) == 1 + 3 + 1
    notes = finished.recording.notes
    assert any("pl.auto_incore()" in note for note in notes)
    assert any("chunk=" in note for note in notes)
    if mode == "values":
        want = 2 * X + 1
        want[0] += 100
        np.testing.assert_array_equal(finished.result, want)


@pl.jit
def old_option(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):
        y[:] = x
    return y


def test_an_old_option_is_noted() -> None:
    notes = record(old_option, X, np.zeros_like(X)).recording.notes
    assert notes == ("pl.auto_chunk was retired in June 2026 (pypto#1895)",)


@pl.jit
def of_today(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.split(pl.SplitMode.NONE), pl.cross_core_slot(slot_num=2)]):
        y[:] = x
    return y


def test_options_of_today_are_not() -> None:
    assert record(of_today, X, np.zeros_like(X)).recording.notes == ()
