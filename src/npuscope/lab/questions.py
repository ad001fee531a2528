"""What a page asks of a run beside what its panels hold: the inside of any kind of block, and what a change would buy.

In a process of its own, as all work of the lab. A run is not kept but made again, from the same files.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

from npuscope.base.errors import NpuscopeError
from npuscope.explain.changes import Change, whatif, whatif_each
from npuscope.lab.document import as_json
from npuscope.lab.job import simulated_of
from npuscope.lab.made import Again, Replay, Trouble
from npuscope.lab.payload.inside import inside
from npuscope.lab.payload.overview import parts
from npuscope.lab.versions import text_of
from npuscope.report.gains import asked, gains
from npuscope.time.run import Simulated
from npuscope.time.whatif import replay_against, whatif_program


def looked_into(again: Again) -> bytes:
    """One kind of block of a simulated run, whatever its size, as the panel of that name has them."""
    return as_json(inside(_again(again), again.body))


def every_change(again: Again) -> bytes:
    """What every change of a program would buy, as `npuscope whatif PROGRAM` has it."""
    simulated = _again(again)
    found, diagnosis = whatif_program(simulated)
    return as_json(parts(gains(found, diagnosis)))


def replayed(order: Replay) -> bytes:
    """What a change would buy, or every change, as `npuscope whatif CAPTURE` has it."""
    trace = pickle.loads(order.trace)
    if not order.change:
        return as_json(parts(gains(whatif_each(trace)[1])))
    found = whatif(trace, change_of(order.change))
    return as_json(parts(asked(found, replay_against(found, order.bound) if order.bound else None)))


def change_of(told: Mapping[str, object]) -> Change:
    """A change as pages tell it: kernels by their names, not by patterns."""
    kernels = [re.escape(one) for one in _words(told.get("kernels", []))]
    factor = told.get("factor", 1)
    if not isinstance(factor, int | float) or isinstance(factor, bool):
        raise NpuscopeError("a factor is a number")
    match told.get("what"), kernels:
        case "scale", [kernel]:
            return Change(scale={kernel: float(factor)})
        case "remove", [kernel]:
            return Change(remove=[kernel])
        case "halve", [kernel]:
            return Change(halve=[kernel])
        case "merge", [first, second]:
            return Change(merge=[(first, second)])
        case "scheduler", []:
            return Change(dispatch_cost=float(factor))
        case "cores", [] if factor == int(factor):
            return Change(cores={str(told.get("unit", "")): int(factor)})
    raise NpuscopeError("this is no change that can be tried")


def _words(told: object) -> list[str]:
    if not isinstance(told, list) or not all(isinstance(one, str) for one in told):
        raise NpuscopeError("kernels are a list of names")
    return told


def _again(again: Again) -> Simulated:
    differ = [Path(file).name for file, text in again.sources.items() if not _holds(file, text)]
    if differ:
        told = f"{', '.join(differ)} has changed since this version, whose run is not kept"
        raise NpuscopeError(told, remedy="Ask this of the newest version, or write the version's source back.")
    simulated = simulated_of(again.job)
    if isinstance(simulated, Trouble):
        raise NpuscopeError(simulated.told)
    return simulated


def _holds(file: str, text: str) -> bool:
    try:
        return text_of(file) == text
    except OSError:
        return False
