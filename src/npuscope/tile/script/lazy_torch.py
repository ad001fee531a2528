"""Large torch tensors that a script makes, made only when somebody asks for their elements.

A script makes its inputs before it runs its program: gigabytes of random weights, quantised. Who wants to know what the
program does needs few of them, those that steer it. So, inside `lazily`, a torch call that makes a large tensor, or
that works on one, is written down in a *log* and gives a `LazyTensor`, which knows its shape and type. Elements are
asked for by `.item()`, `.numpy()`, a branch: then the calls of the log that lead to them are made, in their order, and
no others.

Why that gives the same numbers:
- A call sees memory as it was when the script made it. What lies where is known from torch itself: each call is made
  on tensors without elements first (device `meta`), whose storages say which views share memory. A call that writes to
  memory is only made after all before it that read there. A small tensor that is read is copied when the call is
  logged.
- Random numbers come from a stream: torch's own, or that of a generator that the script made. A call that draws is
  logged with its place in its stream, which is moved on by as many draws when somebody draws for real.
Whatever torch cannot do without elements is done at once, on real ones.

Imported when a script imports torch, and not before. The streams are in `random_streams.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from types import ModuleType
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from npuscope.base import progress
from npuscope.tile.script.random_streams import DEFAULT, GENERATOR, LazyGenerator, PlaceInStream, Stream, stream_of

LARGE = 1 << 15  # elements: a tensor of fewer is made at once
_TO_FILL = 1 << 12  # the same of an empty one: what fills it may be reduced from large ones (scales of weights)
_SETTLED = 1 << 22  # bytes: memory of fewer, once it was made, is worked on at once
_FILLED = 64  # writes of real or of few elements to some memory, from which on it is filled at once
_aten: Any = torch.ops.aten
Call: TypeAlias = Any  # an overload of an op of torch


def _leaves(value: Any) -> list[Any]:
    """What tuples, lists and dicts hold at last: as torch's pytree, which takes several times as long."""
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is not tuple and kind is not list:
        return list(value) if isinstance(value, tuple) else [value]  # torch's tuples with names
    found: list[Any] = []
    for one in value:
        if isinstance(one, tuple | list | dict):
            found += _leaves(one)
        else:
            found.append(one)
    return found


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The same with other leaves."""
    kind = type(value)
    if kind is dict:
        return {key: _mapped(function, one) for key, one in value.items()}
    if kind is tuple or kind is list:
        return kind([_mapped(function, one) for one in value])
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return kind([function(one) for one in value])  # type: ignore[call-arg]
    return function(value)


class _Storage:
    """Memory of lazy tensors; `real` once it was made, `shared` where others may write to it behind torch's back."""

    def __init__(self, meta: torch.UntypedStorage) -> None:
        self.meta, self.shared = meta, False
        self.real: torch.UntypedStorage | None = None
        self.fills = 0  # writes that need nothing lazy, or little
        self.calls: list[_Logged] = []  # not made yet, that read or write it, in their order


@dataclass(frozen=True)
class _View:
    """A lazy tensor as an argument of a logged call: where it lay in its storage."""

    storage: _Storage
    meta: torch.Tensor

    def real(self) -> torch.Tensor:
        meta = self.meta
        made = torch.empty(0, dtype=meta.dtype)
        assert self.storage.real is not None
        return made.set_(self.storage.real, meta.storage_offset(), meta.size(), meta.stride())


@dataclass(frozen=True, eq=False)
class _Logged:
    """A call that was not made yet; `place` in a stream of random numbers where it draws."""

    number: int
    call: Call
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[_View]  # that lie in memory of their own
    reads: frozenset[_Storage]
    changes: frozenset[_Storage]  # memory that was there before
    place: PlaceInStream | None

    writes: frozenset[_Storage]

    def make(self) -> None:
        args, kwargs = _mapped(_real_view, (self.args, self.kwargs))
        if self.place is None:
            made = self.call(*args, **kwargs)
        else:
            with self.place.stream.at(self.place.since.after(self.place.draws)):
                made = self.call(*args, **kwargs)
        tensors = [one for one in _leaves(made) if isinstance(one, torch.Tensor)]
        for view in self.results:
            one = next(t for t in tensors if t.shape == view.meta.shape and t.dtype == view.meta.dtype)
            tensors = [t for t in tensors if t is not one]
            if one.stride() != view.meta.stride() or one.storage_offset() != view.meta.storage_offset():
                laid = torch.empty_strided(view.meta.shape, view.meta.stride(), dtype=view.meta.dtype)
                one = laid.copy_(one)
            view.storage.real = one.untyped_storage()


