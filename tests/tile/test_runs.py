"""Around a run: the source it was defined with, threads, tensors of other runs, one memory under two names."""

from __future__ import annotations

import importlib.util
import os
import threading
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.golden import diff_runs
from npuscope.tile.run.execute import record

ADD = """
import npuscope.tile as pl

@pl.jit
def add_one(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.add(x, 1.0)
"""
KEPT: list = []


def loaded(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ones(rows: int = 16) -> np.ndarray:
    return np.ones((rows, 16), np.float32)


def test_a_file_edited_after_its_functions_were_defined_is_not_run(tmp_path: Path) -> None:
    module = loaded(tmp_path / "edited.py", ADD)
    (tmp_path / "edited.py").write_text(ADD.replace("1.0", "9.0"))
    os.utime(tmp_path / "edited.py", ns=(1, 1))
    with pytest.raises(TileError, match=r"edited\.py, line 4: the file changed after add_one was defined"):
        module.add_one(ones(), ones())


def test_a_function_runs_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = loaded(Path("here.py"), ADD)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    y = ones()
    module.add_one(ones(), y)
    assert np.all(y == 2)


def test_a_generator_is_no_tile_function(tmp_path: Path) -> None:
    module = loaded(tmp_path / "lazy.py", ADD + "    yield y\n")
    with pytest.raises(TileError, match=r"lazy\.py, line 4: add_one is not a plain function"):
        module.add_one(ones(), ones())


@pl.jit
def slow(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for i in pl.parallel(8):
        with pl.at(level=pl.Level.CORE_GROUP):
            t = x[i * 16 : i * 16 + 16, :]
            for _ in pl.range(20):
                t = pl.add(t, 1.0)
            y[i * 16 : i * 16 + 16, :] = t


def test_threads_take_turns() -> None:
    outs = [ones(128) for _ in range(6)]
    threads = [threading.Thread(target=slow, args=(ones(128), out)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.all(out == 21) for out in outs)


@pl.jit
def keeps(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.add(x, 1.0)
        y[:, :] = tile
    KEPT[:] = [tile, x]


@pl.jit
def reuses(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.add(KEPT[0], x)


def test_tiles_and_tensors_of_another_run_are_refused() -> None:
    keeps(ones(), ones())
    with pytest.raises(TileError, match="of another run"):
        reuses(ones(), ones())
    KEPT.reverse()
    with pytest.raises(TileError, match=r"x \[16, 16\] is a tensor of another run"):
        reuses(ones(), ones())


@pl.jit
def chained(x: pl.InOut[pl.Tensor], y: pl.InOut[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        x[:, :] = pl.add(x, 1.0)
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.add(y, 1.0)


def test_one_memory_under_two_names_is_a_finding() -> None:
    same = ones()
    found = record(chained, same, same).recording.notices
    assert [f.kind for f in found] == ["shared"]
    assert "x and y share memory" in found[0].message
    assert record(chained, ones(), ones()).recording.notices == ()


@pytest.mark.parametrize("stride", [(slice(None), slice(None, None, 2)), (slice(None, None, -1), slice(None))])
def test_strided_arrays_go_in_and_come_back(stride: tuple) -> None:
    whole = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
    out = np.zeros((16, 32), np.float32)
    x, y = whole[stride], out[stride]
    module_add(x, y)
    assert np.array_equal(out[stride], whole[stride] + 1)


@pl.jit
def module_add(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.add(x, 1.0)


def test_a_mode_that_is_none_is_named() -> None:
    with pytest.raises(TileError, match="no mode 'shape'"):
        record(module_add, ones(), ones(), mode="shape")  # type: ignore[arg-type]


def variant(wrong: float):
    @pl.jit
    def program(x: pl.Tensor, u: pl.Out[pl.Tensor]):
        t = pl.create_tensor([64, 16], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="lower"):
            t[32:64, :] = pl.add(x[32:64, :], wrong)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="consumer"):
            u[:, :] = pl.add(t[32:64, :], 1.0)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="upper"):
            t[0:32, :] = pl.add(x[0:32, :], wrong)

    return program


def test_the_tensor_at_fault_comes_before_what_was_computed_from_it() -> None:
    # t's first differing element in memory is written last; the one that u was computed from is written first
    told = diff_runs(variant(0.0), variant(0.5), ones(64), ones(32))
    assert [one.name for one in told.tensors if one.apart] == ["t", "u"]
    assert told.first is not None
    assert told.first.apart is not None
    assert told.first.apart.index[0] >= 32
    assert "lower" in told.first.apart.writer


@pl.jit
def literals(out: pl.Out[pl.Tensor[[6, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        bf16, fp16 = (pl.full([1, 16], dtype=kind, value=0.3) for kind in (pl.BF16, pl.FP16))
        three = pl.full([1, 16], dtype=pl.BF16, value=3.0)
        rows = [
            bf16,
            fp16,
            pl.full([1, 16], dtype=pl.FP16, value=1e6),
            pl.expands(three, 0.3),
            pl.cmp(bf16, 0.3, cmp_type=0),
            pl.mul(three, 0.3),
        ]
        for row in range(6):
            out[row : row + 1, :] = pl.cast(rows[row], target_type=pl.FP32)


def test_a_literal_takes_the_tiles_type() -> None:
    out = np.zeros((6, 16), np.float32)
    literals(out)
    # 0.3 in BF16 is 0.30078125, in FP16 0.30004883; FP16 ends at 65504; 3 * 0.30078125 = 0.90234375, exact in BF16
    assert out[:, 0].tolist() == pytest.approx([0.30078125, 0.300048828125, 65504, 0.30078125, 1, 0.90234375], abs=0)
