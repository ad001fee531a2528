"""What a run suffers from: a short ranked list of causes, the same for measured and for simulated runs.

A cause has its evidence, what mending it is worth, what to do and where on the timeline it shows. The first is the
verdict. Whoever shows a diagnosis shows these objects: nothing outside this folder decides what bounds a run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

KINDS = {
    "core": "cores are full: only faster kernels, or fewer, help",
    "bandwidth": "cores are full, and mostly move data",
    "communication": "communication that no compute hides",
    "copy": "copies that neither compute nor communication hides",
    "dispatch": "tasks that could run wait for the scheduler",
    "dependency": "tasks wait for one another while cores are free",
    "gap": "cores or the device stand still for a moment between one piece of work and the next",
    "width": "cores have nothing to do before their first task, after their last, or at all",
    "tail": "the last tasks leave cores idle",
    "launch": "the host launches kernels more slowly than the device runs them",
    "host": "the host stands still, or does something else, and the device with it",
    "step": "some steps take much longer than the others",
    "rank": "ranks wait for one that comes late",
    "unrecorded": "work that was launched waits although nothing recorded runs",
    "outside": "idle time that belongs to no pass: a stray kernel stretches the window",
    "unknown": "the capture does not tell",
}


class Span(NamedTuple):
    """A stretch of the timeline that shows a cause, in nanoseconds; `lane` is None where it is of all lanes."""

    start: int
    end: int
    lane: int | None = None


@dataclass(frozen=True)
class Gain:
    """What mending a cause is worth: nanoseconds off the wall, the likely value and its bounds."""

    ns: int
    low_ns: int
    high_ns: int


@dataclass(frozen=True)
class Together:
    """What mending all at once is worth that was priced alone, of so many findings of `check`."""

    findings: int
    gain: Gain


@dataclass(frozen=True)
class Cause:
    """One reason why the run took as long as it did.

    `kind` is one of KINDS; `share` of the wall that it accounts for; `confidence` is sure, likely or a guess.
    """

    kind: str
    sentence: str
    share: float
    evidence: tuple[str, ...] = ()
    gain: Gain | None = None
    where: tuple[Span, ...] = ()
    remedy: str = ""
    confidence: str = "sure"

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Diagnosis:
    """The causes of one run, the weightiest first, over one window with one wall time."""

    causes: tuple[Cause, ...]
    wall_ns: int
    window: tuple[int, int]
    together: Together | None = None

    @property
    def verdict(self) -> Cause:
        return self.causes[0]

    @property
    def bound(self) -> str:
        """The kind of the first cause."""
        return self.verdict.kind

    def as_dict(self) -> dict[str, object]:
        """The part of every JSON output that diagnoses (docs/reference/json.md)."""
        return {
            "verdict": self.verdict.sentence,
            "bound": self.bound,
            "wall_ns": self.wall_ns,
            "window": list(self.window),
            "causes": [asdict(cause) | {"where": [list(span) for span in cause.where]} for cause in self.causes],
            "together": None if self.together is None else asdict(self.together),
        }
