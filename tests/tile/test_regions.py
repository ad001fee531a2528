"""Where tasks come from, what each block sees, and how values leave a task."""

# ruff: noqa: F841, SIM117  (programs say `with` once per scope)

from __future__ import annotations

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.graph import task_graph
from npuscope.tile.record.model import Mode, Op
from npuscope.tile.record.walk import ops_of
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
MODES = pytest.mark.parametrize("mode", ["values", "shapes"])


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def kernels(finished) -> list[str]:
    return [task.kernel for task in finished.recording.tasks]


def ops(finished, task: int) -> list[str]:
    """Names of the ops of a task's first block, outside loops."""
    body = finished.recording.bodies[finished.recording.tasks[task].groups[0].body]
    return [op.name for op in (*body.prologue, *body.items) if isinstance(op, Op)]


@pl.jit
def forms(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=CORE, name_hint="whole", allow_early_resolve=True) as first:
        y[0:4, :] = x[0:4, :]
    for i in pl.spmd(2, name_hint="loop", sync_start=True):
        y[4 + i : 5 + i, :] = x[i : i + 1, :]
    with pl.spmd(2, name_hint="block", deps=[first, None]) as second:
        i = pl.tile.get_block_idx()
        y[6 + i : 7 + i, :] = x[i : i + 1, :]
    pl.system.task_dummy(deps=[first, second])
    return y


@MODES
def test_each_region_is_one_task(mode: Mode) -> None:
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    finished = record(forms, x, np.zeros_like(x), mode=mode)
    tasks = finished.recording.tasks
    assert [(t.kernel, t.form, t.blocks, t.deps) for t in tasks] == [
        ("whole", "at", 1, ()),
        ("loop", "spmd", 2, ()),
        ("block", "spmd", 2, (0,)),
        ("task_dummy", "dummy", 0, (0, 2)),
    ]
    assert (tasks[0].early, tasks[1].sync_start, tasks[1].early) == (True, True, False)
    if mode == "values":
        np.testing.assert_array_equal(finished.result, np.vstack([x[:4], x[:2], x[:2]]))