class _Log:
    """The calls that were not made yet, each held by the memory that it touches."""

    def __init__(self) -> None:
        self._number = 0  # of calls
        self.storages: WeakValueDictionary[int, _Storage] = WeakValueDictionary()

    def storage_of(self, meta: torch.Tensor) -> _Storage:
        memory = meta.untyped_storage()
        found = self.storages.get(memory._cdata)
        if found is None:
            found = self.storages[memory._cdata] = _Storage(memory)
        return found

    def make(self, wanted: set[_Storage], shared: bool = False) -> None:
        """Makes the calls that lead to some memory; `shared`: also those that still read it, for it may be changed."""
        found: dict[int, _Logged] = {}
        waiting: list[int] = []
        looked: dict[_Storage, bool] = {}  # whether at all its calls: numbers fall, so a second look finds no more

        def before(number: int, storage: _Storage, changed: bool) -> None:
            if looked.get(storage, False) or (storage in looked and not changed):
                return
            looked[storage] = changed
            for one in storage.calls:
                if one.number < number and one.number not in found and (changed or storage in one.writes):
                    found[one.number] = one
                    heappush(waiting, -one.number)

        for storage in wanted:
            before(self._number + 1, storage, shared)
        while waiting:
            one = found[-heappop(waiting)]
            for storage in one.reads | one.writes:
                before(one.number, storage, storage in one.changes)
        chosen = [found[number] for number in sorted(found, reverse=True)]
        for storage in looked:
            storage.calls = [one for one in storage.calls if one.number not in found]
        found.clear()
        with _disable_current_modes(), torch.no_grad():
            calls = len(chosen)
            while chosen:  # what a call made is freed when nobody needs it any more
                progress.report("making inputs that steer", calls - len(chosen), calls)
                chosen.pop().make()

    def add(
        self,
        call: Call,
        given: tuple[tuple[Any, ...], dict[str, Any]],
        results: list[_View],
        reads: frozenset[_Storage],
        changes: frozenset[_Storage],
        place: PlaceInStream | None,
    ) -> None:
        self._number += 1
        writes = changes | {view.storage for view in results}
        one = _Logged(self._number, call, *given, results, reads, changes, place, writes)
        for storage in reads | writes:
            storage.calls.append(one)


_log = _Log()


