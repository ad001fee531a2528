"""How large the rings of a run are: the script says so, the user, or else the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.lower.rings import limits_of
from npuscope.tile.record.model import RingSizes
from npuscope.tile.record.recorder import asked_for, ring_sizes
from npuscope.tile.script.run import run_script
from npuscope.time.bound import bound_of
from npuscope.time.run import simulate

SCRIPT = """
import os
import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

os.environ.setdefault("PTO2_RING_TASK_WINDOW", "0,0,64,0")
T = pl.Tensor[[64, 64], pl.FP32]

@pl.jit
def copies(x: T, y: pl.Out[T]):
    for _ in pl.range(6):
        held = pl.create_tensor([64, 64], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="first"):
            held[:, :] = x[:, :]
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="second"):
            y[:, :] = held[:, :]
    return y

run_jit(copies, [TensorSpec("x", [64, 64], "float32"), TensorSpec("y", [64, 64], "float32", is_output=True)],
        runtime_cfg={"ring_heap": HEAP})
"""


def recorded(folder: Path, heap: int) -> Program:
    script = folder / "copies.py"
    script.write_text(SCRIPT.replace("HEAP", str(heap)))
    return Program(run_script(script, mode="shapes").recordings[0], load("910b1"))


def test_a_script_sets_its_rings_and_the_next_one_has_its_own(tmp_path: Path) -> None:
    program = recorded(tmp_path, 1 << 20)
    assert limits_of(program, "heap") == (1 << 20,) * 4
    assert limits_of(program, "task_window") == (16384, 16384, 64, 16384)  # 0: as the device has it
    assert ring_sizes() == RingSizes()  # nothing of it is left


def test_the_orchestrator_waits_for_room_in_a_ring(tmp_path: Path) -> None:
    """Every turn makes a tensor of 16,384 bytes: with room for one at a time, turns no longer overlap."""
    free = simulate(recorded(tmp_path, 6 * 16384))
    held = simulate(recorded(tmp_path, 16384))
    began, finish = held.times.began, held.times.finish
    for turn in range(1, 6):  # two tasks per turn, each of one block
        assert began[2 * turn] > finish[2 * turn - 1]
    assert held.wall_ns > free.wall_ns
    waited = [bound_of(run.prepared.job, run.prepared.machine, run.times, run.wall) for run in (free, held)]
    assert waited[0].ring_wait_ns == 0
    assert waited[1].ring_wait_ns == pytest.approx(
        sum(began[2 * t] - held.times.submitted[2 * t - 1] for t in range(1, 6))
    )
    # a byte less and the model would wait for ever, where devices go on: so does the run, and says so
    (notice,) = (short := simulate(recorded(tmp_path, 16383))).noticed
    assert notice.message.startswith("16,384 bytes of tensors are made in one scope, its ring has 16,383")
    assert "HEAP_RING_DEADLOCK" in notice.message
    assert short.wall_ns == held.wall_ns


@pytest.mark.parametrize("value", ["many", "-1", "1,2", "1.5", 1.5, 10**18, [1, 2, 3], 1j])
def test_sizes_that_are_none(value: object) -> None:
    with asked_for({"ring_heap": value}), pytest.raises(NpuscopeError, match=r"ring_heap is .*: it must be one size"):
        ring_sizes()


def test_the_user_s_environment_counts_where_the_script_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTO2_RING_HEAP", "1024")
    assert ring_sizes().heap == (1024,) * 4
    with asked_for({"ring_heap": [0, 0, 2048, 0]}):
        assert ring_sizes().of("heap", 2, 512) == 2048
        assert ring_sizes().of("heap", 1, 512) == 512
