"""Runs and documents of the app, from the results that commands have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from npuscope.answer.prediction import Prediction
from npuscope.explain import explain
from npuscope.explain.comparison import Comparison
from npuscope.explain.explanation import Explanation
from npuscope.explain.ranks import Ranks
from npuscope.lab.document import Payload, Run, document
from npuscope.lab.payload.graph import graph
from npuscope.lab.payload.inside import inside
from npuscope.lab.payload.memory import memory
from npuscope.lab.payload.overview import comparison, overview, parts, ranks, section
from npuscope.lab.payload.source import program_texts, source, source_changes
from npuscope.lab.payload.timeline import timeline
from npuscope.report.anchor import Section
from npuscope.table.formats import many
from npuscope.table.parts import Part
from npuscope.time.run import Simulated
from npuscope.trace.core import Trace

Document = dict[str, object]


def run_of(
    name: str,
    explained: Explanation,
    id: str = "0",
    simulated: Simulated | None = None,
    wall: object = None,
    told: str = "",
    colours: Mapping[str, int] | None = None,
    first: Sequence[Section] = (),
    panels: Mapping[str, Payload] | None = None,
) -> Run:
    """`wall` is an estimate as a dict where the run is predicted; `told` a few words below the name; `colours` gives
    kernels their places over several runs; `first` comes first in the overview; `panels` holds further payloads."""
    work = explained.work
    counted = f"{explained.trace.meta.format}, {many(len(work.lane), 'slice')} on {many(work.lanes.height, 'lane')}"
    return {
        "id": id,
        "name": name,
        "told": f"{told}; {counted}" if told else counted,
        "measured": simulated is None,
        "wall": work.wall if wall is None else wall,
        "diagnosis": explained.diagnosis.as_dict(),
        "timeline": timeline(explained, colours or kernel_places([explained]), simulated),
        "panels": {"overview": overview(explained, first), **(panels or {})},
    }


def report_document(name: str, explained: Explanation) -> Document:
    """One measured run."""
    return document(name, [run_of(name, explained)])


def ranks_document(name: str, found: Ranks) -> Document:
    """Several ranks: each a run, and all of them in a panel."""
    colours = kernel_places(found.explained)
    runs = [
        run_of(part.name, explained, str(number), colours=colours)
        for number, (part, explained) in enumerate(zip(found.parts, found.explained, strict=True))
    ]
    return document(name, runs, {"ranks": ranks(found)})


def compare_document(
    names: tuple[str, str],
    found: Comparison,
    first: Sequence[Section] = (),
    simulated: tuple[Simulated, Simulated] | None = None,
) -> Document:
    """Two runs beside each other on one time axis; `first` comes before what every comparison has. Of simulated runs
    the lines of both programs are compared, too."""
    colours = kernel_places([found.a, found.b])
    runs = []
    for n, (name, explained) in enumerate(zip(names, (found.a, found.b), strict=True)):
        of = None if simulated is None else simulated[n]
        panels = {} if of is None else {"source": source(of, explained), "inside": inside(of)}
        runs.append(run_of(name, explained, "AB"[n], of, colours=colours, panels=panels))
    told = {**comparison(names, found), "first": [section(*one) for one in first]}
    if simulated is not None:
        told["source"] = source_changes(*(program_texts(one.prepared.program.recording) for one in simulated))
    return document(f"{names[0]} against {names[1]}", runs, {"compare": told})


def prediction_document(name: str, one: Prediction, first: Sequence[Section] = ()) -> Document:
    """A simulated program: timeline, diagnosis and everything that is known of it."""
    return document(name, [prediction_run(name, one, first)])


def prediction_run(name: str, one: Prediction, first: Sequence[Section] = (), **panels: Payload) -> Run:
    panels = {**dict(panels_of(one)), **panels}
    return run_of(name, one.explanation, simulated=one.simulated, wall=wall_of(one), first=first, panels=panels)


def wall_of(one: Prediction) -> dict[str, object]:
    """The wall in nanoseconds with its interval."""
    return {"value": one.estimate.value, **one.estimate.as_dict()}


def panels_of(one: Prediction) -> Iterator[tuple[str, Payload]]:
    """The panels of a simulated program beside its timeline: each one's name and payload."""
    findings = [*one.checked.errors, *one.findings]
    yield "source", source(one.simulated, one.explanation, findings, one.races.races)
    yield "inside", inside(one.simulated)
    yield "memory", memory([one.fit])
    yield "graph", graph(one.program)


def whatif_document(name: str, what: Trace | Prediction, found: Iterable[Part]) -> Document:
    """A run with what changes of it would buy."""
    bought = parts(found)
    if isinstance(what, Trace):
        run = run_of(name, explain(what), panels={"whatif": bought})
    else:
        run = prediction_run(name, what, whatif=bought)
    return document(name, [run], panel="whatif")


def kernel_places(explained: Sequence[Explanation]) -> dict[str, int]:
    """A kernel has one colour on all runs, by the first that has it; those with most core time come first."""
    kernels = dict.fromkeys(name for e in explained for name in e.busy.kernels["kernel"].to_list())
    return {kernel: place for place, kernel in enumerate(kernels)}
