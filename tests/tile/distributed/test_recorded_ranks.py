"""Ranks are recorded turn by turn or with equal turns and tasks as one: the record is the same, whatever steers it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from same_record import first_difference
from tiers import examples

from npuscope.tile.record.model import Recording
from npuscope.tile.run.execute import every_loop_turn_by_turn
from npuscope.tile.script.run import run_script

ROUTED = """
import numpy as np
import pypto.language as pl
import pypto.language.distributed as pld
from pypto.ir.distributed_compiled_program import DistributedConfig

RANKS, BLOCKS, TURNS = {ranks}, {blocks}, {turns}
CORE = pl.Level.CORE_GROUP

@pl.jit
def step(x: pl.Tensor[[8, 64], pl.FP32], counts: pl.Tensor[[RANKS], pl.{dtype}],
         out: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
         received: pld.DistributedTensor[[RANKS], pl.INT32], arrived: pld.DistributedTensor[[RANKS, BLOCKS], pl.INT32],
         total: pld.DistributedTensor[[1], pl.INT32], me: pl.Scalar[pl.INT32]):
    for t in pl.range(TURNS):
        for block in pl.spmd(BLOCKS):
            pld.system.notify(total, peer=(me + 1) % RANKS, offsets=[0], value=1, op=pld.NotifyOp.AtomicAdd)
    with pl.at(level=CORE):
        pld.system.wait(signal=total, offsets=[0], expected=TURNS * BLOCKS, cmp=pld.WaitCmp.Eq)
    doubled = pl.create_tensor([RANKS], dtype=pl.{dtype})
    with pl.at(level=CORE):
        for i in pl.range(RANKS):
            pl.write(doubled, [i], pl.read(counts, [i]) * {factor})
    for block in pl.spmd(BLOCKS):
        for peer in pl.range(RANKS):
            if block == 0:
                pld.system.notify(received, peer=peer, offsets=[me], value=pl.cast(pl.read(doubled, [peer]), pl.INT32),
                                  op=pld.NotifyOp.Set)
            pld.system.notify(arrived, peer=peer, offsets=[me, {cell}], value=1, op=pld.NotifyOp.AtomicAdd)
    with pl.at(level=CORE):
        for peer in pl.range(RANKS):
            for b in pl.range({cells}):
                pld.system.wait(signal=arrived, offsets=[peer, b], expected={expected}, cmp=pld.WaitCmp.Ge)
        seen = pl.read(received, [0])
    for t in pl.range(TURNS):
        with pl.at(level=CORE):
            for peer in pl.range(RANKS):
                n = pl.read(received, [peer])
                for i in pl.range(n):
                    row = pl.load(x, [i, 0], [1, 64])
                    out = pl.store(pl.mul(row, 2.0), [t * 8 + i, 0], out)
    return out

@pl.jit.host
def everyone(x: pl.Tensor[[RANKS, 8, 64], pl.FP32], counts: pl.Tensor[[RANKS, RANKS], pl.{dtype}],
             out: pl.Out[pl.Tensor[[RANKS, 64, 64], pl.FP32]]):
    received = pld.alloc_window_buffer([RANKS], dtype=pl.INT32)
    arrived = pld.alloc_window_buffer([RANKS, BLOCKS], dtype=pl.INT32)
    total = pld.alloc_window_buffer([1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        step(x[r], counts[r], out[r], pld.window(received, [RANKS], dtype=pl.INT32),
             pld.window(arrived, [RANKS, BLOCKS], dtype=pl.INT32), pld.window(total, [1], dtype=pl.INT32), r, device=r)

x = np.ones([RANKS, 8, 64], np.float32)
counts = np.random.default_rng({seed}).integers(0, 4, [RANKS, RANKS]).astype(np.{numpy})
everyone(x, counts, np.zeros([RANKS, 64, 64], np.float32),
         config=DistributedConfig(device_ids=list(range(RANKS)), num_sub_workers=0))
"""


def of_ranks(file: Path, mode: str, lanes: bool = True) -> list[Recording]:
    with nullcontext() if lanes else every_loop_turn_by_turn():
        ran = run_script(file, [], mode)  # type: ignore[arg-type]
    found = [run.recording for run in ran.runs if run.recording.place is not None]
    return [replace(one, place=None, mode="shapes", notes=()) for one in sorted(found, key=lambda one: one.program)]


@given(
    st.integers(2, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.booleans(), st.booleans(),
    st.integers(0, 99),
)  # fmt: skip
@examples(12)
def test_the_record_is_that_of_every_turn_by_itself(
    tmp_path_factory: pytest.TempPathFactory,
    ranks: int, blocks: int, turns: int, factor: int, shared: bool, floats: bool, seed: int,
) -> None:  # fmt: skip
    source = ROUTED.format(
        ranks=ranks, blocks=blocks, turns=turns, factor=factor, seed=seed,
        cell="0" if shared else "block", cells="1" if shared else "BLOCKS", expected=blocks if shared else 1,
        dtype="FP32" if floats else "INT32", numpy="float32" if floats else "int32",
    )  # fmt: skip
    file = tmp_path_factory.mktemp("routed") / "routed.py"
    file.write_text(source)
    plain, as_one, values = of_ranks(file, "shapes", lanes=False), of_ranks(file, "shapes"), of_ranks(file, "values")
    assert len(plain) == ranks
    for one, other, computed in zip(plain, as_one, values, strict=True):
        assert first_difference(one, other) is None
        assert first_difference(computed, other) is None
