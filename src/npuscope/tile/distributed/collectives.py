"""Collectives on windows: `pld.tensor.allreduce` and its relatives, as PyPTO's kernels do them.

Inside a task they are a part of it. In a host function each is a call of its own on every rank, one task
`__builtin_NAME`. Data go in pieces of 256 elements through one tile, inside a task in pieces of 16 KiB; a full barrier
over the ranks stands where the kernels have one (before and after, for an allreduce after every piece). Signals are
zero again after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

from npuscope.ops.dtypes import INT32
from npuscope.ops.transfers import DEFER_WAIT, WAIT
from npuscope.tile.calls.scalars import read
from npuscope.tile.calls.shaping import reshape
from npuscope.tile.calls.spellings import function_of
from npuscope.tile.calls.transfer import load, store
from npuscope.tile.distributed.windows import Window, WindowBuffer, barrier, held_window, notify, put, remote_load
from npuscope.tile.enums import NotifyOp, ReduceOp
from npuscope.tile.fault import fault
from npuscope.tile.language.functions import EntryFunction
from npuscope.tile.run.arguments import Parameter
from npuscope.tile.run.regions import Spmd
from npuscope.tile.run.state import current
from npuscope.tile.values.checks import describe, flag, index, member, shown
from npuscope.tile.values.lanes import Unknown
from npuscope.tile.values.tensors import Tensor, Tile

BUILTIN = "__builtin_"  # what kernels of collectives are called
PIECE = 256  # elements that a builtin moves at a time
COMPOSITE = 16 * 1024  # bytes that a collective inside a task moves at a time
_COMBINE = {ReduceOp.Sum: "add", ReduceOp.Max: "maximum", ReduceOp.Min: "minimum", ReduceOp.Prod: "mul"}


def allreduce(
    target: object,
    signal: object = None,
    *,
    op: ReduceOp = ReduceOp.Sum,
    mode: str = "mesh",
    core_num: object = 1,
) -> object:
    """Every rank's target becomes the sum (largest, smallest, product) over the ranks."""
    combine = function_of(_COMBINE[member(op, ReduceOp, "tensor.allreduce", "op")])
    cores = int(index(core_num, "pld.tensor.allreduce", "core_num="))
    if mode not in ("mesh", "ring"):
        raise fault(f"pld.tensor.allreduce: mode={shown(mode)}", "Use mesh or ring.")
    on_host = isinstance(target, Window)
    if mode == "ring" and (cores != 1 or (on_host and op is not ReduceOp.Sum)):
        raise fault("pld.tensor.allreduce: a ring of the host sums on one core", 'Use mode="mesh".')
    run = _mesh if mode == "mesh" else _ring
    if on_host:
        if signal is None:
            signal = Window(WindowBuffer("signal", 4 * _world_size() * cores), (_world_size(), cores), INT32)
        return _on_every_rank("allreduce", partial(run, combine), (target, signal), cores=cores)
    if signal is None:
        raise fault("pld.tensor.allreduce inside a task needs a signal window")
    return run(combine, _window(target, "allreduce"), signal)


def broadcast(target: object, signal: object, *, root: object) -> object:
    """Every rank's target becomes that of the root."""

    def run(into: Tensor, ready: object) -> Tensor:
        source = int(index(root, "pld.tensor.broadcast", "root="))
        me, _ = _place(into)
        flat = _flat(into)
        barrier(ready)
        if me != source:
            for at, size in _pieces(into.size, into):
                store(remote_load(flat, source, [0, at], [1, size]), [0, at], flat)
        barrier(ready)
        return into

    return _run("broadcast", run, target, signal)


def allgather(local_data: object, target: object, signal: object, *, defer: bool = False) -> object:
    """Part r of every rank's target becomes the data of rank r. With `defer` the task gives its core back and is done
    when all parts are there.
    """
    op = DEFER_WAIT if flag(defer, "tensor.allgather", "defer=") else WAIT

    def run(mine: Tensor, into: Tensor, ready: object) -> Tensor:
        me, ranks = _place(into)
        _check_parts("allgather", into, ranks, mine.size * ranks)
        for peer in range(ranks):
            _push(mine, 0, into, me * mine.size, mine.size, peer)
        barrier(ready, op=op)
        return into

    return _run("allgather", run, local_data, target, signal, into=1)


def arrive(signal: object) -> object:
    """All ranks come here before any goes on."""
    return _run("barrier", barrier, signal)


