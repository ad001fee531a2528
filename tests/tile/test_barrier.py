"""`pl.system.syncall`: every block reaches it before any goes on; what one wrote before, another reads after."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.fault import TileError

BLOCKS = 5


@pl.jit
def passed_round(x: pl.Tensor, y: pl.Out[pl.Tensor], rounds: pl.Scalar[pl.INT32]):
    """Each round every block adds its right neighbour's row to its own."""
    one = pl.create_tensor([BLOCKS, 16], dtype=pl.FP32)
    two = pl.create_tensor([BLOCKS, 16], dtype=pl.FP32)
    for b in pl.spmd(BLOCKS, sync_start=True):
        one[b : b + 1, :] = x[b : b + 1, :]
        pl.system.syncall(core_type="mix")
        for _ in pl.range(rounds):
            right = (b + 1) % BLOCKS
            two[b : b + 1, :] = pl.add(one[b : b + 1, :], one[right : right + 1, :])
            pl.system.syncall(core_type="mix")
            one[b : b + 1, :] = two[b : b + 1, :]
            pl.system.syncall(core_type="mix")
        y[b : b + 1, :] = one[b : b + 1, :]
    return y


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_values_cross_the_barrier(rounds: int) -> None:
    x = np.arange(BLOCKS * 16, dtype=np.float32).reshape(BLOCKS, 16)
    y, want = np.zeros_like(x), x
    passed_round(x, y, rounds)
    for _ in range(rounds):
        want = want + np.roll(want, -1, axis=0)
    np.testing.assert_array_equal(y, want)


@pl.jit
def late(y: pl.Out[pl.Tensor], missing: pl.Scalar[pl.INT32]):
    for b in pl.spmd(BLOCKS):
        if b != missing:
            pl.system.syncall(core_type="aiv_only")
        pl.write(y, [b], 1)
    return y


@pytest.mark.parametrize("missing", range(BLOCKS))
def test_a_block_that_never_comes_is_an_error_and_no_hang(missing: int) -> None:
    with pytest.raises(TileError, match=rf"waits for block {missing}, which ended without it"):
        late(np.zeros(BLOCKS, np.int32), missing)
    for thread in threading.enumerate():
        if thread.name.startswith("npuscope"):
            thread.join(5)
            assert not thread.is_alive()


@pl.jit
def fails(x: pl.Tensor, y: pl.Out[pl.Tensor], bad: pl.Scalar[pl.INT32]):
    for b in pl.spmd(BLOCKS):
        pl.system.syncall(core_type="mix")
        if b == bad:
            y[b : b + 1, :] = x[b : b + 2, :]
        pl.system.syncall(core_type="mix")
    return y


@pytest.mark.parametrize("bad", range(BLOCKS - 1))
def test_a_mistake_between_barriers_ends_every_block(bad: int) -> None:
    before = threading.active_count()
    x = np.zeros((BLOCKS, 16), np.float32)
    with pytest.raises(TileError, match=r"test_barrier.py, line \d+: a slice \[1, 16\]"):
        fails(x, np.zeros_like(x), bad)
    for thread in threading.enumerate()[before:]:
        thread.join(5)
    assert threading.active_count() <= before
    y = np.zeros_like(x)
    passed_round(x, y, 1)  # and the next run is whole


@pytest.mark.parametrize(
    ("option", "part"), [({"core_type": "aiv"}, "core_type 'aiv'"), ({"mode": "firm"}, "mode 'firm'")]
)
def test_a_barrier_of_no_kind(option: dict, part: str) -> None:
    @pl.jit
    def odd(y: pl.Out[pl.Tensor]):
        for b in pl.spmd(2):
            pl.system.syncall(**option)
            pl.write(y, [b], 1)
        return y

    with pytest.raises(TileError, match=part):
        odd(np.zeros(2, np.int32))
