"""What came of a request: one answer for programs, agents and people alike. Light: whoever passes answers on loads
neither tables nor simulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict, replace
from typing import Any, Literal

from npuscope.base.errors import BadInput
from npuscope.base.frozen import dataclass
from npuscope.base.interval import Gain, Interval
from npuscope.check.rule import Finding

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
MOST_FINDINGS = 3  # that an answer lists
SENTENCES = "ends of sentences"
CUTS = (  # what a budget takes away and how much of it stays, the least important first
    ("kernels", 0), ("findings", 2), ("races", 3), ("reasons", 3), ("findings", 1), ("bound_message", 0), ("worth", 0),
    (SENTENCES, 1), ("findings", 0), ("races", 1), ("reasons", 1), ("device", 0), ("versus", 0), ("races", 0),
    ("wrong", 0), ("reasons", 0), ("message", 0), ("time", 0), ("together_ns", 0), ("cpu_seconds", 0),
)  # fmt: skip


@dataclass(frozen=True)
class Wrong:
    """The first tensor that differs from its golden, and the line that last wrote its first wrong element."""

    tensor: str
    message: str
    file: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Trouble:
    """Why a program has no run: one sentence, and its place in the program where it has one."""

    message: str
    file: str = ""
    line: int = 0
    remedy: str = ""
    more: tuple[tuple[str, str, int], ...] = ()  # further sentences with their places

    def as_dict(self) -> dict[str, object]:
        more = [{"message": message, "file": file, "line": line} for message, file, line in self.more]
        return {"message": self.message, "file": self.file, "line": self.line, "remedy": self.remedy, "more": more}


@dataclass(frozen=True)
class KernelShare:
    """A kernel of the run: `run_ns` is the sum over its blocks, `memory` the share of each on-chip memory it fills."""

    kernel: str
    tasks: int
    blocks: int
    run_ns: int
    memory: dict[str, float]


@dataclass(frozen=True)
class Fullest:
    """The fullest on-chip memory of a program; above 1 a comment lets it through."""

    function: str
    space: str
    share: float


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
    """One candidate. What there is not is None or empty. `right` is None where nothing was compared; `message` says why
    it is not good, or what a reader of its time should know. `findings` are priced, the one that saves most first.
    """

    candidate: str
    verdict: Verdict
    message: str = ""
    right: bool | None = None
    wrong: Wrong | None = None
    errors: tuple[Finding, ...] = ()
    races: tuple[Finding, ...] = ()
    time: Interval | None = None  # the wall in nanoseconds
    bound: str = ""  # the kind of the first cause
    bound_message: str = ""  # its sentence
    worth: Gain | None = None  # what mending it is worth
    regime: str = ""  # by which intervals are learnt (time/bound.py)
    findings: tuple[Finding, ...] = ()
    together_ns: int | None = None  # what all findings that save time save at once
    tasks: int | None = None
    blocks: int | None = None
    memory: Fullest | None = None
    kernels: tuple[KernelShare, ...] = ()
    versus: Versus | None = None
    device: str = ""
    line: int | None = None  # of an error
    key: str = ""  # of its request
    cpu_seconds: float | None = None

    @property
    def is_good(self) -> bool:
        return self.verdict == "good"

    @property
    def wall_ns(self) -> int | None:
        return None if self.time is None else round(self.time.value)

    @property
    def error(self) -> str | None:
        """Why it has no time."""
        if self.time is not None:
            return None
        if not self.errors:
            return self.message
        first, more = self.errors[0], len(self.errors) - 1
        what = f"{first.message} (and {more} more)" if more else first.message
        return str(BadInput(what, path=first.file, line=first.line, remedy=first.remedy))

    def with_message(self, more: str) -> Answer:
        return replace(self, message="; ".join(filter(None, [self.message, more])))

    def to_dict(self, budget: int | None = None) -> dict[str, object]:
        """The JSON contract of the judge (docs/howto/judge.md): what there is, in at most so many bytes."""
        time = self.time
        whole: dict[str, Any] = {
            "candidate": self.candidate,
            "verdict": self.verdict,
            "message": self.message,
            "right": self.right,
            "wrong": self.wrong and asdict(self.wrong),
            "reasons": [_place(one) for one in self.errors],
            "races": [_place(one) for one in self.races],
            "time": time
            and {
                "wall_ns": self.wall_ns,
                "low_ns": round(time.low),
                "high_ns": round(time.high),
                "coverage": time.coverage,
            },
            "bound": self.bound,
            "bound_message": self.bound_message,
            "worth": self.worth and asdict(self.worth),
            "findings": [
                {**_place(one), "gain_ns": one.saves_ns}
                for one in self.findings[:MOST_FINDINGS]
                if (one.saves_ns or 0) > 0
            ],
            "together_ns": self.together_ns,
            "tasks": self.tasks,
            "blocks": self.blocks,
            "versus": self.versus and asdict(self.versus),
            "kernels": [asdict(one) for one in self.kernels],
            "device": self.device,
            "line": self.line,
            "cpu_seconds": self.cpu_seconds,
        }
        there = {name: value for name, value in whole.items() if value not in (None, "", (), [])}
        if budget is None or size_of(there) <= budget:
            return there
        return _cut(there, budget)


def _place(finding: Finding) -> dict[str, object]:
    """What of a finding an answer says."""
    return {name: getattr(finding, name) for name in ("id", "message", "file", "line", "remedy", "kernel")}


def _cut(whole: dict[str, Any], budget: int) -> dict[str, object]:
    """The least important goes first, and `cut` says so; last of all the beginning of a long path."""
    smaller, cut = dict(whole), dict[str, str]()
    for name, most in CUTS:
        if size_of({**smaller, "cut": cut}) <= budget:
            break
        if name == SENTENCES:
            smaller, cut[name] = _shorter(smaller), f"at most {SHORT} characters"
        elif most == 0 and name in smaller:
            del smaller[name]
            cut[name] = "left out"
        elif len(smaller.get(name, ())) > most:
            smaller[name], cut[name] = smaller[name][:most], f"{most} of {len(whole[name])}"
    while (over := size_of({**smaller, "cut": cut}) - budget) > 0:
        smaller["candidate"] = f"…{smaller['candidate'][over + 1 :]}"
    return {**smaller, "cut": cut}


def within(whole: dict[str, Any], budget: int | None) -> dict[str, Any]:
    """The same in at most so many bytes: the longest list is halved until it fits, then sentences end early, then lists
    and objects are emptied, the largest first. `cut` has the place of each and how many entries are left."""
    if budget is None or size_of(whole) <= budget:
        return whole
    smaller, cut = deepcopy(whole), dict[str, str]()
    lengths = {place: len(items) for place, items in _lists(smaller, "")}
    while size_of({**smaller, "cut": cut}) > budget:
        found = [(place, items) for place, items in _lists(smaller, "") if items]
        longer = [one for one in found if len(one[1]) > 1]
        if not longer and SENTENCES not in cut:
            smaller, cut[SENTENCES] = _shorter(smaller), f"at most {SHORT} characters"
        elif found:
            place, items = max(longer or found, key=lambda one: size_of(one[1]))
            del items[len(items) // 2 :]
            cut[place] = f"{len(items)} of {lengths.get(place, len(items))}"
        elif objects := {name: one for name, one in smaller.items() if isinstance(one, dict) and one}:
            name = max(objects, key=lambda name: size_of(objects[name]))
            smaller[name], cut[name] = {}, "left out"
        else:
            break
    return {**smaller, "cut": cut}


def size_of(data: object) -> int:
    """In bytes as it is printed, where what is no text becomes a question mark."""
    return len(json.dumps(data, ensure_ascii=False, default=str).encode(errors="replace"))


def _lists(value: object, place: str) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _lists(one, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list):
        yield place, value
        for one in value:
            yield from _lists(one, place + "[]")


def _shorter(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= SHORT else f"{value[: SHORT - 1]}…"
    if isinstance(value, dict):
        return {name: _shorter(one) for name, one in value.items()}
    return [_shorter(one) for one in value] if isinstance(value, list) else value
