"""Captures as versions of the lab: measured runs, explained before anything is served."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npuscope.explain.ranks import Ranks
from npuscope.lab.document import Payload, as_json
from npuscope.lab.messages import VersionResult
from npuscope.lab.payload.overview import ranks
from npuscope.lab.runs import kernel_places, run_of
from npuscope.lab.versions import Version


@dataclass(frozen=True)
class Captures:
    """Their runs, one per rank, and the panels that belong to no single one."""

    versions: tuple[Version, ...]
    shared: Mapping[str, Payload]


def captures_of(names: Sequence[str], found: Sequence[Ranks]) -> Captures:
    """Captures under their names, in their order; a kernel has one colour in all of them."""
    colours = kernel_places([one for explained in found for one in explained.explained])
    versions: list[Version] = []
    for name, explained in zip(names, found, strict=True):
        for part, one in zip(explained.parts, explained.explained, strict=True):
            id = f"c{len(versions) + 1}"
            title = name if len(explained.parts) == 1 else f"{name}: {part.name}"
            run = run_of(title, one, id, colours=colours)
            made = VersionResult(
                id, as_json(run), run["wall"], one.diagnosis.verdict.sentence, trace=pickle.dumps(one.trace)
            )
            versions.append(Version(id, title, time.time(), measured=True, made=made))
    several = [one for one in found if len(one.parts) > 1]
    return Captures(tuple(versions), {"ranks": ranks(several[0])} if len(several) == len(found) == 1 else {})
