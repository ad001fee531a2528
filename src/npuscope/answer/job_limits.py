"""What a job may use, and how one ends that gives no answer. Light: whoever asks for jobs loads nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

GIB = 1024**3
Kind = Literal["refused", "raised", "exited", "crashed", "time", "memory", "cancelled", "lost"]


class Limits(NamedTuple):
    """Of one job: wall time in seconds, and bytes beyond what the warm process that it is forked from holds."""

    seconds: float = 120.0
    bytes: int = 4 * GIB


@dataclass(frozen=True)
class Failed:
    """A job without an answer, and why in one sentence.

    refused: npuscope told the user what to mend. raised: an exception. exited: it left by itself (sys.exit). crashed:
    a signal ended it. time, memory: it went over a limit. cancelled: nobody wants it. lost: the server was ended.
    """

    kind: Kind
    told: str


@dataclass(frozen=True)
class Used:
    """What a job took: CPU time in seconds, and the most memory in bytes, with what it shared with its server."""

    cpu_seconds: float = 0.0
    peak_bytes: int = 0
