"""What a rule and a finding are.

A rule is declared in its family in `rules/`; lying there makes it run, documented and selectable. A finding is one
thing to change: its place, what it wastes, the changed line, and what the run takes without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, cast

from npuscope.base.frozen import dataclass

if TYPE_CHECKING:
    from npuscope.lower.program import Program
    from npuscope.tile.record.model import Site

Severity = Literal["error", "warning", "hint"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "hint")  # the worst first
About = Literal["chip", "compiler", "performance", "quality"]
Without = Literal["less", "hidden", "gone", "blocks", "one task", "room", "early", "implied", "joined"]
"""What becomes of a program without a finding, beside less of what it wastes:

less      nothing else: bytes and FLOPs that are not there, tasks that are submitted in no time
hidden    its bytes are moved as before, while others are multiplied
gone      its tasks do nothing that is needed
blocks    its tasks are blocks of fewer launches
one task  its tasks of a turn are one, whose blocks do the work of all
room      the runtime's rings are never full
early     the consumers of its tasks may be staged before those are done
implied   its tasks wait only for whom no other of their producers waits for
joined    its tasks wait for the last of each launch that they wait for
"""
ONLY_IF_IT_SAVES: tuple[Without, ...] = ("room", "early")  # findings that a simulation must confirm


@dataclass(frozen=True)
class Section:
    """Lines `first` to `last` of a file; (0, 0) where the source is not at hand."""

    file: str
    title: str
    first: int = 0
    last: int = 0

    def has(self, file: str, line: int) -> bool:
        return self.file == file and self.first <= line <= self.last


NOWHERE = Section("", "")


@dataclass(frozen=True, slots=True)
class Waste:
    """What a finding costs over the whole run: GM traffic, cube work, dispatches that need not be, and tasks that wait
    for nothing.
    """

    bytes: int = 0
    flops: int = 0
    tasks: int = 0
    waits: int = 0

    def __add__(self, other: Waste) -> Waste:
        return Waste(
            self.bytes + other.bytes, self.flops + other.flops, self.tasks + other.tasks, self.waits + other.waits
        )

    def __bool__(self) -> bool:
        return bool(self.bytes or self.flops or self.tasks or self.waits)


@dataclass(frozen=True, slots=True)
class Price:
    """The wall of the program simulated without a finding, and what that saves, below 0 where it takes longer.

    Both are None where it cannot be simulated. `how` says what was changed, or why nothing could be. `tried`: "tried"
    where the program was rewritten by a fix and simulated, "not tried: …" where no fix could rewrite it, "not offered:
    …" where it would not work with the fix, "" where nobody asked: then what is wasted was taken out of the simulation.
    """

    how: str
    wall_ns: int | None = None
    saves_ns: int | None = None
    tried: str = ""


TRIED = "tried"


class TrialPrice(NamedTuple):
    """What trying fixes said of the finding of a rule at a line: what it gave, or why it was not tried, which leaves
    what it was estimated at. No price: mended it would cost time, so it is no finding."""

    id: str
    file: str
    line: int
    price: Price | None


@dataclass(frozen=True, slots=True)
class Finding:
    """`id` is the rule's, stable over versions; `change` is the line as it should be, where a line can say it.

    `section` and `seconds` are known when all findings of a program are: the part of the source that it belongs to, and
    by the chip's peak rates what it costs, which ranks and is never shown. `price` needs a simulation.
    """

    id: str
    severity: Severity
    file: str
    line: int
    message: str
    remedy: str
    kernel: str = ""
    function: str = ""
    change: str = ""
    waste: Waste = Waste()
    count: int = 1  # times met: loop iterations, layers, tasks
    also: tuple[tuple[str, int], ...] = ()  # other places that belong to it: file, line
    without: Without = "less"
    section: Section = NOWHERE
    seconds: float = 0.0
    price: Price | None = None

    @property
    def saves_ns(self) -> int | None:
        """What the program takes less without it; None where that was not tried."""
        return None if self.price is None else self.price.saves_ns

    @property
    def was_tried(self) -> bool:
        """Whether what it saves is what a fix gave, not an estimate."""
        return self.price is not None and self.price.tried == TRIED

    @property
    def crosses(self) -> bool:
        """Whether it lies in several sections."""
        return self.section.first > 0 and any(not self.section.has(*place) for place in self.also)


def with_trials(findings: Iterable[Finding], trials: Iterable[TrialPrice]) -> tuple[Finding, ...]:
    """Findings worth what their fixes gave, the most first; those that would cost time are left out."""
    known = {(one.id, one.file, one.line): one.price for one in trials}
    found: list[Finding] = []
    for finding in findings:
        key = (finding.id, finding.file, finding.line)
        price = known.get(key, finding.price)
        if price is None and key in known:
            continue
        if price is not None and price.tried != TRIED:  # what it was estimated at, and why it was not tried
            price = replace(finding.price or price, tried=price.tried)
        found.append(replace(finding, price=price))
    return tuple(sorted(found, key=lambda one: -max(one.saves_ns or 0, 0)))


class Example(NamedTuple):
    """The shortest Python that breaks a rule and the same mended; `costs`: what is counted as waste."""

    before: str
    after: str
    costs: str = ""


@dataclass(frozen=True)
class Rule:
    """`check` yields a finding per place and launch; the runner adds up equal ones, drops ignored ones and ranks.

    `about` says under which heading of a review a finding belongs; "chip" is what keeps a program from running at all,
    "compiler" what the compiler would refuse as far as npuscope knows it: a program goes on with a warning.
    `without`: how its findings are taken away where they are priced.
    """

    id: str
    severity: Severity
    title: str
    why: str
    check: Callable[[Program], Iterable[Finding]]
    example: Example
    about: About = "performance"
    without: Without = "less"
    on_request: bool = False  # runs only where it is named

    def at(
        self,
        site: Site,
        message: str,
        remedy: str,
        kernel: str = "",
        severity: Severity | None = None,
        change: str = "",
        waste: Waste = Waste(),
        count: int = 1,
        also: Iterable[Site] = (),
    ) -> Finding:
        """A finding of this rule at a place; `severity` where it is another than the rule's."""
        return Finding(
            id=self.id,
            severity=severity or self.severity,
            file=site.file,
            line=site.line,
            message=message,
            remedy=remedy,
            kernel=kernel,
            function=site.function,
            change=change,
            waste=waste,
            count=count,
            also=tuple((place.file, place.line) for place in also),
            without=self.without,
        )


def rule(
    id: str,
    severity: Severity,
    title: str,
    why: str,
    example: Example,
    about: About = "performance",
    without: Without = "less",
    on_request: bool = False,
) -> Callable[[Callable[[Program], Iterable[Finding]]], Rule]:
    """Makes a rule of the function that it stands above."""
    return lambda check: Rule(id, severity, title, why, check, example, about, without, on_request)


Result = TypeVar("Result")


def once(function: Callable[[Program], Result]) -> Callable[[Program], Result]:
    """The function, which is not run again for a program that it has seen: the result is kept with the program."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def remembered(program: Program) -> Result:
        results = program.__dict__
        if name not in results:
            results[name] = function(program)
        return cast(Result, results[name])

    return remembered