@pl.jit
def from_before(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    shift = 1
    with pl.spmd(4) as tid:
        i = pl.tile.get_block_idx()
        shift = shift + i  # every block starts from 1, whatever its neighbour made of it
        y[i : i + 1, :] = pl.add(x[i : i + 1, :], pl.cast(shift, pl.FP32))
        last = i
    with pl.at(level=CORE, deps=[tid]):
        pl.write(y, [4, 0], pl.cast(shift * 10 + last, pl.FP32))
    return y


def test_blocks_do_not_see_each_other_and_the_last_one_leaves_its_names() -> None:
    y = np.zeros((5, 16), np.float32)
    from_before(np.zeros((4, 16), np.float32), y)
    np.testing.assert_array_equal(y[:, 0], [1, 2, 3, 4, 43])


@pl.jit
def empty(y: pl.Out[pl.Tensor]):
    n = 7
    with pl.spmd(0) as tid:
        n = pl.tile.get_block_idx()
    with pl.at(level=CORE, deps=[tid]):
        pl.write(y, [0], n)
    return y


@MODES
def test_a_launch_of_no_blocks_is_a_task_and_changes_nothing(mode: Mode) -> None:
    finished = record(empty, np.zeros(1, np.int32), mode=mode)
    assert finished.recording.tasks[0].blocks == 0
    assert finished.recording.tasks[1].deps == (0,)
    assert finished.named["y"][0] == 7


@pl.jit
def handed_over(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=CORE, name_hint="makes"):
        doubled = pl.mul(x, 2.0)
        kept = pl.add(x, 1.0)  # never used elsewhere: stays on chip
    with pl.at(level=CORE, name_hint="uses"):
        y[:] = pl.add(doubled, 1.0)
    with pl.at(level=CORE, name_hint="uses_again"):
        y[:] = pl.sub(doubled, y)
    return y


@MODES
def test_a_tile_used_by_another_task_goes_through_memory(mode: Mode) -> None:
    finished = record(handed_over, ones(4, 16), np.zeros((4, 16), np.float32), mode=mode)
    promoted = [b for b in finished.recording.buffers if b.origin == "promoted"]
    assert [b.shape for b in promoted] == [(4, 16)]
    assert "store" in ops(finished, 0)
    assert "load" in ops(finished, 1)
    writers = [
        t.kernel for t in finished.recording.tasks for a in t.arguments if a.buffer == promoted[0].id and a.writes
    ]
    readers = [
        t.kernel for t in finished.recording.tasks for a in t.arguments if a.buffer == promoted[0].id and a.reads
    ]
    assert (writers, readers) == (["makes"], ["uses", "uses_again"])
    if mode == "values":
        assert (finished.result == 2 - 3).all()


@pl.jit
def views(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    top = x[0:4, :]  # orchestration: a view
    with pl.at(level=CORE):
        before = x[0:4, :]  # region: a copy
        x[0:4, :] = pl.add(before, 1.0)
        y[0:4, :] = before
    with pl.at(level=CORE):
        y[4:8, :] = top
    return y


def test_a_slice_is_a_view_in_orchestration_and_a_copy_in_a_region() -> None:
    y = np.zeros((8, 16), np.float32)
    views(ones(8, 16), y)
    assert (y[:4] == 1).all()
    assert (y[4:] == 2).all()


@pl.jit
def seen_otherwise(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    turned = pl.transpose(x, axis1=0, axis2=1)
    flat = pl.tensor.view(y, [16, 8])
    with pl.at(level=CORE):
        flat[:] = turned
    return y


@MODES
def test_views_of_a_tensor_share_its_memory(mode: Mode) -> None:
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    finished = record(seen_otherwise, x, np.zeros_like(x), mode=mode)
    assert [b.name for b in finished.recording.buffers] == ["x", "y"]
    if mode == "values":
        np.testing.assert_array_equal(finished.result.reshape(16, 8), x.T)


@pl.jit
def parts_of_one(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    whole = pl.create_tensor([2, 16], dtype=pl.FP32)
    for i in pl.range(2):
        part = pl.create_tensor([1, 16], dtype=pl.FP32)
        with pl.at(level=CORE):
            part[:] = x[i : i + 1, :]
        whole = pl.assemble(whole, part, [i, 0])
    with pl.at(level=CORE):
        y[:] = whole
    return y


def test_assembling_in_orchestration_is_an_alias_and_no_task() -> None:
    x = np.arange(32, dtype=np.float32).reshape(2, 16)
    finished = record(parts_of_one, x, np.zeros_like(x))
    assert len(finished.recording.tasks) == 3
    assert [alias.offset for alias in finished.recording.aliases] == [0, 16]
    np.testing.assert_array_equal(finished.result, x)


@pl.jit
def added(x: pl.Tensor, y: pl.InOut[pl.Tensor]):
    for i in pl.spmd(4):
        y = pl.assemble(y, x[i : i + 1, :], [0, 0], atomic=pl.AtomicType.Add)
    return y


@MODES
def test_an_atomic_add_reads_and_writes(mode: Mode) -> None:
    y = np.full((1, 16), 10, np.float32)
    finished = record(added, ones(4, 16), y, mode=mode)
    target = finished.recording.tasks[0].arguments[1]
    assert (target.reads, target.writes) == (True, True)
    if mode == "values":
        assert (y == 14).all()


@pl.jit
def opted_out(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    scratch = pl.create_tensor([4, 16], dtype=pl.FP32, manual_dep=True, init_value=0)
    with pl.manual_scope():
        with pl.at(level=CORE, name_hint="manual", no_dep_args=[x]) as tid:
            scratch[:] = x
    with pl.scope():
        with pl.at(level=CORE, name_hint="after", deps=[tid]):
            y[:] = scratch
    return y


def test_opting_out_of_dependencies_is_recorded() -> None:
    recording = record(opted_out, ones(4, 16), ones(4, 16)).recording
    manual, after = recording.tasks
    assert (manual.manual_scope, after.manual_scope) == (True, False)
    assert {recording.buffers[a.buffer].name: a.no_dep for a in manual.arguments} == {"x": True, "scratch": False}
    assert [b.name for b in recording.buffers if b.manual_dep] == ["scratch"]


@pl.jit
def asked(n: pl.Tensor, x: pl.Tensor, y: pl.InOut[pl.Tensor]):
    with pl.spmd(2, predicate=(n[0] > 0)) as tid:
        i = pl.tile.get_block_idx()
        y[i : i + 1, :] = x[i : i + 1, :]
    with pl.at(level=CORE, deps=[tid]):
        y[2:3, :] = x[2:3, :]
    return y


@pytest.mark.parametrize("n", [0, 1])
@MODES
def test_a_predicate_decides_at_dispatch_and_stalls_nobody(n: int, mode: Mode) -> None:
    y = np.zeros((3, 16), np.float32)
    finished = record(asked, np.array([n], np.int32), ones(3, 16), y, mode=mode)
    first = finished.recording.tasks[0]
    assert (first.predicated, first.skipped) == (True, n == 0)
    assert finished.recording.host_reads == ()
    if mode == "values":
        np.testing.assert_array_equal(y[:, 0], [n, n, 1])


@pl.jit
def host_read(n: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        pl.write(y, [0], pl.read(n, [0]))
    for i in pl.range(pl.read(y, [0])):
        with pl.at(level=CORE):
            pl.write(y, [i + 1], i)
    return y


@MODES
def test_a_read_in_orchestration_waits_for_the_writer(mode: Mode) -> None:
    finished = record(host_read, np.array([3], np.int32), np.zeros(8, np.int32), mode=mode)
    (read,) = finished.recording.host_reads
    assert (read.buffer, read.offset, read.before_task) == (1, 0, 1)
    assert len(finished.recording.tasks) == 4


@pl.jit
def together(x: pl.Tensor, y: pl.Out[pl.Tensor], z: pl.Out[pl.Tensor]):
    with pl.cluster():
        with pl.at(level=CORE, name_hint="cube"):
            scores = pl.matmul(x, x, b_trans=True)
        with pl.at(level=CORE, name_hint="vector"):
            y[:] = pl.exp(scores)
    with pl.cluster(name_hint="many"):
        with pl.spmd(16):
            i = pl.tile.get_block_idx()
            z[i : i + 1, :] = x[i : i + 1, :]
    return y


@MODES
def test_a_cluster_is_one_task(mode: Mode) -> None:
    x = ones(16, 16)
    finished = record(together, x, np.zeros_like(x), np.zeros_like(x), mode=mode)
    assert [(t.kernel, t.core, t.blocks) for t in finished.recording.tasks] == [
        ("together_cluster_0", "MIX", 1),
        ("many", "AIV", 16),
    ]
    if mode == "values":
        np.testing.assert_allclose(finished.result, np.exp(np.full((16, 16), 16, np.float32)))


@pl.jit
def by_lanes(x: pl.Tensor, y: pl.Out[pl.Tensor], z: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        scores = pl.matmul(x, x, b_trans=True)
        for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            mine = pl.aiv_shard(scores)
            half = pl.add(mine, pl.cast(lane, pl.FP32))
            y[lane * 8 : lane * 8 + 8, :] = half
            both = pl.aic_gather(half)
        z[:] = pl.matmul(both, both)
    return y


def test_each_lane_has_its_half_and_the_cube_gets_both_back() -> None:
    x = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    y, z = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32)
    by_lanes(x, y, z)
    want = x @ x.T + np.repeat([0, 1], 8).astype(np.float32)[:, None]
    np.testing.assert_allclose(y, want, atol=1e-5)
    np.testing.assert_allclose(z, want @ want, rtol=1e-4, atol=1e-3)


@pl.jit
def never_written(y: pl.Out[pl.Tensor]):
    scratch = pl.create_tensor([4, 16], dtype=pl.FP32)
    with pl.at(level=CORE):
        scratch[0:2, :] = pl.full([2, 16], dtype=pl.FP32, value=1.0)
    with pl.at(level=CORE):
        y[:] = pl.add(scratch, 1.0)
    return y


def test_memory_never_written_is_poison_and_named() -> None:
    finished = record(never_written, np.zeros((4, 16), np.float32))
    assert (finished.result[:2] == 2).all()
    assert np.isnan(finished.result[2:]).all()
    (finding,) = finished.recording.notices
    assert finding.kind == "unwritten"
    assert "[4, 16] of scratch [4, 16], of which some elements were never written" in finding.message
    site = finished.recording.sites[finding.site]
    assert site.file == __file__
    assert site.function == "never_written"


def test_a_windowized_task_waits_only_for_what_it_touches() -> None:
    """Turns of a sequential loop write one tensor each at its place: whole tensors tie them, windows do not."""

    def edges(windowize: bool, read_back: bool = False, hole: bool = False) -> set[tuple[int, int]]:
        @pl.jit
        def rows(x: pl.Tensor[[64, 32], pl.FP32], y: pl.Out[pl.Tensor[[64, 32], pl.FP32]]):
            for i in pl.range(0, 64, 16):
                with pl.at(level=pl.Level.CORE_GROUP, windowize=windowize):
                    for j in pl.range(0, 16, 8):
                        if not hole or j == 0:
                            pl.store(pl.mul(pl.load(x, [i + j, 0], [8, 16]), 2.0), [i + j, 0], y)
                        pl.store(pl.mul(pl.load(x, [i + j, 16], [8, 16]), 2.0), [i + j, 16], y)
            if read_back:
                with pl.at(level=pl.Level.CORE_GROUP, windowize=windowize):
                    pl.store(pl.mul(pl.load(y, [16, 0], [16, 32]), 2.0), [0, 0], x)
            return y

        found = rows.record(np.ones((64, 32), np.float32), np.zeros((64, 32), np.float32), mode="shapes")
        return {pair for pair in task_graph(found.recording).pairs if pair[0] >= 0}

    assert edges(windowize=False) == {(0, 1), (1, 2), (2, 3)}
    assert edges(windowize=True) == set()
    assert edges(windowize=True, read_back=True) == {(1, 4)}  # the one turn whose rows it reads
    assert edges(windowize=True, hole=True) == {
        (0, 1),
        (1, 2),
        (2, 3),
    }  # no box: whole tensors, as compiled


@MODES
def test_a_store_fills_the_box_that_it_names(mode: Mode) -> None:
    @pl.jit
    def boxes(x: pl.Tensor[[4, 16], pl.FP32], y: pl.Out[pl.Tensor[[3, 2, 2, 16], pl.FP32]]):
        with pl.at(level=CORE):
            tile = pl.load(x, [0, 0], [4, 16])
            pl.store(tile, [0, 0, 0, 0], y, shapes=[1, 2, 2, 16])
            flat = pl.reshape(y, [12, 16])
            pl.store(tile, [4, 0], flat, shapes=[1, 8])
            pl.store(pl.set_validshape(tile, 1, 1), [8, 3], flat, shapes=[1, 1])
        return y

    x, y = np.arange(64, dtype=np.float32).reshape(4, 16) + 1, np.zeros((3, 2, 2, 16), np.float32)
    found = record(boxes, x, y, mode=mode)
    writes = [access for op in ops_of(found.recording.bodies[0]) for access in op[0].accesses if access.mode == "write"]
    assert [access.elements for access in writes] == [64, 8, 1]
    if mode == "values":
        expected = np.zeros((12, 16), np.float32)
        expected[:4], expected[4, :8], expected[8, 3] = x, x[0, :8], x[0, 0]
        np.testing.assert_array_equal(y.reshape(12, 16), expected)
