"""Programs with a race planted in them, each beside a clean twin that differs by the one line that orders the two.

`PLANTED` has for each: the racing program, its twin, and what is to be found (hazard, kernels, buffer, count).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import npuscope.tile as pl

CORE = pl.Level.CORE_GROUP
X: Any = pl.Tensor[[32, 64], pl.FP32]
Y: Any = pl.Out[X]


def lost_war(safe: bool) -> Any:
    """One view of a scratch is read, another of the same memory overwritten: nobody waits for readers."""

    @pl.jit
    def two_views(x: X, y: Y):
        scratch = pl.create_tensor([32, 64], dtype=pl.FP32)
        left = pl.slice(scratch, [32, 32], [0, 0])
        flat = pl.reshape(scratch, [16, 128])
        with pl.at(level=CORE, name_hint="fill") as fill_tid:
            scratch[:, :] = pl.add(x[:, :], 1.0)
        with pl.at(level=CORE, name_hint="reader") as reader_tid:
            y[:, 0:32] = pl.mul(left[:, :], 2.0)
        with pl.at(level=CORE, name_hint="writer", deps=[fill_tid, reader_tid] if safe else [fill_tid]):
            flat[0:8, :] = pl.full([8, 128], dtype=pl.FP32, value=-7.0)
        return y

    return two_views


def dropped_deps(safe: bool) -> Any:
    """In a manual scope only deps= order: the consumer's is missing."""

    @pl.jit
    def manual(x: X, y: Y):
        mid = pl.create_tensor([32, 64], dtype=pl.FP32)
        with pl.manual_scope():
            for i in pl.parallel(2):
                with pl.at(level=CORE, name_hint="produce") as tid:
                    mid[i * 16 : i * 16 + 16, :] = pl.add(x[i * 16 : i * 16 + 16, :], 1.0)
                with pl.at(level=CORE, name_hint="consume", deps=[tid] if safe else []):
                    y[i * 16 : i * 16 + 16, :] = pl.mul(mid[i * 16 : i * 16 + 16, :], 2.0)
        return y

    return manual


def manual_dep(safe: bool) -> Any:
    """A chain through a manual_dep tensor whose last link is missing."""

    @pl.jit
    def chain(x: X, y: Y):
        mid = pl.create_tensor([32, 64], dtype=pl.FP32, manual_dep=True)
        with pl.at(level=CORE, name_hint="first") as first_tid:
            mid[:, :] = pl.add(x[:, :], 1.0)
        with pl.at(level=CORE, name_hint="second", deps=[first_tid]) as second_tid:
            mid[:, :] = pl.mul(mid[:, :], 3.0)
        with pl.at(level=CORE, name_hint="third", deps=[second_tid] if safe else [first_tid]):
            y[:, :] = mid[:, :]
        return y

    return chain


def overlapping_blocks(safe: bool) -> Any:
    """Blocks that write eight rows every eight rows, or every four."""
    step = 8 if safe else 4

    @pl.jit
    def blocks(x: X, y: Y):
        with pl.spmd(4, name_hint="rows"):
            row = pl.get_block_idx() * step
            y[row : row + 8, :] = pl.mul(x[row : row + 8, :], pl.get_block_idx() + 1.0)
        return y

    return blocks


def missing_barrier(safe: bool) -> Any:
    """Each block reads what its neighbour wrote, after a barrier or without one."""

    @pl.jit
    def ring(x: X, y: Y):
        mid = pl.create_tensor([32, 64], dtype=pl.FP32, init_value=0.0)
        with pl.spmd(4, name_hint="pass_on"):
            block = pl.get_block_idx()
            mid[block * 8 : block * 8 + 8, :] = pl.add(x[block * 8 : block * 8 + 8, :], 1.0)
            if safe:
                pl.system.syncall(core_type="mix")
            there = (block + 3) % 4
            y[block * 8 : block * 8 + 8, :] = mid[there * 8 : there * 8 + 8, :]
        return y

    return ring


@pl.jit.incore
def scale_in_place(t: pl.InOut[pl.Tensor[[32, 64], pl.FP32]]):
    pl.store(pl.mul(pl.load(t, [0, 0], [32, 64]), 2.0), [0, 0], t)
    return t


@pl.jit.incore
def scale_out(t: pl.Out[pl.Tensor[[32, 64], pl.FP32]]):
    pl.store(pl.mul(pl.load(t, [0, 0], [32, 64]), 2.0), [0, 0], t)
    return t


