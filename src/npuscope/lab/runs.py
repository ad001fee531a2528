"""Runs and documents of the app, from the results that commands have."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from npuscope.answer.prediction import Prediction
from npuscope.check.run import Fit
from npuscope.chip.devices import Device
from npuscope.explain import explain
from npuscope.explain.comparison import Comparison
from npuscope.explain.explanation import Explanation
from npuscope.explain.ranks import Ranks
from npuscope.lab.document import Payload, Run, as_json, document, page
from npuscope.lab.messages import VersionResult
from npuscope.lab.payload.graph import graph, graph_of
from npuscope.lab.payload.inside import inside
from npuscope.lab.payload.memory import memory
from npuscope.lab.payload.overview import comparison, overview, parts, ranks, section
from npuscope.lab.payload.source import program_texts, source, source_changes
from npuscope.lab.payload.timeline import timeline
from npuscope.lab.versions import Version
from npuscope.report.anchor import Section
from npuscope.report.program import VERDICTS
from npuscope.table.formats import many
from npuscope.table.parts import Heading, Part, Rows, Say
from npuscope.tile.graph.outputs import GraphCounts
from npuscope.tile.graph.task_graph import Graph
from npuscope.tile.record.model import Recording
from npuscope.time.run import Simulated
from npuscope.trace.core import Trace

Document = dict[str, object]


def run_of(
    name: str,
    explained: Explanation,
    id: str = "0",
    simulated: Simulated | None = None,
    wall: object = None,
    text: str = "",
    colours: Mapping[str, int] | None = None,
    first: Sequence[Section] = (),
    panels: Mapping[str, Payload] | None = None,
) -> Run:
    """`wall` is an estimate as a dict where the run is predicted; `text` a few words below the name; `colours` gives
    kernels their places over several runs; `first` comes first in the overview; `panels` holds further payloads."""
    work = explained.work
    counted = f"{explained.trace.meta.format}, {many(len(work.lane), 'slice')} on {many(work.lanes.height, 'lane')}"
    return {
        "id": id,
        "name": name,
        "text": f"{text}; {counted}" if text else counted,
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
    payload = {**comparison(names, found), "first": [section(*one) for one in first]}
    if simulated is not None:
        payload["source"] = source_changes(*(program_texts(one.prepared.program.recording) for one in simulated))
    return document(f"{names[0]} against {names[1]}", runs, {"compare": payload})


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


def parts_page(title: str, panel: str, found: Iterable[Part]) -> str:
    """A report's parts as the panel of that name; its heading of the first level is the page's."""
    found = list(found)
    title = next((part.words for part in found if isinstance(part, Heading) and part.level == 1), title)
    shown = [part for part in found if not (isinstance(part, Heading) and part.level == 1)]
    return page(document(title, [], {panel: parts(shown)}), "The command without --html prints the same as text.")


def memory_page(file: str, device: Device, fits: Sequence[Fit]) -> str:
    """What every function takes of each memory."""
    text = f"{device.title}, {device.name}"
    data = document(f"Memory of {file.rpartition('/')[2]}", [], {"memory": {**memory(fits), "text": text}})
    return page(data, "`npuscope memory` prints the same as text.")


def graph_page(file: str, passed: bool | None, drawn: Sequence[tuple[Recording, Graph, GraphCounts]]) -> str:
    """The graph and the counts of each program that a script ran."""
    programs = [graph_of(recording, graph, more=_counted(counts)) for recording, graph, counts in drawn]
    text = f"golden (the numbers it should give): {VERDICTS[passed]}"
    data = document(f"Graph of {file.rpartition('/')[2]}", [], {"graph": {"programs": programs, "text": text}})
    return page(data, "`npuscope graph` prints the same as text.")


def _counted(counts: GraphCounts) -> Iterator[Part]:
    tables = counts.tables()
    yield Say(counts.title().replace("\n", "; "))
    yield Rows(tables["kernels"])
    yield Heading("By area")
    yield Rows(tables["areas"])


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
