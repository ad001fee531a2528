"""Collectives over ranks, inside a task and launched by the host, against what each means."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import npuscope.tile as pl
import npuscope.tile.distributed as pld
from npuscope.tile.fault import TileError
from npuscope.tile.run.execute import collecting

SIZE = 300  # more than one piece of 256 elements, and no multiple of it
REDUCE: dict[str, Any] = {"Sum": np.sum, "Max": np.max, "Min": np.min, "Prod": np.prod}


def on(ranks: int) -> SimpleNamespace:
    return SimpleNamespace(device_ids=list(range(ranks)))


def data_of(*shape: int) -> np.ndarray:
    """Small whole numbers, so that every order of a sum gives the same."""
    return np.random.default_rng(3).integers(1, 4, shape).astype(np.float32)


def in_a_task(collective: Any, ranks: int, width: int, parts: int, signals: tuple[int, int] = (4, 4)) -> Any:
    """A program whose kernel stages its input in a window, calls a collective, and hands the window out."""

    @pl.jit
    def chip(
        x: pl.Tensor[[parts, width], pl.FP32],
        y: pl.Out[pl.Tensor[[parts, width], pl.FP32]],
        data: pl.InOut[pld.DistributedTensor[[parts, width], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[list(signals), pl.INT32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="step"):
            data = pl.store(pl.load(x, [0, 0], [parts, width]), [0, 0], data)
            data = collective(data, signal)
            y = pl.store(pl.load(data, [0, 0], [parts, width]), [0, 0], y)
        return y

    @pl.jit.host
    def host(x: pl.Tensor[[ranks, parts, width], pl.FP32], y: pl.Out[pl.Tensor[[ranks, parts, width], pl.FP32]]):
        data_buffer = pld.alloc_window_buffer(parts * width * pl.FP32.get_byte())
        signal_buffer = pld.alloc_window_buffer(signals[0] * signals[1] * pl.INT32.get_byte())
        for r in pl.range(pld.world_size()):
            data = pld.window(data_buffer, [parts, width], dtype=pl.FP32)
            signal = pld.window(signal_buffer, list(signals), dtype=pl.INT32)
            chip(x[r], y[r], data, signal, device=r)
        return y

    return host


def ran(program: Any, x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    program(x, y, config=on(len(x)))
    return y


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("op", REDUCE)
def test_an_allreduce_leaves_the_same_on_every_rank(ranks: int, op: str) -> None:
    x = data_of(ranks, 1, SIZE)
    reduce = in_a_task(lambda d, s: pld.tensor.allreduce(d, s, op=pld.ReduceOp[op]), ranks, SIZE, 1)
    np.testing.assert_array_equal(ran(reduce, x), np.repeat(REDUCE[op](x, axis=0)[None], ranks, axis=0))


@pytest.mark.parametrize(("ranks", "rows", "width"), [(2, 2, 40), (4, 4, 40), (2, 1, 1), (4, 1, 10)])
@pytest.mark.parametrize("op", REDUCE)
def test_a_ring_gives_what_a_mesh_does(ranks: int, rows: int, width: int, op: str) -> None:
    x = data_of(ranks, rows, width)
    ring = in_a_task(lambda d, s: pld.tensor.allreduce(d, s, op=pld.ReduceOp[op], mode="ring"), ranks, width, rows)
    np.testing.assert_array_equal(ran(ring, x), np.repeat(REDUCE[op](x, axis=0)[None], ranks, axis=0))


@pytest.mark.parametrize("ranks", [2, 3])
def test_windows_are_as_large_as_the_dimensions_of_the_signature(ranks: int) -> None:
    N, M = pl.dynamic("N"), pl.dynamic("M")

    @pl.jit
    def chip(y: pl.Out[pl.Tensor[[N, 8], pl.FP32]], data: pl.InOut[pld.DistributedTensor[[N, 8], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="step"):
            for row in pl.range(pld.nranks(pld.get_comm_ctx(data))):
                data = pl.store(pl.full([1, 8], dtype=pl.FP32, value=2.0), [row, 0], data)
                y = pl.store(pl.load(data, [row, 0], [1, 8]), [row, 0], y)
        return y

    @pl.jit.host
    def host(y: pl.Out[pl.Tensor[[N, N, 8], pl.FP32]], asked: pl.Scalar[pl.INDEX]):
        buffer = pld.alloc_window_buffer((N if asked else M) * 8 * pl.FP32.get_byte())
        for r in pl.range(pld.world_size()):
            chip(y[r], pld.window(buffer, [N, 8], dtype=pl.FP32), device=r)
        return y

    y = np.zeros((ranks, ranks, 8), np.float32)
    host(y, 1, config=on(ranks))
    assert (y == 2).all()
    with pytest.raises(TileError, match=r"nothing says how large M \* 8 \* 4 is"):
        host(y, 0, config=on(ranks))


def test_one_rank_gives_its_data_to_all() -> None:
    x = data_of(3, 1, SIZE)
    given = in_a_task(lambda d, s: pld.tensor.broadcast(d, s, root=2), 3, SIZE, 1)
    np.testing.assert_array_equal(ran(given, x), np.repeat(x[2:], 3, axis=0))


@pytest.mark.parametrize("ranks", [2, 3])
def test_each_rank_sums_its_part(ranks: int) -> None:
    x = data_of(ranks, ranks, SIZE)
    y = ran(in_a_task(pld.tensor.reduce_scatter, ranks, SIZE, ranks), x)
    for rank in range(ranks):
        np.testing.assert_array_equal(y[rank, rank], x[:, rank].sum(axis=0))


def exchange(collective: str, ranks: int, rows: int, own: bool = False) -> Any:
    """A program of the host alone: stage, exchange, hand out; `own`: the call has a signal of its own."""
    part = rows * ranks

    @pl.jit
    def stage(x: pl.Tensor[[part, 16], pl.FP32], staged: pl.InOut[pld.DistributedTensor[[part, 16], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            staged = pl.store(pl.load(x, [0, 0], [part, 16]), [0, 0], staged)

    @pl.jit
    def hand_out(
        data: pld.DistributedTensor[[ranks * part, 16], pl.FP32], y: pl.Out[pl.Tensor[[ranks * part, 16], pl.FP32]]
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            y = pl.store(pl.load(data, [0, 0], [ranks * part, 16]), [0, 0], y)

    @pl.jit
    def hand_out_part(data: pld.DistributedTensor[[part, 16], pl.FP32], y: pl.Out[pl.Tensor[[part, 16], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y = pl.store(pl.load(data, [0, 0], [part, 16]), [0, 0], y)

    gathers = collective == "allgather"
    total = ranks * part if gathers else part

    @pl.jit.host
    def host(x: pl.Tensor[[ranks, part, 16], pl.FP32], y: pl.Out[pl.Tensor[[ranks, total, 16], pl.FP32]]):
        staged = pld.window(pld.alloc_window_buffer(part * 64), [part, 16], dtype=pl.FP32)
        data = pld.window(pld.alloc_window_buffer(total * 64), [total, 16], dtype=pl.FP32)
        signal = pld.window(pld.alloc_window_buffer(ranks * 4), [ranks], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            stage(x[r], staged, device=r)
        if own:
            data = (pld.all_gather if gathers else pld.all_to_all)(staged, data)
        else:
            data = getattr(pld.tensor, collective)(staged, data, signal)
        for r in pl.range(pld.world_size()):
            if gathers:
                hand_out(data, y[r], device=r)
            else:
                hand_out_part(data, y[r], device=r)
        return y

    return host


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_host_launches_collectives_as_tasks_of_their_own(ranks: int, own: bool) -> None:
    x = data_of(ranks, 4 * ranks, 16)
    y = np.zeros((ranks, ranks * 4 * ranks, 16), np.float32)
    with collecting() as runs:
        exchange("allgather", ranks, 4, own)(x, y, config=on(ranks))
    np.testing.assert_array_equal(y, np.repeat(x.reshape(1, -1, 16), ranks, axis=0))
    names = [task.kernel for run in runs for task in run.recording.tasks]
    assert names.count("__builtin_allgather") == ranks

    y = np.zeros_like(x)
    exchange("all_to_all", ranks, 4, own)(x, y, config=on(ranks))
    np.testing.assert_array_equal(y.reshape(ranks, ranks, 4, 16), x.reshape(ranks, ranks, 4, 16).swapaxes(0, 1))


@pytest.mark.parametrize("how", [1, 3, "mesh", "ring"])
def test_an_allreduce_of_the_host_needs_no_signal_and_shares_its_pieces_among_cores(how: int | str) -> None:
    cores = how if isinstance(how, int) else 1

    @pl.jit
    def stage(x: pl.Tensor[[1, 1000], pl.FP32], data: pl.InOut[pld.DistributedTensor[[1, 1000], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            data = pl.store(pl.load(x, [0, 0], [1, 1000]), [0, 0], data)

    @pl.jit
    def hand_out(data: pld.DistributedTensor[[1, 1000], pl.FP32], y: pl.Out[pl.Tensor[[1, 1000], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y = pl.store(pl.load(data, [0, 0], [1, 1000]), [0, 0], y)

    @pl.jit.host
    def host(x: pl.Tensor[[2, 1, 1000], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, 1000], pl.FP32]]):
        data = pld.window(pld.alloc_window_buffer(4000), [1, 1000], dtype=pl.FP32)
        for r in pl.range(pld.world_size()):
            stage(x[r], data, device=r)
        if isinstance(how, int):
            data = pld.tensor.allreduce(data, core_num=how)
        elif how == "ring":
            data = pld.all_reduce(data, mode="ring", nranks=2)
        else:
            data = pld.all_reduce(data)
        for r in pl.range(pld.world_size()):
            hand_out(data, y[r], device=r)
        return y

    x = data_of(2, 1, 1000)
    with collecting() as runs:
        y = ran(host, x)
    np.testing.assert_array_equal(y, np.repeat(x.sum(axis=0)[None], 2, axis=0))
    builtin = [task for run in runs for task in run.recording.tasks if task.kernel == "__builtin_allreduce"]
    assert [task.blocks for task in builtin] == [cores, cores]


def test_an_exchange_with_counts_says_how_many_rows_are_meant() -> None:
    ranks, rows = 3, 4

    @pl.jit
    def chip(
        x: pl.Tensor[[ranks * rows, 16], pl.FP32],
        send: pl.Tensor[[ranks, 1], pl.INT32],
        y: pl.Out[pl.Tensor[[ranks * rows, 16], pl.FP32]],
        got: pl.Out[pl.Tensor[[ranks, 1], pl.INT32]],
        data: pl.InOut[pld.DistributedTensor[[ranks * rows, 16], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
        counts: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            data = pld.tensor.all_to_all_v(x, data, signal, send, counts)
            y = pl.store(pl.load(data, [0, 0], [ranks * rows, 16]), [0, 0], y)
            for source in pl.range(ranks):
                pl.write(got, [source, 0], pl.read(counts, [source, 0]))
        return y, got

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, ranks * rows, 16], pl.FP32],
        send: pl.Tensor[[ranks, ranks, 1], pl.INT32],
        y: pl.Out[pl.Tensor[[ranks, ranks * rows, 16], pl.FP32]],
        got: pl.Out[pl.Tensor[[ranks, ranks, 1], pl.INT32]],
    ):
        data = pld.window(pld.alloc_window_buffer(ranks * rows * 64), [ranks * rows, 16], dtype=pl.FP32)
        signal = pld.window(pld.alloc_window_buffer(ranks * 4), [ranks, 1], dtype=pl.INT32)
        counts = pld.window(pld.alloc_window_buffer(ranks * 4), [ranks, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            chip(x[r], send[r], y[r], got[r], data, signal, counts, device=r)
        return y, got

    x, send = data_of(ranks, ranks * rows, 16), np.array([[1, 2, 9], [0, 4, 1], [3, -3, 3]], np.int32)[..., None]
    y, got = np.zeros_like(x), np.zeros_like(send)
    host(x, send, y, got, config=on(ranks))
    parts = x.reshape(ranks, ranks, rows, 16).swapaxes(0, 1)
    np.testing.assert_array_equal(y.reshape(parts.shape), parts)
    np.testing.assert_array_equal(got[..., 0], np.clip(send[..., 0].T, 0, rows))  # no more than a part has rows


def test_a_gather_may_give_its_core_back_and_a_copy_may_be_waited_for() -> None:
    ranks = 2
    whole = pl.Tensor[[ranks, SIZE], pl.FP32]

    @pl.jit
    def chip(
        x: pl.Tensor[[1, SIZE], pl.FP32],
        y: pl.Out[whole],
        z: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
        data: pl.InOut[pld.DistributedTensor[[ranks, SIZE], pl.FP32]],
        mine: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[ranks, 1], pl.INT32]],
    ):
        with pl.manual_scope():
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gather") as gathered:
                pld.tensor.allgather(x, data, signal, defer=True)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="use", deps=[gathered]):
                pl.store(pl.load(data, [0, 0], [ranks, SIZE]), [0, 0], y)
                session = pld.system.async_session()
                event = pld.tensor.put_async(mine, 1 - pld.rank(pld.get_comm_ctx(mine)), x, session)
                pld.system.wait_async_event(event, session)
                pld.tensor.barrier(signal)
                pl.store(pl.load(mine, [0, 0], [1, SIZE]), [0, 0], z)
        return y, z

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, 1, SIZE], pl.FP32],
        y: pl.Out[pl.Tensor[[ranks, ranks, SIZE], pl.FP32]],
        z: pl.Out[pl.Tensor[[ranks, 1, SIZE], pl.FP32]],
    ):
        data = pld.window(pld.alloc_window_buffer(ranks * SIZE * 4), [ranks, SIZE], dtype=pl.FP32)
        mine = pld.window(pld.alloc_window_buffer(SIZE * 4), [1, SIZE], dtype=pl.FP32)
        signal = pld.window(pld.alloc_window_buffer(ranks * 4), [ranks, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            chip(x[r], y[r], z[r], data, mine, signal, device=r)
        return y, z

    x = data_of(ranks, 1, SIZE)
    y, z = np.zeros((ranks, ranks, SIZE), np.float32), np.zeros_like(x)
    host(x, y, z, config=on(ranks))
    np.testing.assert_array_equal(y, np.stack([x[:, 0]] * ranks))
    np.testing.assert_array_equal(z, x[::-1])


def test_signals_for_fewer_ranks_than_there_are_are_refused() -> None:
    with pytest.raises(TileError, match="barrier of 2 ranks"):
        ran(in_a_task(pld.tensor.allreduce, 2, SIZE, 1, signals=(1, 1)), data_of(2, 1, SIZE))


@pytest.mark.parametrize("place", ["host", "chip"])
def test_ranks_meet_at_a_barrier_outside_tasks(place: str) -> None:
    """GIVEN ranks that publish WHEN they meet between two calls or two tasks THEN each finds its peer's data."""
    part: Any = pl.Tensor[[1, SIZE], pl.FP32]

    @pl.jit
    def publish(
        x: part,
        data: pl.InOut[pld.DistributedTensor[[1, SIZE], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[2], pl.INT32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="publish"):
            pl.store(pl.load(x, [0, 0], [1, SIZE]), [0, 0], data)
        return data

    @pl.jit
    def consume(
        data: pld.DistributedTensor[[1, SIZE], pl.FP32],
        y: pl.Out[part],
        signal: pl.InOut[pld.DistributedTensor[[2], pl.INT32]],
        peer: pl.Scalar[pl.INT32],
    ):
        if place == "chip":
            pld.tensor.barrier(signal)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="consume"):
            pl.store(pld.tile.remote_load(data, peer=peer, offsets=[0, 0], shape=[1, SIZE]), [0, 0], y)
        return y

    @pl.jit.host
    def host(x: pl.Tensor[[2, 1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, SIZE], pl.FP32]]):
        data = pld.window(pld.alloc_window_buffer(SIZE * 4), [1, SIZE], dtype=pl.FP32)
        signal = pld.window(pld.alloc_window_buffer(2 * 4), [2], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            publish(x[r], data, signal, device=r)
        if place == "host":
            pld.barrier(signal)
        for r in pl.range(pld.world_size()):
            consume(data, y[r], signal, 1 - r, device=r)
        return y

    x = data_of(2, 1, SIZE)
    y = np.zeros_like(x)
    host(x, y, config=on(2))
    assert np.array_equal(y, x[::-1])
