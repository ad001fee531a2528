"""What the host takes around a run of the device, where its log says: binding arguments, copying, launching ranks one
after the other. What passes while the device works on another call is hidden, and mending it saves nothing."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from npuscope.explain.diagnosis.cause import WORTH_A_WORD, Cause, CauseKind, gain_between, ranked
from npuscope.table.formats import duration, percent
from npuscope.trace.core import Trace, arrays_of
from npuscope.trace.intervals import Intervals, inside, union

LAUNCH_ORDER = CauseKind("launch-order", "the host launches ranks one after the other")
BIND = CauseKind("bind", "the host binds arguments and the runtime's image before a launch")
COPIES = CauseKind("copies", "the host copies arguments to the device and results back")
# parts of a call, as `npuscope step` names them
BINDS = ("bind arguments and runtime image", "prepare the launch")
COPIED = ("args", "copy inputs", "copy back and check", "graph_upload", "graph_pack", "arena_h2d", "sm_h2d")
OF_BIND = ("args", "graph_upload", "graph_pack", "arena_h2d", "sm_h2d")  # copies that are part of the bind


def host_causes(parts: Iterable[tuple[str, int]], whole_ns: int, hidden_ns: int = 0) -> list[Cause]:
    """Causes by the parts of a call; `hidden_ns` of its bind passed while the device worked on another call."""
    spent: dict[str, int] = {}
    for name, ns in parts:
        spent[name] = spent.get(name, 0) + ns
    copies = sum(spent.get(name, 0) for name in COPIED)
    bind = max(sum(spent.get(name, 0) for name in BINDS) - sum(spent.get(name, 0) for name in OF_BIND), 0)
    return list(_host_causes(bind, copies, whole_ns, hidden_ns))


def causes_beside(trace: Trace, wall_ns: int) -> list[Cause]:
    """Causes by the host's lanes of a trace: what a call takes in the mean before and after its time on the device."""
    spans = trace.slices.filter((pl.col("kind") == "host") & pl.col("kernel").str.starts_with("chip.run."))
    calls = spans.filter(pl.col("kernel") == "chip.run.bind").height
    if not calls:
        return []
    words = {"bind": BINDS[0], "prepare_execution": BINDS[1], "stage_inputs": COPIED[1], "validate": COPIED[2]}
    last = pl.col("kernel").str.split(".").list.last()
    spent = spans.group_by(last.alias("name")).agg(pl.col("dur").sum())
    parts = [(words.get(name, name), ns // calls) for name, ns in spent.iter_rows()]
    process = {lane: number for number, lane in enumerate(spans["lane"].unique().to_list())}
    bind, runs = (
        Intervals(lane, start, start + dur)
        for name in ("chip.run.bind", "chip.run.runner_run")
        for rows in [spans.filter(pl.col("kernel") == name)]
        for lane, start, dur in [arrays_of(rows.with_columns(pl.col("lane").replace_strict(process)))]
    )
    hidden = inside(bind, union(runs))
    around = sum(ns for name, ns in parts if name in (*BINDS, *COPIED[1:3]))
    return host_causes(parts, wall_ns + around, int((hidden.end - hidden.start).sum()) // calls)


def _host_causes(bind: int, copies: int, whole_ns: int, hidden_ns: int) -> list[Cause]:
    found = []
    for kind, ns, what, remedy in (
        (BIND, bind, "binds arguments and the runtime's image",
         "Keep what does not change bound between calls, or bind the next call while this one runs (two slots)."),
        (COPIES, copies, "copies arguments to the device and results back",
         "Leave weights and caches on the device, and copy back only what the host reads."),
    ):  # fmt: skip
        share = ns / whole_ns if whole_ns else 0.0
        if share < WORTH_A_WORD:
            continue
        hidden = min(hidden_ns, ns)
        beside = f"; {duration(hidden)} of it while another call was on the device" if hidden else ""
        sentence = f"The host {what} for {duration(ns)} of a call ({percent(share)} of it){beside}."
        found.append(Cause(kind.kind, sentence, min(share, 1.0), (), gain_between(0, ns - hidden), remedy=remedy,
                           confidence="likely"))  # fmt: skip
    return ranked(found, whole_ns)
