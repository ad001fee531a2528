"""Documents of programs that were simulated or drawn, and of captures as versions of the lab."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from npuscope.answer.prediction import Prediction
from npuscope.base.frozen import dataclass
from npuscope.check.rules.safety import race_finding
from npuscope.check.run import Fit
from npuscope.chip.devices import Device
from npuscope.explain import explain, explain_ranks
from npuscope.explain.ranks import Ranks
from npuscope.lab.document import Payload, Run, as_json, document, page
from npuscope.lab.messages import VersionResult
from npuscope.lab.payload.all_ranks import all_ranks
from npuscope.lab.payload.graph import graph, graph_of
from npuscope.lab.payload.inside import inside
from npuscope.lab.payload.memory import memory
from npuscope.lab.payload.overview import parts, ranks
from npuscope.lab.payload.source import source
from npuscope.lab.runs import Document, run_of
from npuscope.lab.versions import Version
from npuscope.report import forward
from npuscope.report import simulate as simulate_report
from npuscope.report.program import VERDICTS
from npuscope.report.simulate import Section
from npuscope.table.formats import duration
from npuscope.table.parts import Heading, Part, Rows, Say
from npuscope.tile.graph.outputs import GraphCounts
from npuscope.tile.graph.task_graph import Graph
from npuscope.tile.record.model import Recording
from npuscope.tile.script.places import own_files
from npuscope.time.ranks.result import RanksResult
from npuscope.trace.core import Trace

MOST_RANKS = 8  # beside the one that is told of


def prediction_document(name: str, one: Prediction, first: Sequence[Section] = ()) -> Document:
    """A simulated program: timeline, diagnosis and everything that is known of it; of several ranks those of each, and
    of all together."""
    shown = prediction_run(name, one, first)
    peers = one.simulated.prepared.peers
    if peers is None:
        return document(name, [shown])
    found = explain_ranks(one.trace)
    others = [
        run_of(f"{name}: {part.name}", explained, f"rank{part.rank}")
        for part, explained in zip(found.parts, found.explained, strict=True)
        if part.rank != peers.own[0]
    ]
    together = all_ranks(found, "all")
    assert together is not None
    together["name"] = f"{name}: {together['name']}"
    return document(name, [shown, together, *others[:MOST_RANKS]], {"ranks": ranks(found)})


def prediction_run(name: str, one: Prediction, first: Sequence[Section] = (), **panels: Payload) -> Run:
    panels = {**dict(panels_of(one)), **panels}
    return run_of(name, one.explanation, simulated=one.simulated, wall=wall_of(one), first=first, panels=panels)


def wall_of(one: Prediction) -> dict[str, object]:
    """The wall in nanoseconds with its interval."""
    return {"value": one.estimate.value, **one.estimate.as_dict()}


def part_of_ranks(one: Prediction) -> str:
    """Which rank and program the run is of, where there are several."""
    run, peers = one.simulated, one.simulated.prepared.peers
    assert peers is not None
    whole, count = duration(RanksResult(run.ranks).wall_ns), len(run.programs)
    what = f"{count} programs" if count > 1 else one.recording.program.partition("@")[0]
    return f"{what} on rank {peers.own[0]} of {len(peers.ranks)}; all ranks: {whole}"


def panels_of(one: Prediction, files: Iterable[str] = ()) -> Iterator[tuple[str, Payload]]:
    """The panels of a simulated program beside its timeline: each one's name and payload; `files` took part in it."""
    from npuscope.forward.program_roofline import program_roofline  # a page of memory alone does not load it

    findings = [*map(race_finding, one.races.races), *one.checked.errors, *one.findings]
    own = [str(file.path) for file in own_files(Path(one.request.file))]
    yield "source", source(one.simulated, one.explanation, findings, [*own, *files])
    yield "inside", inside(one.simulated)
    yield "memory", memory([one.fit])
    yield "graph", graph(one.program)
    if one.simulated.ranks:
        yield "ranks", parts(simulate_report.all_ranks(one))
    name = Path(one.request.file).name
    found = forward.roofline(name, name, program_roofline(one.simulated, one.timeline.busy))
    yield "roofline", parts(part for part in found if not isinstance(part, Heading) or part.level > 1)


def whatif_document(name: str, what: Trace | Prediction, found: Iterable[Part]) -> Document:
    """A run with what changes of it would buy."""
    bought = parts(found)
    if isinstance(what, Trace):
        run = run_of(name, explain(what), panels={"whatif": bought})
    else:
        run = prediction_run(name, what, whatif=bought)
    return document(name, [run], panel="whatif")


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
    """Their runs, one per rank, and the panels that belong to no single one; `pair` are of the first two captures the
    runs that stand for their ranks."""

    versions: tuple[Version, ...]
    shared: Mapping[str, Payload]
    pair: tuple[str, str] | None = None


def captures_of(
    names: Sequence[str], found: Sequence[Ranks], known: int = 0, step: Iterable[Part] | None = None
) -> Captures:
    """Captures under their names, in their order; so many are `known` already. `step` is the waterfall of a step."""
    versions: list[Version] = []
    firsts = []
    for name, explained in zip(names, found, strict=True):
        id = f"c{known + len(versions) + 1}"
        if len(explained.parts) > 1 and (together := all_ranks(explained, id)) is not None:
            together["name"] = title = f"{name}: {together['name']}"
            verdict, trace = explained.diagnosis.verdict.sentence, pickle.dumps(explained.trace)
            made = VersionResult(id, as_json(together), together["wall"], verdict, trace=trace)
            versions.append(Version(id, str(title), time.time(), measured=True, made=made))
        firsts.append(f"c{known + len(versions) + 1 + explained.shown}")
        for part, one in zip(explained.parts, explained.explained, strict=True):
            id = f"c{known + len(versions) + 1}"
            title = name if len(explained.parts) == 1 else f"{name}: {part.name}"
            run = run_of(title, one, id)
            verdict, trace = one.diagnosis.verdict.sentence, pickle.dumps(one.trace)
            made = VersionResult(id, as_json(run), run["wall"], verdict, trace=trace, bound=one.regime)
            versions.append(Version(id, title, time.time(), measured=True, made=made))
    several = [one for one in found if len(one.parts) > 1]
    shared: dict[str, Payload] = {"ranks": ranks(several[0])} if len(several) == len(found) == 1 else {}
    pair = (firsts[0], firsts[1]) if len(firsts) > 1 else None
    return Captures(tuple(versions), shared if step is None else {**shared, "step": parts(step)}, pair)
