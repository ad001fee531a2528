"""Runs and documents of the app, from the results that commands have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from npuscope.explain.comparison import Comparison
from npuscope.explain.explanation import Explanation
from npuscope.explain.ranks import Ranks
from npuscope.lab.document import Payload, Run, document, page
from npuscope.lab.payload.all_ranks import all_ranks
from npuscope.lab.payload.files import program_texts, source_changes
from npuscope.lab.payload.overview import comparison, overview, parts, ranks, section
from npuscope.lab.payload.timeline import timeline
from npuscope.table.formats import many
from npuscope.table.parts import Heading, Part

if TYPE_CHECKING:
    from npuscope.report.simulate import Section
    from npuscope.time.run import Simulated

Document = dict[str, object]


def run_of(
    name: str,
    explained: Explanation,
    id: str = "0",
    simulated: Simulated | None = None,
    wall: object = None,
    text: str = "",
    first: Sequence[Section] = (),
    panels: Mapping[str, Payload] | None = None,
) -> Run:
    """`wall` is an estimate as a dict where the run is predicted; `text` a few words below the name; `first` comes
    first in the overview; `panels` holds further payloads."""
    work = explained.work
    counted = f"{explained.trace.meta.format}, {many(len(work.lane), 'slice')} on {many(work.lanes.height, 'lane')}"
    return {
        "id": id,
        "name": name,
        "text": f"{text}; {counted}" if text else counted,
        "measured": not explained.is_simulated,
        "wall": predicted_wall(explained) if wall is None else wall,
        "diagnosis": explained.diagnosis.as_dict(),
        "timeline": timeline(explained, simulated),
        "panels": {"overview": overview(explained, first), **(panels or {})},
    }


def predicted_wall(explained: Explanation) -> object:
    """The wall of a capture; of a simulated run that was written down with its interval."""
    wall = explained.predicted_wall
    return explained.work.wall if wall is None else {"value": wall.value, **wall.as_dict()}


def report_document(name: str, explained: Explanation) -> Document:
    """One measured run."""
    return document(name, [run_of(name, explained)])


def ranks_document(name: str, found: Ranks, step: Iterable[Part] | None = None) -> Document:
    """Several ranks: all of them on one clock, each a run, and all in a panel; `step` is the waterfall of a step."""
    together = all_ranks(found, "all")
    runs = [] if together is None else [together]
    runs += [
        run_of(part.name, explained, str(number))
        for number, (part, explained) in enumerate(zip(found.parts, found.explained, strict=True))
    ]
    shared = {"ranks": ranks(found), **({} if step is None else {"step": parts(step)})}
    return document(name, runs, shared, run=None if together is None else "all")


def compare_document(
    names: tuple[str, str],
    found: Comparison,
    first: Sequence[Section] = (),
    simulated: tuple[Simulated, Simulated] | None = None,
) -> Document:
    """Two runs beside each other on one time axis; `first` comes before what every comparison has. Of simulated runs
    the lines of both programs are compared, too."""
    runs = []
    for n, (name, explained) in enumerate(zip(names, (found.a, found.b), strict=True)):
        of = None if simulated is None else simulated[n]
        panels = {}
        if of is not None:
            from npuscope.lab.payload.inside import inside  # of programs alone: captures come without the simulator
            from npuscope.lab.payload.source import source

            panels = {"source": source(of, explained), "inside": inside(of)}
        runs.append(run_of(name, explained, "AB"[n], of, panels=panels))
    payload = {**comparison(names, found), "first": [section(*one) for one in first]}
    if simulated is not None:
        payload["source"] = source_changes(*(program_texts(one.prepared.program.recording) for one in simulated))
    return document(f"{names[0]} against {names[1]}", runs, {"compare": payload}, run="B", beside="A")


def parts_page(title: str, panel: str, found: Iterable[Part], beside: Document | None = None) -> str:
    """A report's parts as the panel of that name; its heading of the first level is the page's. `beside` is a document
    that the panel stands in."""
    found = list(found)
    title = next((part.words for part in found if isinstance(part, Heading) and part.level == 1), title)
    shown = [part for part in found if not (isinstance(part, Heading) and part.level == 1)]
    made = beside or document(title, [])
    shared = {**cast(Document, made["shared"]), panel: parts(shown)}
    return page({**made, "shared": shared, "panel": panel}, "The command without --html prints the same as text.")