def reduce_scatter(target: object, signal: object, *, op: ReduceOp = ReduceOp.Sum) -> object:
    """Part r of rank r's target becomes the sum over the ranks of their parts r."""
    combine = function_of(_COMBINE[member(op, ReduceOp, "tensor.reduce_scatter", "op")])

    def run(into: Tensor, ready: object) -> Tensor:
        me, ranks = _place(into)
        part = _check_parts("reduce_scatter", into, ranks, into.size)
        barrier(ready)
        _reduce(combine, _flat(into), me * part, part, [peer for peer in range(ranks) if peer != me])
        barrier(ready)
        return into

    return _run("reduce_scatter", run, target, signal)


def all_to_all(input: object, target: object, signal: object) -> object:
    """Part s of rank r's target becomes part r of rank s's input."""

    def run(mine: Tensor, into: Tensor, ready: object) -> Tensor:
        me, ranks = _place(into)
        part = _check_parts("all_to_all", into, ranks, mine.size)
        for peer in range(ranks):
            _push(mine, peer * part, into, me * part, part, peer)
        barrier(ready)
        return into

    return _run("all_to_all", run, input, target, signal, into=1)


def all_to_all_v(
    input: object, target: object, signal: object, send_counts: object, recv_counts: object, *, core_num: object = 1
) -> object:
    """`all_to_all` of so many rows: every part is sent whole, the counts say how much of it is meant."""
    cores = int(index(core_num, "pld.tensor.all_to_all_v", "core_num="))

    def run(
        mine: Tensor, into: Tensor, ready: object, send: Tensor, received: Tensor, core: int = 0, cores: int = 1
    ) -> Tensor:
        me, ranks = _place(into)
        part = _check_parts("all_to_all_v", into, ranks, mine.size)
        rows = into.shape[0] // ranks
        for peer in range(core, ranks, cores):
            count = read(send, peer)
            sent = 0 if isinstance(count, Unknown) else max(0, min(int(count), rows))
            notify(received, peer, [me, *[0] * (len(received.shape) - 1)], sent, op=NotifyOp.Set)
            _push(mine, peer * part, into, me * part, part, peer)
        barrier(ready, core)
        return into

    return _run("all_to_all_v", run, input, target, signal, send_counts, recv_counts, into=1, cores=cores)


# --- how they are done


def _mesh(combine: Callable[..., object], target: Tensor, signal: object, core: int = 0, cores: int = 1) -> Tensor:
    """Each core of a rank reads its pieces of all peers, adds them up and writes them once nobody reads any more."""
    me, ranks = _place(target)
    flat, peers = _flat(target), [peer for peer in range(ranks) if peer != me]
    barrier(signal, core)
    for number, (at, size) in enumerate(_pieces(target.size, target)):
        if number % cores == core:
            _reduce(combine, flat, at, size, peers, partial(barrier, signal, core))
    return target


