"""The graph folded into kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.graph.outputs import kernel_graph
from npuscope.tile.graph.task_graph import task_graph
from npuscope.tile.record.model import Recording


@pl.jit
def diamond(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    left = pl.create_tensor([16, 64], dtype=pl.FP32)
    right = pl.create_tensor([16, 64], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="first"):
        left = pl.assemble(left, pl.add(x, 1.0), [0, 0])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="late_seed") as seed:
        right = pl.assemble(right, pl.full([16, 64], dtype=pl.FP32, value=2.0), [0, 0])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="middle"):
        left[:, :] = pl.mul(left, 2.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="last", deps=[seed]):
        out[:, :] = pl.add(left, right)
    return out


@pytest.fixture(scope="module")
def recording() -> Recording:
    return diamond.record(np.ones((16, 64), np.float32), np.zeros((16, 64), np.float32)).recording


def test_kernels_stand_in_columns_and_what_waits_for_nothing_beside_its_first_user(recording: Recording) -> None:
    graph = kernel_graph(recording, task_graph(recording))
    # late_seed could run first; drawn beside `middle` its line to `last` is short
    assert graph.columns == (("first",), ("late_seed", "middle"), ("last",))
    assert graph.back == ()
    found = {(e.src, e.dst): e for e in graph.edges}
    assert dict(found["late_seed", "last"].origins).keys() == {"explicit", "raw"}
    assert not found["first", "middle"].implied


def test_an_edge_that_a_longer_way_implies_is_marked(recording: Recording) -> None:
    tasks = [replace(t, deps=(0,)) if t.kernel == "last" else t for t in recording.tasks]
    edited = replace(recording, tasks=tuple(tasks))
    found = {(e.src, e.dst): e for e in kernel_graph(edited, task_graph(edited)).edges}
    assert found["first", "last"].implied
    assert not found["middle", "last"].implied


def test_edges_to_a_kernel_itself_are_kept_apart(recording: Recording) -> None:
    tasks = [replace(t, kernel="same", deps=(t.id - 1,) if t.id else ()) for t in recording.tasks]
    edited = replace(recording, tasks=tuple(tasks))
    graph = kernel_graph(edited, task_graph(edited))
    assert graph.columns == (("same",),)
    assert graph.edges == ()
    assert graph.back[0].count == len(task_graph(edited).pairs) - sum(src < 0 for src, _ in task_graph(edited).pairs)
