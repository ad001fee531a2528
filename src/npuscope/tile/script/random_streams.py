"""Streams of random numbers whose draws are logged: torch's on the CPU are MT19937, as NumPy has it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch

_STREAM_BLOCK = 1 << 20  # draws that are skipped at once
GENERATOR: Any = torch.Generator  # a script finds another one under this name


class Passed:
    """A stream from a state on. Where somebody was is kept, so that who goes on from there is soon there."""

    def __init__(self, state: torch.Tensor) -> None:
        self.state = state
        self._places, self._states = [0], [state]  # in order

    def after(self, draws: int) -> torch.Tensor:
        at = bisect_right(self._places, draws)
        place, state = self._places[at - 1], self._states[at - 1]
        if place == draws:
            return state
        moved = _moved_on(state, draws - place)
        self._places.insert(at, draws)
        self._states.insert(at, moved)
        return moved


@dataclass(frozen=True)
class PlaceInStream:
    """So many draws after a state of a stream."""

    stream: Stream
    since: Passed
    draws: int


class Stream:
    """The numbers of a generator, whose own state stands still while draws are logged. It then has a mark that no seed
    gives, so that a script which sets it anew, to what it was before, is seen to.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._mark = torch.empty(0, dtype=torch.uint8)
        self._since = Passed(self._mark)  # from which `_drawn` numbers were logged
        self._drawn = 0
        self.has_drawn = False  # draws were logged and not made

    def _now(self) -> torch.Tensor:
        state: torch.Tensor = GENERATOR.get_state(self._generator)
        return state

    def place(self, draws: int) -> PlaceInStream:
        """The place of a call in the stream, which then lies behind it."""
        if not self.has_drawn or not torch.equal(self._now(), self._mark):
            self._since, self._drawn, self.has_drawn = Passed(self._now()), 0, True
            self._mark = self._since.state.clone()
            self._mark.numpy()[_KEY].view(np.uint64)[...] = np.random.default_rng().integers(1 << 32, size=_WORDS)
            self._generator.set_state(self._mark)
        found = PlaceInStream(self, self._since, self._drawn)
        self._drawn += draws
        return found

    def catch_up(self) -> None:
        """Before somebody draws for real, or looks at the stream."""
        if self.has_drawn and torch.equal(self._now(), self._mark):
            self._generator.set_state(self._since.after(self._drawn))
        self.has_drawn = False

    @contextmanager
    def at(self, state: torch.Tensor) -> Iterator[None]:
        """Draws for real from there."""
        now = self._now()
        self._generator.set_state(state)
        try:
            yield
        finally:
            self._generator.set_state(now)

    def draws(self, call: Callable[[], object], count: int) -> bool:
        """Whether a call draws so many numbers."""
        now = self._now()
        with self.at(now):
            call()
            return torch.equal(self._now(), _moved_on(now, count))


class LazyGenerator(torch.Generator):
    """A script's own generator. Calls of torch see another object for the same one, by its address in memory."""

    def __init__(self, *_: object, **__: object) -> None:
        self.stream = Stream(self)
        if self.device.type == "cpu":
            _streams[_address(self)] = self.stream

    def get_state(self) -> torch.Tensor:
        self.stream.catch_up()
        return super().get_state()

    def clone_state(self) -> torch.Generator:
        return LazyGenerator(self.device).set_state(self.get_state())


def _address(generator: Any) -> int:
    return int(generator._cdata)


DEFAULT = Stream(torch.default_generator)
_streams: WeakValueDictionary[int, Stream] = WeakValueDictionary()
_streams[_address(torch.default_generator)] = DEFAULT


def stream_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stream | None:
    """That a call draws from; None where it is not known."""
    generator = kwargs.get("generator") or next((one for one in args if isinstance(one, GENERATOR)), None)
    return DEFAULT if generator is None else _streams.get(_address(generator))


# A state: a seed (8 bytes), how many numbers are left (4), whether it was seeded (4), the next (8), words of 8.
_WORDS = 624
_KEY = slice(24, 24 + _WORDS * 8)


def _moved_on(state: torch.Tensor, draws: int) -> torch.Tensor:
    """The stream after so many draws."""
    if not draws:
        return state
    moved = state.clone()
    memory = moved.numpy()
    left = memory[8:12].view(np.int32)
    words = memory[_KEY].view(np.uint64)
    stream = np.random.MT19937()
    stream.state = {"bit_generator": "MT19937", "state": {"key": words.astype(np.uint32), "pos": 625 - int(left[0])}}
    while draws:
        block = min(draws, _STREAM_BLOCK)
        stream.random_raw(block)
        draws -= block
    after: Any = stream.state["state"]
    words[...] = after["key"]
    left[0] = 625 - after["pos"]
    memory[16:24].view(np.uint64)[0] = after["pos"]
    return moved
