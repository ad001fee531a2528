"""What the judge says of one candidate: a small answer for programs, agents and people alike.

Light on purpose: whoever asks for answers loads neither tables nor simulator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["good", "wrong", "race", "unfit", "fails", "exited", "crashed", "time", "memory"]
MEANING: dict[Verdict, str] = {
    "good": "it runs, its golden holds (or there is none: `right` is then null), it compiles, and nothing races",
    "wrong": "it runs, and its numbers are not those of its golden",
    "race": "two accesses of global memory that nothing orders: numbers by chance",
    "unfit": "it does not fit on the chip, or the chip cannot do what it says: the compiler would refuse it",
    "fails": "it raises an error before it is done",
    "exited": "it leaves before it runs a program",
    "crashed": "a signal ended its process",
    "time": "it was not done within the limit of time",
    "memory": "it took more than the limit of memory",
}
LEAST_BUDGET = 512  # bytes
SHORT = 120  # characters of a sentence that a budget cuts


@dataclass(frozen=True)
class Reason:
    """Why a candidate is not good: the rule (or "race"), the place and what to do."""

    id: str
    message: str
    file: str
    line: int
    fix: str = ""
    kernel: str = ""


@dataclass(frozen=True)
class Wrong:
    """The first tensor that differs from its golden, and the line that last wrote its first wrong element."""

    tensor: str
    told: str
    file: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Worth:
    """A finding, and what the run takes less without it, in nanoseconds: simulated again."""

    id: str
    message: str
    file: str
    line: int
    fix: str
    gain_ns: int
    kernel: str = ""


@dataclass(frozen=True)
class Time:
    """Predicted wall time; `coverage` of measured walls lie from `low_ns` to `high_ns`."""

    wall_ns: int
    low_ns: int
    high_ns: int
    coverage: float


@dataclass(frozen=True)
class KernelTold:
    """A kernel of the run: `run_ns` is the sum over its blocks, `memory` the share of each on-chip memory it fills."""

    kernel: str
    tasks: int
    blocks: int
    run_ns: int
    memory: dict[str, float]


@dataclass(frozen=True)
class Versus:
    """Against the baseline: faster, slower or undecided, how probable faster is, and what changed."""

    baseline: str
    verdict: str
    ratio: float
    low: float
    high: float
    probability_faster: float
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """One candidate. What there is not is None or empty, and left out of JSON. `right` is None where nothing was
    compared; `told` says why. `cut` names what a budget took away.
    """

    candidate: str
    verdict: Verdict
    told: str = ""
    right: bool | None = None
    wrong: Wrong | None = None
    reasons: tuple[Reason, ...] = ()
    races: tuple[Reason, ...] = ()
    time: Time | None = None
    bound: str = ""
    bound_told: str = ""
    findings: tuple[Worth, ...] = ()
    together_ns: int | None = None  # what all findings that save time save at once
    tasks: int | None = None
    blocks: int | None = None
    versus: Versus | None = None
    kernels: tuple[KernelTold, ...] = ()
    device: str = ""
    line: int | None = None  # of an error
    cpu_seconds: float | None = None
    cached: bool = False
    cut: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return self.verdict == "good"

    def as_dict(self, budget: int | None = None) -> dict[str, object]:
        """The JSON contract (docs/howto/judge.md): what there is, in at most so many bytes."""
        told = _told(self)
        if budget is None:
            return told
        cut: list[str] = []
        for name, less in CUTS:
            if _size(told) <= budget:
                break
            smaller = less(told)
            if smaller != told:
                cut.append(name)
                told = {**smaller, "cut": list(cut)}
        return told if _size(told) <= budget else _least(self, budget)


def _told(answer: Answer) -> dict[str, object]:
    """What there is: that numbers are not right is something, an answer that was not kept is nothing."""
    return {
        name: value
        for name, value in asdict(answer).items()
        if value not in (None, "", (), []) and (value is not False or name == "right")
    }


def _least(answer: Answer, budget: int) -> dict[str, object]:
    """The verdict of whom: of a long path its end."""
    least: dict[str, object] = {"candidate": answer.candidate, "verdict": answer.verdict, "cut": ["all the rest"]}
    while _size(least) > budget:
        least["candidate"] = f"…{str(least['candidate'])[_size(least) - budget + 1 :]}"
    return least


def _size(told: object) -> int:
    """In bytes as it is printed, where what is no text becomes a question mark."""
    return len(json.dumps(told, ensure_ascii=False).encode(errors="replace"))


def _without(name: str) -> Callable[[dict[str, object]], dict[str, object]]:
    return lambda told: {key: value for key, value in told.items() if key != name}


def _first(name: str, many: int) -> Callable[[dict[str, object]], dict[str, object]]:
    def less(told: dict[str, object]) -> dict[str, object]:
        held = told.get(name)
        return {**told, name: held[:many]} if isinstance(held, list | tuple) and len(held) > many else told

    return less


def _shorter(told: dict[str, object]) -> dict[str, object]:
    def short(value: object) -> object:
        if isinstance(value, str):
            return value if len(value) <= SHORT else f"{value[: SHORT - 1]}…"
        if isinstance(value, Mapping):
            return {key: short(one) for key, one in value.items()}
        return [short(one) for one in value] if isinstance(value, list | tuple) else value

    return {key: short(value) for key, value in told.items()}


CUTS: tuple[tuple[str, Callable[[dict[str, object]], dict[str, object]]], ...] = (  # the least important first
    ("kernels", _without("kernels")),
    ("findings after the second", _first("findings", 2)),
    ("races after the third", _first("races", 3)),
    ("reasons after the third", _first("reasons", 3)),
    ("findings after the first", _first("findings", 1)),
    ("bound_told", _without("bound_told")),
    ("ends of sentences", _shorter),
    ("findings", _without("findings")),
    ("races after the first", _first("races", 1)),
    ("reasons after the first", _first("reasons", 1)),
    ("device", _without("device")),
    ("versus", _without("versus")),
    ("races", _without("races")),
    ("wrong", _without("wrong")),
    ("reasons", _without("reasons")),
    ("told", _without("told")),
)