def inout_declared_out(safe: bool) -> Any:
    """A kernel that reads what it calls an output gets no edge from those who wrote slices of it."""
    scale = scale_in_place if safe else scale_out

    @pl.jit
    def declared(x: X, y: Y):
        mid = pl.create_tensor([32, 64], dtype=pl.FP32)
        for i in pl.parallel(2):
            rows = pl.slice(mid, [16, 64], [i * 16, 0])
            with pl.at(level=CORE, name_hint="fill"):
                rows[:, :] = pl.add(x[i * 16 : i * 16 + 16, :], 1.0)
        mid = scale(mid)
        with pl.at(level=CORE, name_hint="out"):
            y[:, :] = mid[:, :]
        return y

    return declared


def next_layer(safe: bool) -> Any:
    """A scratch that every layer overwrites while the layer before may still read it."""

    @pl.jit
    def layers(x: X, y: Y):
        scratch = pl.create_tensor([32, 64], dtype=pl.FP32)
        done = pl.array.create(1, pl.TASK_ID)
        for layer in pl.range(4):
            with pl.at(level=CORE, name_hint="make", deps=[done] if safe else []):
                scratch[:, :] = pl.add(x[:, :], layer * 1.0)
            with pl.at(level=CORE, name_hint="use") as tid:
                y[layer * 8 : layer * 8 + 8, :] = scratch[layer * 8 : layer * 8 + 8, :]
            done[0] = tid
        return y

    return layers


def unseeded_add(safe: bool) -> Any:
    """Atomic adds commute, but not with the zeros that must be there before."""

    @pl.jit
    def add_up(x: X, y: Y):
        with pl.manual_scope():
            tids = pl.array.create(4, pl.TASK_ID)
            with pl.at(level=CORE, name_hint="seed") as seed_tid:
                y[:, :] = pl.full([32, 64], dtype=pl.FP32, value=0.0)
            for k in pl.parallel(4):
                with pl.at(level=CORE, name_hint="part", deps=[seed_tid] if safe else []) as tid:
                    pl.assemble(y, pl.mul(x[:, :], k + 1.0), [0, 0], atomic=pl.AtomicType.Add)
                tids[k] = tid
        return y

    return add_up


def no_dep(safe: bool) -> Any:
    """A consumer that opts out of the tensor it needs."""

    @pl.jit
    def opted_out(x: X, y: Y):
        mid = pl.create_tensor([32, 64], dtype=pl.FP32)
        with pl.at(level=CORE, name_hint="fill"):
            mid[:, :] = pl.add(x[:, :], 1.0)
        with pl.at(level=CORE, name_hint="use", no_dep_args=[] if safe else [mid]):
            y[:, :] = mid[:, :]
        return y

    return opted_out


# (hazard, earlier kernel, later kernel, buffer, pairs of tasks or blocks)
PLANTED: dict[str, tuple[Any, set[tuple[str, str, str, str, int]]]] = {
    "lost WAR through two views": (lost_war, {("war", "reader", "writer", "scratch", 1)}),
    "dropped deps= in a manual scope": (dropped_deps, {("raw", "produce", "consume", "mid", 2)}),
    "manual_dep chain": (manual_dep, {("raw", "second", "third", "mid", 1)}),
    "SPMD blocks overlapping": (overlapping_blocks, {("waw", "rows", "rows", "y", 3)}),
    # block 0 reads what block 3 writes: in the order of the blocks the read comes first
    "missing barrier": (
        missing_barrier,
        {("raw", "pass_on", "pass_on", "mid", 3), ("war", "pass_on", "pass_on", "mid", 1)},
    ),
    "InOut declared Out": (
        inout_declared_out,
        {("raw", "fill", "scale_out", "mid", 2), ("waw", "fill", "scale_out", "mid", 2)},
    ),
    # of four layers each later one may overwrite what each earlier one reads
    "WAR across layers": (next_layer, {("war", "use", "make", "scratch", 6)}),
    "add before its seed": (unseeded_add, {("raw", "seed", "part", "y", 4)}),
    "no_dep_args": (no_dep, {("raw", "fill", "use", "mid", 1)}),
}


def arguments() -> tuple[Any, Any]:
    return np.arange(32 * 64, dtype=np.float32).reshape(32, 64) + 1.0, np.zeros((32, 64), np.float32)
