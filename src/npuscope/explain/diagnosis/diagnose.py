"""All families of causes asked, and ranked by what each is worth.

Two causes never claim the same time: what an odd step lost is taken off the family that made it long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from npuscope.explain.diagnosis.chain import chain
from npuscope.explain.diagnosis.cores import cores
from npuscope.explain.diagnosis.device import compute, exposed_communication, exposed_copies
from npuscope.explain.diagnosis.idle import idle
from npuscope.explain.diagnosis.known import Known
from npuscope.explain.diagnosis.ranking import less, ranked
from npuscope.explain.diagnosis.scope import outside, scope_of
from npuscope.explain.diagnosis.shape import Cause, Diagnosis
from npuscope.explain.diagnosis.steps import odd_steps
from npuscope.explain.hidden_exposed import Communication, Copies
from npuscope.explain.ledger import Scheduling
from npuscope.explain.path import CriticalPath
from npuscope.explain.repetition import Steps
from npuscope.explain.summary import graph_capture
from npuscope.explain.waits import Readiness, no_dependencies
from npuscope.explain.work import Work
from npuscope.table.formats import duration, percent


def diagnose(
    work: Work,
    ready: Readiness,
    scheduling: Scheduling,
    path: CriticalPath,
    steps: Steps,
    communication: Communication | None = None,
    copies: Copies | None = None,
) -> Diagnosis:
    """The causes of a measured run, the one worth most first."""
    if (only := _nothing_to_judge(work)) is not None:
        return Diagnosis((only,), work.wall, work.window)
    known = Known(work, ready, scheduling, path, steps, communication, copies, scope_of(work, ready))
    cut = list(outside(known))
    found = _with_odd_steps(known, list(_causes(known)))
    kept = ranked(found, work.wall)
    if kept and cut:
        kept[0] = _within(known, kept[0])
    return Diagnosis((*kept, *cut) or (_unknown(known),), work.wall, work.window)


def _nothing_to_judge(work: Work) -> Cause | None:
    if len(work.lane) == 0 or work.wall == 0:
        return Cause("unknown", "Nothing ran in this window.", 0.0)
    recording = graph_capture(work.trace)
    if recording is not None and recording.is_all:
        told = f"This capture does not tell what bounds the run: {recording}."
        return Cause("unknown", told, 0.0, remedy="Capture the run that replays the graph.")
    return None


def _causes(known: Known) -> Iterator[Cause]:
    if known.path.kind == "chain":
        yield from chain(known)
    elif known.work.on_cores:
        yield from cores(known)
    elif np.isin(known.work.units, ("stream", "link")).any():
        yield from compute(known)
        yield from idle(known)
    else:
        yield _threads(known)
    yield from exposed_communication(known)
    yield from exposed_copies(known)


def _threads(known: Known) -> Cause:
    """A capture without a device."""
    busy = known.ran.length
    share = known.share(busy)
    told = f"Some thread is at work {percent(share)} of the time"
    if share >= 0.5:
        return Cause("core", f"{told} ({duration(busy)}).", share, remedy="Look at the longest pieces of work.")
    return Cause("unknown", f"{told}; the capture has {no_dependencies(known.work.trace)} to say why.", share)


def _unknown(known: Known) -> Cause:
    told = f"Work runs {percent(known.share(known.ran.length))} of the window"
    return Cause("unknown", f"{told}; the capture has {no_dependencies(known.work.trace)} to say why not more.", 0.0)


BLAMED = {"comm": ("communication",), "copy": ("copy",), "task": ("core", "bandwidth"), "idle": ("host", "launch")}


def _with_odd_steps(known: Known, found: list[Cause]) -> list[Cause]:
    """Odd steps as a cause; what they lost is taken off the family that made them long."""
    if (odd := odd_steps(known)) is None:
        return found
    step, kind = odd
    blamed = [number for number, cause in enumerate(found) if cause.kind in BLAMED.get(kind, ())]
    if blamed:
        most = max(blamed, key=lambda number: found[number].share)
        found = [
            *found[:most],
            less(found[most], round(step.share * known.wall), known.wall, "with the long step"),
            *found[most + 1 :],
        ]
    return [*found, step]


def _within(known: Known, cause: Cause) -> Cause:
    """The verdict with what it is about, where that is less than the window."""
    told = cause.sentence[:1].lower() + cause.sentence[1:]
    return replace(cause, sentence=f"In the {duration(known.scope_ns)} of the run itself: {told}")
