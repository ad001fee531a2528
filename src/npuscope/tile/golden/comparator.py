"""What a comparator is: called as users call theirs, and able to name the op behind each bad element.

A user's comparator is any `f(actual, expected, *, actual_outputs, expected_outputs, inputs, rtol, atol) -> (ok,
message)`. Ours are `Comparator`s: the same call, around a rule on NumPy arrays that also gets `written_by`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypedDict, Unpack

import numpy as np

from npuscope.tile.golden.arrays import Array, array_of

Verdict = tuple[bool, str]  # passed, and else what is wrong, in lines indented by four


class LastWriter(Protocol):
    """What a run must be able to tell: the op that last wrote an element of a named tensor; None if none did."""

    def last_writer(self, name: str, flat_index: int, /) -> object | None: ...


def nobody(flat_index: int) -> str:
    return ""


@dataclass(frozen=True)
class Situation:
    """What a comparator may look at besides the two tensors. `written_by`: an element's last writer, for the line."""

    rtol: float = 1e-5
    atol: float = 1e-5
    actual_outputs: Mapping[str, object] = field(default_factory=dict)
    expected_outputs: Mapping[str, object] = field(default_factory=dict)
    inputs: Mapping[str, object] = field(default_factory=dict)
    written_by: Callable[[int], str] = nobody


class Context(TypedDict, total=False):
    """The same as the keywords of a comparator."""

    rtol: float
    atol: float
    actual_outputs: Mapping[str, object]
    expected_outputs: Mapping[str, object]
    inputs: Mapping[str, object]
    written_by: Callable[[int], str]


@dataclass(frozen=True)
class Comparator:
    """A named rule."""

    name: str
    judge: Callable[[Array, Array, Situation], Verdict]

    @property
    def __name__(self) -> str:
        """As a function's, which is how a verdict is labelled."""
        return self.name

    def __call__(self, actual: object, expected: object, **context: Unpack[Context]) -> Verdict:
        return self.judge(array_of(actual), array_of(expected), Situation(**context))


def named(name: str, **parameters: object) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in parameters.items())})"


def label(flat_index: int, shape: tuple[int, ...]) -> str:
    """An element as lists name it: its flat index, and its place where the tensor has several axes."""
    place = tuple(int(x) for x in np.unravel_index(flat_index, shape)) if len(shape) > 1 else ""
    return f"[{flat_index}] {place} " if place else f"[{flat_index}] "


def listed(bad: Iterable[int], line: Callable[[int], str]) -> str:
    """The elements that are shown, one per line."""
    lines = [f"    {line(int(i))}" for i in bad]
    return f"    first {len(lines)} mismatches:\n" + "\n".join(lines)
