"""Several ranks run side by side: they signal, copy into each other's windows, and never hang."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import npuscope.tile as pl
import npuscope.tile.distributed as pld
from npuscope.tile.fault import TileError
from npuscope.tile.golden import TensorSpec, run_jit
from npuscope.tile.run.execute import collecting

N, W = 3, 32


def ranks(n: int) -> SimpleNamespace:
    return SimpleNamespace(device_ids=list(range(n)))


@pl.jit
def shift(
    x: pl.Tensor[[1, W], pl.FP32],
    y: pl.Out[pl.Tensor[[1, W], pl.FP32]],
    box: pld.DistributedTensor[[1, W], pl.FP32],
    arrived: pld.DistributedTensor[[1, 1], pl.INT32],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="push"):
        ctx = pld.get_comm_ctx(box)
        right = (pld.rank(ctx) + 1) % pld.nranks(ctx)
        pld.tensor.put(dst=box, peer=right, src=x)
        pld.system.notify(target=arrived, peer=right, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="take"):
        pld.system.wait(signal=arrived, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
        pl.store(pl.load(box, [0, 0], [1, W]), [0, 0], y)
    return y


@pl.jit.host
def ring(x: pl.Tensor[[N, 1, W], pl.FP32], y: pl.Out[pl.Tensor[[N, 1, W], pl.FP32]]):
    box_buf = pld.alloc_window_buffer([1, W], dtype=pl.FP32)
    arrived_buf = pld.alloc_window_buffer(4)
    for r in pl.range(pld.world_size()):
        box = pld.window(box_buf, [1, W], dtype=pl.FP32)
        arrived = pld.window(arrived_buf, [1, 1], dtype=pl.INT32)
        shift(x[r], y[r], box, arrived, device=r)


def test_a_window_may_be_declared_in_another_shape_of_the_same_size() -> None:
    @pl.jit.host
    def flat(x: pl.Tensor[[N, 1, W], pl.FP32], y: pl.Out[pl.Tensor[[N, 1, W], pl.FP32]], width: pl.Scalar[pl.INT32]):
        box_buf, arrived_buf = pld.alloc_window_buffer([W], dtype=pl.FP32), pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            box, arrived = pld.window(box_buf, [width], dtype=pl.FP32), pld.window(arrived_buf, [1], dtype=pl.INT32)
            shift(x[r], y[r], box, arrived, device=r)

    x = np.random.default_rng(1).normal(size=(N, 1, W)).astype(np.float32)
    y = np.zeros_like(x)
    flat(x, y, W, config=ranks(N))
    np.testing.assert_array_equal(y, np.roll(x, 1, axis=0))
    with pytest.raises(TileError, match=r"box is declared \[1, 32\]"):
        flat(x, y, W - 1, config=ranks(N))


def test_every_rank_gets_its_neighbours_row() -> None:
    x = np.random.default_rng(1).normal(size=(N, 1, W)).astype(np.float32)
    y = np.zeros_like(x)
    with collecting() as found:
        ring(x, y, config=ranks(N))
    np.testing.assert_array_equal(y, np.roll(x, 1, axis=0))
    recorded = {run.recording.program: run.recording for run in found}
    assert sorted(recorded) == ["ring", "shift@0", "shift@1", "shift@2"]
    middle = recorded["shift@1"]
    assert [task.kernel for task in middle.tasks] == ["push", "take"]
    ops = [op for body in middle.bodies for op in body.items]
    assert [(op.name, dict(op.attributes)["peer"]) for op in ops if "peer" in dict(op.attributes)] == [
        ("put", 2),
        ("notify", 2),
    ]


def test_without_values_ranks_are_recorded_and_nobody_waits() -> None:
    x = np.zeros((N, 1, W), np.float32)
    with collecting() as found:
        ring.lower(x, x.copy(), config=ranks(N)).functions  # noqa: B018
    assert sum(len(run.recording.tasks) for run in found) == 2 * N


@pl.jit
def deaf(
    y: pl.Out[pl.Tensor[[1, W], pl.FP32]],
    arrived: pld.DistributedTensor[[1, 1], pl.INT32],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="take"):
        pld.system.wait(signal=arrived, offsets=[0, 0], expected=2, cmp=pld.WaitCmp.Ge)
        pl.store(pl.full([1, W], dtype=pl.FP32, value=1.0), [0, 0], y)
    return y


@pl.jit.host
def nobody_speaks(y: pl.Out[pl.Tensor[[2, 1, W], pl.FP32]]):
    arrived_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        deaf(y[r], pld.window(arrived_buf, [1, 1], dtype=pl.INT32), device=r)


@pytest.mark.parametrize("order", ["wait, tell, read", "wait, read, tell", "wait, read"])
def test_a_rank_goes_on_without_what_a_deferred_wait_waits_for(order: str) -> None:
    """Up to the task that depends on it: every rank waits first and tells its peer later."""

    @pl.jit
    def late(
        x: pl.Tensor[[1, W], pl.FP32],
        y: pl.Out[pl.Tensor[[1, W], pl.FP32]],
        box: pld.DistributedTensor[[1, W], pl.FP32],
        arrived: pld.DistributedTensor[[1, 1], pl.INT32],
        peer: pl.Scalar[pl.INT32],
    ):
        for step in order.split(", "):
            if step == "wait":
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="take") as taken:
                    pld.system.defer_wait(signal=arrived, offsets=[0, 0], expected=1)
            elif step == "tell":
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="tell"):
                    pld.tile.remote_store(pl.load(x, [0, 0], [1, W]), target=box, peer=peer, offsets=[0, 0])
                    pld.system.notify(target=arrived, peer=peer, offsets=[0, 0], value=1)
            else:
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="read", deps=[taken]):
                    pl.store(pl.load(box, [0, 0], [1, W]), [0, 0], y)
        return y

    @pl.jit.host
    def host(x: pl.Tensor[[2, 1, W], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, W], pl.FP32]]):
        box_buf = pld.alloc_window_buffer([1, W], dtype=pl.FP32)
        arrived_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
        for r in pl.range(2):
            box = pld.window(box_buf, [1, W], dtype=pl.FP32)
            late(x[r], y[r], box, pld.window(arrived_buf, [1, 1], dtype=pl.INT32), 1 - r, device=r)

    x, y = np.arange(2 * W, dtype=np.float32).reshape(2, 1, W), np.zeros((2, 1, W), np.float32)
    if order == "wait, tell, read":
        host(x, y, config=ranks(2))
        assert np.array_equal(y, x[::-1])
    else:
        with pytest.raises(TileError, match=r"rank 0 waits for arrived\[0, 0\] >= 1, .* depends on it.*rank 1 waits"):
            host(x, y, config=ranks(2))


def test_a_deferred_wait_is_for_a_counter_that_comes_so_far() -> None:
    @pl.jit
    def exactly(y: pl.Out[pl.Tensor[[1, W], pl.FP32]], arrived: pld.DistributedTensor[[1, 1], pl.INT32]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="take"):
            pld.system.defer_wait(arrived, [0, 0], 1, cmp=pld.WaitCmp.Eq)
        return y

    @pl.jit.host
    def host(y: pl.Out[pl.Tensor[[1, 1, W], pl.FP32]]):
        exactly(y[0], pld.window(pld.alloc_window_buffer(4), [1, 1], dtype=pl.INT32), device=0)

    with pytest.raises(TileError, match=r"WaitCmp\.Ge"):
        host(np.zeros((1, 1, W), np.float32), config=ranks(1))


def test_a_deferred_wait_that_nobody_ever_answers_is_an_error_though_no_task_depends_on_it() -> None:
    @pl.jit
    def alone(y: pl.Out[pl.Tensor[[1, W], pl.FP32]], arrived: pld.DistributedTensor[[1, 1], pl.INT32]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="take"):
            pld.system.defer_wait(signal=arrived, offsets=[0, 0], expected=1)
        return y

    @pl.jit.host
    def host(y: pl.Out[pl.Tensor[[1, 1, W], pl.FP32]]):
        arrived_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
        alone(y[0], pld.window(arrived_buf, [1, 1], dtype=pl.INT32), device=0)

    with pytest.raises(TileError, match=r"rank 0 waits for arrived\[0, 0\] >= 1, which is 0"):
        host(np.zeros((1, 1, W), np.float32), config=ranks(1))


def test_a_wait_that_nobody_answers_is_an_error_that_names_every_rank() -> None:
    with pytest.raises(TileError) as caught:
        nobody_speaks(np.zeros((2, 1, W), np.float32), config=ranks(2))
    said = str(caught.value)
    assert "deadlock" in said
    assert "test_ranks.py" in said
    assert "rank 0 waits for arrived[0, 0] >= 2, which is 0" in said
    assert "rank 1 waits for arrived[0, 0] >= 2, which is 0" in said


@pl.jit
def double(x: pl.Tensor[[1, W], pl.FP32], y: pl.Out[pl.Tensor[[1, W], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.store(pl.mul(pl.load(x, [0, 0], [1, W]), 2.0), [0, 0], y)
    return y


@pl.jit.host
def chain(x: pl.Tensor[[1, W], pl.FP32], y: pl.Tensor[[1, W], pl.FP32], z: pl.Out[pl.Tensor[[1, W], pl.FP32]]):
    double(x, y, device=1)
    double(y, z, device=0)


def test_calls_that_share_memory_of_the_host_run_in_order() -> None:
    x, y, z = np.ones((1, W), np.float32), np.zeros((1, W), np.float32), np.zeros((1, W), np.float32)
    chain(x, y, z, config=ranks(2))
    assert z[0, 0] == 4.0


@pl.jit.host
def beyond(x: pl.Tensor[[1, W], pl.FP32], y: pl.Out[pl.Tensor[[1, W], pl.FP32]]):
    double(x, y, device=2)


def test_mistakes_are_the_users() -> None:
    x = np.ones((1, W), np.float32)
    with pytest.raises(TileError, match="device=2 of 2 ranks"):
        beyond(x, x.copy(), config=ranks(2))
    with pytest.raises(TileError, match="nobody says how many"):
        beyond(x, x.copy())
    with pytest.raises(AttributeError, match=r"pld.tensor.puts.*pld.tensor.put"):
        pld.tensor.puts  # noqa: B018


@pl.jit
def twice_around(
    x: pl.Tensor[[1, W], pl.FP32],
    y: pl.Out[pl.Tensor[[1, W], pl.FP32]],
    box: pld.DistributedTensor[[1, W], pl.FP32],
    signal: pld.DistributedTensor[[N, 1], pl.INT32],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.store(pl.load(x, [0, 0], [1, W]), [0, 0], box)
        for _step in pl.range(2):
            ctx = pld.get_comm_ctx(box)
            pld.tensor.barrier(signal)
            got = pld.tile.remote_load(box, peer=(pld.rank(ctx) + 1) % pld.nranks(ctx), offsets=[0, 0], shape=[1, W])
            pld.tensor.barrier(signal)
            pl.store(got, [0, 0], box)
        pl.store(pl.load(box, [0, 0], [1, W]), [0, 0], y)
    return y


@pl.jit.host
def pulled(x: pl.Tensor[[N, 1, W], pl.FP32], y: pl.Out[pl.Tensor[[N, 1, W], pl.FP32]]):
    box_buf = pld.alloc_window_buffer([1, W], dtype=pl.FP32)
    signal_buf = pld.alloc_window_buffer([N, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        box = pld.window(box_buf, [1, W], dtype=pl.FP32)
        twice_around(x[r], y[r], box, pld.window(signal_buf, [N, 1], dtype=pl.INT32), device=r)


def test_a_barrier_can_be_passed_again_and_again() -> None:
    x = np.random.default_rng(2).normal(size=(N, 1, W)).astype(np.float32)
    y = np.zeros_like(x)
    pulled(x, y, config=ranks(N))
    np.testing.assert_array_equal(y, np.roll(x, -2, axis=0))


def test_specs_of_a_host_function_are_known_by_name() -> None:
    x, y = TensorSpec("x", [N, 1, W], pl.FP32, init_value=1.5), TensorSpec("y", [N, 1, W], pl.FP32, is_output=True)

    def golden(tensors: dict) -> None:
        tensors["y"][:] = np.roll(tensors["x"], 1, axis=0)

    assert run_jit(fn=ring, specs=[y, x], golden_fn=golden, compile_cfg={"distributed_config": ranks(N)}).passed