def _ring(combine: Callable[..., object], target: Tensor, signal: object, *_: int) -> Tensor:
    """P - 1 rounds that add a part of the left neighbour's, P - 1 that take the finished ones over.

    The last parts are shorter, or empty, where the elements do not divide by the ranks.
    """
    me, ranks = _place(target)
    part, flat, left = -(-target.size // ranks), _flat(target), (me - 1) % ranks
    starts = [min(number * part, target.size) for number in range(ranks + 1)]
    for turn in range(ranks - 1):
        barrier(signal)
        number = (me - turn - 1) % ranks
        _reduce(combine, flat, starts[number], starts[number + 1] - starts[number], [left])
    for turn in range(ranks - 1):
        barrier(signal)
        number = (me - turn) % ranks
        first = starts[number]
        for at, size in _pieces(starts[number + 1] - first, flat):
            store(remote_load(flat, left, [0, first + at], [1, size]), [0, first + at], flat)
    barrier(signal)
    return target


def _reduce(
    combine: Callable[..., object],
    flat: Tensor,
    first: int,
    count: int,
    peers: list[int],
    before_store: Callable[[], object] = lambda: None,
) -> None:
    """A part of this rank's window combined with the peers' parts at the same place."""
    for at, size in _pieces(count, flat):
        total: object = load(flat, [0, first + at], [1, size])
        for peer in peers:
            total = combine(total, remote_load(flat, peer, [0, first + at], [1, size]))
        before_store()
        assert isinstance(total, Tile)
        store(total, [0, first + at], flat)


def _push(source: Tensor, first: int, target: Tensor, into: int, count: int, peer: int) -> None:
    from_, to = _flat(source), _flat(target)
    for at, size in _pieces(count, to):
        put(to, peer, from_, [0, into + at], [0, first + at], [1, size])


def _pieces(count: int, of: Tensor) -> Iterator[tuple[int, int]]:
    """Where each piece of so many elements begins, and how long it is."""
    block = current().block
    builtin = block is not None and block.task.kernel.startswith(BUILTIN)
    whole = PIECE if builtin else COMPOSITE // of.dtype.bytes
    return ((at, min(whole, count - at)) for at in range(0, count, whole))


def _flat(tensor: Tensor) -> Tensor:
    flat = reshape(tensor, [1, tensor.size])
    assert isinstance(flat, Tensor)
    return flat


def _place(target: Tensor) -> tuple[int, int]:
    """This rank's number among those that share a window, and how many they are."""
    held = held_window(current(), target)
    assert held is not None
    return held[1].buffer.rank_of(held[0].device), len(held[1].buffer.devices)


def _check_parts(op: str, target: Tensor, ranks: int, elements: int) -> int:
    """Elements of each rank's part."""
    if target.size != elements or elements % ranks:
        raise fault(
            f"pld.tensor.{op}: {describe(target)} holds no equal parts of {elements} elements for {ranks} ranks"
        )
    return elements // ranks


def _window(value: object, op: str) -> Tensor:
    if not isinstance(value, Tensor) or held_window(current(), value) is None:
        raise fault(f"pld.tensor.{op} works on a window, not on {describe(value)}")
    return value


# --- where they run


def _run(op: str, run: Callable[..., object], *arguments: object, into: int = 0, cores: int = 1) -> object:
    """Inside a task as a part of it; in the orchestration as a task; in a host function on every rank."""
    if isinstance(arguments[into], Window):
        return _on_every_rank(op, run, arguments, into, cores)
    for number, value in enumerate(arguments):
        if not isinstance(value, Tensor):
            raise fault(f"pld.tensor.{op} takes tensors, not {describe(value)}")
        if number == into:
            _window(value, op)
    if current().block is None:  # in the orchestration of a chip: a task of its own
        _launch(f"{BUILTIN}{op}", run, arguments, cores)
        return arguments[into]
    return run(*arguments)


def _launch(name: str, run: Callable[..., object], arguments: Sequence[object], cores: int) -> None:
    launch = Spmd(cores, sync_start=cores > 1, name_hint=name)
    launch.run(lambda core: run(*arguments, core=core, cores=cores) if cores > 1 else run(*arguments))


def with_own_signal(collective: Callable[..., object], after: int) -> Callable[..., Any]:
    """The same for host functions, with a signal window made for the call: `pld.all_gather(mine, all)`."""

    def call(*given: object, nranks: object = None, **options: object) -> object:
        ranks = _world_size()
        if nranks not in (None, ranks):
            raise fault(f"pld.{collective.__name__}: nranks={shown(nranks)} of {ranks} ranks")
        shape = (2 * ranks - 1, ranks) if options.get("mode") == "ring" else (ranks, 1)
        signal = Window(WindowBuffer("signal", 4 * prod(shape)), shape, INT32)
        return collective(*given[:after], signal, *given[after:], **options)

    return call


def _world_size() -> int:
    ranks = current().orchestration.ranks
    if ranks is None:
        raise fault("a window outside a host function or a task")
    return ranks.world_size


class Builtin(EntryFunction):
    """A collective that the host launches: an entry of one task, of which there is no source."""

    def __init__(self, op: str, run: Callable[..., object], arguments: tuple[object, ...], cores: int) -> None:
        self.name = f"{BUILTIN}{op}"
        self.options = {"auto_scope": True}
        names = [f"argument_{number}" for number in range(len(arguments))]
        vars(self)["parameters"] = tuple(Parameter(name, None, "InOut") for name in names)

        def body(**given: object) -> None:
            _launch(self.name, run, [given[name] for name in names], cores)

        vars(self)["body"] = body


def _on_every_rank(
    op: str, run: Callable[..., object], arguments: tuple[object, ...], into: int = 0, cores: int = 1
) -> object:
    ranks = current().orchestration.ranks
    if ranks is None:
        raise fault(f"pld.tensor.{op} of a window outside a host function")
    for value in arguments:
        if not isinstance(value, Window):
            raise fault(f"pld.tensor.{op} in a host function takes windows, not {describe(value)}")
    entry = Builtin(op, run, arguments, cores)
    for device in range(ranks.world_size):
        ranks.dispatch(entry, arguments, {}, device)
    return arguments[into]
