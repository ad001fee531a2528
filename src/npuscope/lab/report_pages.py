"""Pages of commands that tell of no single run: a document with one panel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from npuscope.check.run import Fit
from npuscope.chip.devices import Device
from npuscope.lab.document import document, page
from npuscope.lab.payload.graph import graph_of
from npuscope.lab.payload.memory import memory
from npuscope.lab.payload.overview import parts
from npuscope.report.program import VERDICTS
from npuscope.table.parts import Heading, Part, Rows, Say
from npuscope.tile.graph.outputs import GraphCounts
from npuscope.tile.graph.task_graph import Graph
from npuscope.tile.record.model import Recording


def parts_page(title: str, panel: str, found: Iterable[Part]) -> str:
    """A report's parts as the panel of that name; its heading of the first level is the page's."""
    told = list(found)
    title = next((part.words for part in told if isinstance(part, Heading) and part.level == 1), title)
    shown = [part for part in told if not (isinstance(part, Heading) and part.level == 1)]
    return page(document(title, [], {panel: parts(shown)}), "The command without --html prints the same as text.")


def memory_page(file: str, device: Device, fits: Sequence[Fit]) -> str:
    """What every function takes of each memory."""
    told = f"{device.title}, {device.name}"
    data = document(f"Memory of {file.rpartition('/')[2]}", [], {"memory": {**memory(fits), "told": told}})
    return page(data, "`npuscope memory` prints the same as text.")


def graph_page(file: str, passed: bool | None, drawn: Sequence[tuple[Recording, Graph, GraphCounts]]) -> str:
    """The graph and the counts of each program that a script ran."""
    programs = [graph_of(recording, graph, more=_counted(counts)) for recording, graph, counts in drawn]
    told = f"golden (the numbers it should give): {VERDICTS[passed]}"
    data = document(f"Graph of {file.rpartition('/')[2]}", [], {"graph": {"programs": programs, "told": told}})
    return page(data, "`npuscope graph` prints the same as text.")


def _counted(counts: GraphCounts) -> Iterator[Part]:
    tables = counts.tables()
    yield Say(counts.title().replace("\n", "; "))
    yield Rows(tables["kernels"])
    yield Heading("By area")
    yield Rows(tables["areas"])
