"""Chrome/Perfetto JSON of any origin: the events are collected once, then a dialect gives them meaning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from npuscope.trace import build
from npuscope.trace.build import dress
from npuscope.trace.core import Trace
from npuscope.trace.event_table import EventTable, collect
from npuscope.trace.readers import kineto, merged_swimlane, own_json, trace_view, tracr_perfetto

# the first whose evidence is found in the file's own names; anything else is read as it is
DIALECTS: list[tuple[Callable[[EventTable], bool], Callable[[EventTable], Trace]]] = [
    (own_json.recognises, own_json.dress_up),
    (trace_view.recognises, trace_view.dress_up),
    (merged_swimlane.recognises, merged_swimlane.dress_up),
    (tracr_perfetto.recognises, tracr_perfetto.dress_up),
    (kineto.recognises, kineto.dress_up),
]


def read(path: Path) -> Trace:
    """The file as a Trace, in the dialect that its process names, categories and header give away."""
    table = collect(path)
    for recognises, dress_up in DIALECTS:
        if recognises(table):
            return dress_up(table)
    build.count_unknown_header(table)
    return dress(table, "chrome")