class LazyTensor(torch.Tensor):
    """A tensor without elements yet."""

    lazy_meta: torch.Tensor
    lazy_storage: _Storage

    @staticmethod
    def of(meta: torch.Tensor) -> LazyTensor:
        made: LazyTensor = torch.Tensor._make_wrapper_subclass(
            LazyTensor,
            meta.size(),
            strides=meta.stride(),
            storage_offset=meta.storage_offset(),
            dtype=meta.dtype,
            device=torch.device("cpu"),
        )
        made.lazy_meta, made.lazy_storage = meta, _log.storage_of(meta)
        return made

    def made(self, shared: bool = False) -> torch.Tensor:
        """The tensor with its elements, which are made now; `shared`: whoever gets it may change them."""
        storage = self.lazy_storage
        if storage.calls:
            _log.make({storage}, shared)
        assert storage.real is not None
        if shared or (not storage.calls and storage.real.nbytes() < _SETTLED):
            storage.shared = True
        with _disable_current_modes():
            return _View(self.lazy_storage, self.lazy_meta).real()

    def made_row(self, number: int) -> torch.Tensor:
        """One row of the outermost axis with its elements, only to be read. No others are made of rows put together."""
        with _disable_current_modes(), torch.no_grad():
            return _row(_View(self.lazy_storage, self.lazy_meta), number)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "share_memory_":  # with other processes; ranks are none
            return args[0]
        if name in _LOOKS_AT_ELEMENTS:
            return func(*_mapped(_real, args), **_mapped(_real, kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Call, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _called(func, args, kwargs or {})


def _row(view: _View, number: int) -> torch.Tensor:
    """A row of a tensor as it is now; of a stack and of a copy that of what it is made of, where that is the same."""
    storage, meta = view.storage, view.meta
    writers = [one for one in storage.calls if storage in one.writes]
    if len(writers) == 1 and not writers[0].changes and _same_layout(writers[0].results[0].meta, meta):
        one = writers[0]
        source = one.args[0]
        if one.call is _aten.stack.default and one.args[1:] in ((), (0,)) and not one.kwargs:
            if not isinstance(source[number], _View) or _is_as(source[number], one.number):
                return _made(source[number])
        elif one.call is _aten.clone.default and isinstance(source, _View) and _is_as(source, one.number):
            return _row(source, number)
    if writers:
        _log.make({storage})
    return _View(storage, meta[number]).real()


def _same_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.shape, one.stride(), one.storage_offset()) == (other.shape, other.stride(), other.storage_offset())


def _is_as(view: _View, number: int) -> bool:
    """Whether memory is what a call of this number saw."""
    return not any(one.number > number and view.storage in one.writes for one in view.storage.calls)


def _made(value: torch.Tensor | _View) -> torch.Tensor:
    if not isinstance(value, _View):
        return value
    if any(value.storage in one.writes for one in value.storage.calls):
        _log.make({value.storage})
    return value.real()


# What reaches into memory without going through an op of torch.
_LOOKS_AT_ELEMENTS = {
    *("numpy", "tolist", "__array__", "data_ptr", "storage", "untyped_storage", "__reduce_ex__", "__deepcopy__"),
    *("__repr__", "__format__", "__str__", "__dlpack__", "__contains__", "set_", "resize_", "save", "is_shared"),
}


def _real(value: Any) -> Any:
    return value.made(shared=True) if isinstance(value, LazyTensor) else value


def _real_view(value: Any) -> Any:
    return value.real() if isinstance(value, _View) else value


class _Lazily(TorchDispatchMode):  # type: ignore[no-untyped-call]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # who skips it imports it, which takes seconds

    def __torch_dispatch__(
        self, func: Call, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if LazyTensor not in types and func.overloadpacket not in _BIRTHS and not _draws(func):
            return func(*args, **(kwargs or {}))  # nearly all calls of a script that fills tables
        return _called(func, args, kwargs or {}, births=True)


# --- calls


def _called(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], births: bool = False) -> Any:
    """A call of torch, logged or made."""
    flat = _leaves((args, kwargs))
    lazy = [one for one in flat if isinstance(one, LazyTensor)]
    if any(one.lazy_storage.shared for one in lazy):
        args, kwargs = _mapped(_unless_lazy, (args, kwargs))
        lazy = [one for one in lazy if not one.lazy_storage.shared]
    if not lazy and not (births and _makes_large(call, args, kwargs)):
        return _at_once(call, args, kwargs)
    return _logged(call, args, kwargs)


def _unless_lazy(value: Any) -> Any:
    return value.made() if isinstance(value, LazyTensor) and value.lazy_storage.shared else value


@cache
def _draws(call: Call) -> bool:
    return torch.Tag.nondeterministic_seeded in call.tags


def _at_once(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Makes a call on real tensors; memory of a lazy one that it writes to is made whole before."""
    if _draws(call) and (stream := stream_of(args, kwargs)) is not None:
        stream.catch_up()
    flat = _leaves((args, kwargs))
    lazy = [one for one in flat if isinstance(one, LazyTensor)]
    if not lazy:
        return call(*args, **kwargs)
    changed = {id(one) for one in _changed(call, args, kwargs)}
    for one in lazy:
        one.made(shared=id(one) in changed)
    plain_args, plain_kwargs = _mapped(lambda x: x.made() if isinstance(x, LazyTensor) else x, (args, kwargs))
    with _disable_current_modes():
        return call(*plain_args, **plain_kwargs)


def _changed(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call writes to."""
    found: list[torch.Tensor] = []
    for place, argument in enumerate(call._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            found += [one for one in _leaves(given) if isinstance(one, torch.Tensor)]
    return found


_BIRTHS: dict[Any, Callable[..., int]] = {}


def _of_shape(shape: Sequence[int], *_: Any) -> int:
    return int(np.prod([int(n) for n in shape], dtype=np.int64))


for _name in ("randn", "rand", "zeros", "ones", "empty"):
    _BIRTHS[getattr(_aten, _name)] = _of_shape
_BIRTHS[_aten.full] = _of_shape
_BIRTHS[_aten.randint] = lambda *given: _of_shape(next(one for one in given if isinstance(one, list | tuple)))


def _makes_large(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    size = _BIRTHS.get(call.overloadpacket)
    stream = stream_of(args, kwargs)
    if size is None or stream is None:
        return False
    if str(kwargs.get("device") or "cpu") != "cpu" or kwargs.get("names") is not None:
        return False
    elements = size(*args)
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if not dtype.is_floating_point and dtype.itemsize > 1 and not _draws(call):
        return False  # tables of whole numbers, which programs read
    least = _TO_FILL if call.overloadpacket is _aten.empty else LARGE
    return elements >= least or (_draws(call) and stream.has_drawn)  # else the stream had to be moved on


def _logged(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Writes a call down, where torch can say what it makes without elements; else makes it."""
    changed = _changed(call, args, kwargs)
    if any(not isinstance(one, LazyTensor) for one in changed):
        return _at_once(call, args, kwargs)
    metas: dict[int, torch.Tensor] = {}  # of each argument

    def meta_of(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("meta")
        if isinstance(value, GENERATOR):
            return None
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in metas:
            metas[id(value)] = (
                value.lazy_meta
                if isinstance(value, LazyTensor)
                else torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
            )
        return metas[id(value)]

    lazy = [one for one in _leaves((args, kwargs)) if isinstance(one, LazyTensor)]
    meta_args, meta_kwargs = _mapped(meta_of, (args, kwargs))
    if not lazy:
        meta_kwargs["device"] = torch.device("meta")
    stream = stream_of(args, kwargs)
    draws: int | None = 0
    try:
        with _without_dynamo():
            made = meta_args[0] if call.overloadpacket in _FILLS else call(*meta_args, **meta_kwargs)
        if _draws(call):
            draws = None if stream is None else _drawn_by(stream, call, made, args, kwargs)
    except Exception:  # torch needs elements to say what it makes: whatever it raises then
        return _at_once(call, args, kwargs)
    if draws is None:
        return _at_once(call, args, kwargs)
    reads = frozenset(one.lazy_storage for one in lazy)
    objects = {id(metas[id(one)]): one for one in lazy}
    results: list[_View] = []

    def lazy_of(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in objects:
            return objects[id(value)]
        one = LazyTensor.of(value)
        if one.lazy_storage not in reads:
            results.append(_View(one.lazy_storage, value))
        return one

    result = _mapped(lazy_of, made)
    if not isinstance(result, torch.Tensor | tuple | list):
        return _at_once(call, args, kwargs)
    changes = frozenset(one.lazy_storage for one in changed if isinstance(one, LazyTensor))
    if results or changes:
        place = stream.place(draws) if stream is not None and draws else None
        _log.add(call, _mapped(_held, (args, kwargs)), results, reads, changes, place)
        if not results and (len(reads) == 1 or changed[0].numel() < LARGE):  # a script fills a table bit by bit
            table = next(iter(changes))
            table.fills += 1
            if table.fills > _FILLED:
                for one in lazy:
                    one.made(shared=True)
    return result


_NO_DYNAMO: Any = ModuleType("torch._dynamo")
_NO_DYNAMO.disable = lambda function, *_, **__: function


@contextmanager
def _without_dynamo() -> Iterator[None]:
    """Torch's functions without elements ask its compiler not to trace them: importing it takes a second."""
    if _NO_DYNAMO.__name__ in sys.modules:
        yield
        return
    sys.modules[_NO_DYNAMO.__name__] = torch._dynamo = _NO_DYNAMO
    try:
        yield
    finally:
        del sys.modules[_NO_DYNAMO.__name__], torch._dynamo


def _held(value: Any) -> Any:
    """An argument of a logged call: a lazy one as where it lies, another one as it is now."""
    if isinstance(value, LazyTensor):
        return _View(value.lazy_storage, value.lazy_meta)
    return value.clone() if isinstance(value, torch.Tensor) else value


_ONE_EACH: dict[tuple[Any, ...], bool] = {}  # whether a call draws one number for each element
_FILLS = {_aten.normal_, _aten.uniform_}  # in place: torch need not be asked what they make
_KNOWN_DRAWS = {_aten.randn, _aten.rand, _aten.randint, *_FILLS}


def _drawn_by(
    stream: Stream, call: Call, made: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> int | None:
    """How many numbers a call draws; None where that is not known."""
    size = made.numel()
    if size < 16 or size % 16 or call.overloadpacket not in _KNOWN_DRAWS:
        return None
    if any(isinstance(one, LazyTensor) and not one.is_contiguous() for one in args):
        return None
    small = [[64] if isinstance(x, list | tuple) else 64 if isinstance(x, LazyTensor) else x for x in args]
    key = (call, made.dtype, repr([one for one in small if not isinstance(one, GENERATOR)]))
    if key not in _ONE_EACH:  # torch is asked, with a small one: it may depend on its build and on this machine
        fresh = torch.empty(64, dtype=made.dtype)
        given = [fresh if isinstance(x, LazyTensor) else n for x, n in zip(args, small, strict=True)]
        _ONE_EACH[key] = stream.draws(lambda: call(*given, **kwargs), 64)
    return size if _ONE_EACH[key] else None


# --- entering


@contextmanager
def lazily() -> Iterator[None]:
    """Inside, large tensors are made when somebody asks for their elements."""
    state = torch.get_rng_state

    def caught_up() -> torch.Tensor:
        DEFAULT.catch_up()
        return state()

    torch.Generator = LazyGenerator
    torch.get_rng_state = torch.random.get_rng_state = caught_up
    by_index = {name: getattr(torch.Tensor, name) for name in ("__getitem__", "__setitem__")}
    for name, method in by_index.items():
        setattr(torch.Tensor, name, _of_elements(method))
    torch.Tensor.__setitem__ = _of_whole_numbers(torch.Tensor.__setitem__)
    try:
        with _Lazily():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.Generator = GENERATOR
        torch.get_rng_state = torch.random.get_rng_state = state
        for name, method in by_index.items():
            setattr(torch.Tensor, name, method)


def _of_elements(method: Callable[..., Any]) -> Callable[..., Any]:
    """Of a tensor with elements, by numbers: past the mode, which takes thrice as long as torch. Scripts fill tables of
    many thousand entries so; a call like that makes no large tensor and draws nothing.
    """

    def call(self: torch.Tensor, index: Any, *value: Any) -> Any:
        known = type(index) is int or (type(index) is tuple and _WHOLE.issuperset(map(type, index)))
        if known and type(self) is torch.Tensor and _NUMBERS.issuperset(map(type, value)):
            past = torch._C._DisableTorchDispatch()  # type: ignore[no-untyped-call]  # noqa: F841 (as long as it lives)
        return method(self, index, *value)

    return call


_WHOLE, _NUMBERS = {int}, {int, float, bool}


def _of_whole_numbers(method: Callable[..., None]) -> Callable[..., None]:
    """Element after element of one small table: past torch, which takes six times as long as its memory."""
    table: Any = None  # the one that was written to last
    memory: memoryview | None = None  # of it, once it was written to twice
    state = (0, 0)  # the same as then: torch changed nothing of it, and where it lies

    def put(self: torch.Tensor, index: Any, value: Any) -> None:
        nonlocal table, memory, state
        if self is table and type(index) is int and type(value) is int:
            now = (self._version, self.data_ptr())
            if memory is None:
                memory, state = _memory_of(self), now
            if now == state:
                try:
                    memory[index] = value
                    return
                except (IndexError, ValueError, TypeError):  # torch says what is wrong, or what else it means
                    pass
        method(self, index, value)
        table, memory = self, None

    return put


def _memory_of(table: torch.Tensor) -> memoryview:
    """The elements of a row of whole numbers; else nothing that an index is in."""
    plain = type(table) is torch.Tensor and table.dim() == 1 and table.numel() < LARGE and not table.requires_grad
    if not plain or table.dtype not in (torch.int32, torch.int64):
        return memoryview(b"")
    with _disable_current_modes():
        return memoryview(table.numpy())
