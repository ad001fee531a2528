"""The graph for others: deps.json that npuscope's own reader takes, DOT, and a Trace without times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recordings import buffer, recording, task, turns, whole

from npuscope.base.errors import CannotWrite, NpuscopeError
from npuscope.explain.work import area_rules
from npuscope.report.program import graph
from npuscope.table.parts import as_text
from npuscope.tile.graph import task_graph
from npuscope.tile.graph.outputs import (
    check_timeless,
    choose_program,
    count_graphs,
    deps_document,
    dot,
    name_map,
    submissions,
    timeless_trace,
)
from npuscope.tile.record.model import Recording
from npuscope.trace import read

X = buffer(0, 8, origin="parameter", direction="In")
Q = buffer(1, 8, dtype="BF16")
EACH = [buffer(2 + n, 8, turns=turns((0, "parallel", n))) for n in range(2)]


def attention() -> Recording:
    """q_proj, then per turn a score (cube) and a softmax (mixed) of a tensor made in the turn, joined by a dummy."""
    tasks = [task(0, whole(X), whole(Q, "w"), kernel="q_proj", core="AIC", blocks=3, early=True)]
    for n in range(2):
        inside = turns((0, "parallel", n))
        tasks.append(task(1 + 2 * n, whole(Q), whole(EACH[n], "w"), kernel="qk", core="AIC", turns=inside))
        tasks.append(task(2 + 2 * n, whole(EACH[n], "rw"), kernel='soft"max\\', core="MIX", turns=inside))
    tasks.append(task(5, kernel="task_dummy", core="none", blocks=0, deps=(2, 4), form="dummy"))
    return recording([X, Q, *EACH], tasks)


def test_allocations_are_numbered_where_they_are_submitted() -> None:
    made = attention()
    # the function's allocation, q_proj, then in each turn its allocation and two tasks, then the dummy
    assert list(submissions(made, task_graph(made))) == [-1, 0, -2, 1, 2, -3, 3, 4, 5]


def test_deps_json_beside_a_swimlane_reads_back_with_the_same_edges(tmp_path: Path) -> None:
    # GIVEN a graph and a swimlane of its tasks, each block on a core one after the other
    made = attention()
    graph = task_graph(made)
    ids = submissions(made, graph)
    rows: list[Any] = []
    stamp = 100
    for one in made.tasks:
        for core in {"AIC": (0,), "MIX": (0, 1), "none": ()}[one.core]:
            rows.append([core, ids[one.id], len(rows), stamp, stamp + 10, 0])
            stamp += 20
    metadata = {"clock_freq_hz": 50_000_000, "num_cores": 2, "core_types": ["aic", "aiv"]}
    swimlane = {"chip_swimlane_level": 1, "metadata": metadata, "aicore_tasks": rows}
    (tmp_path / "chip_swimlane_records.json").write_text(json.dumps(swimlane))
    (tmp_path / "deps.json").write_text(json.dumps(deps_document(made, graph)))
    (tmp_path / "name_map.json").write_text(json.dumps(name_map(made)))

    # WHEN npuscope reads them as a capture
    trace = read(tmp_path)

    # THEN edges and kernels are those of the graph
    source = {"creator": "creator", "raw": "tensormap", "waw": "tensormap", "explicit": "explicit"}
    wanted = {(ids[e.src], ids[e.dst], source[e.origin]) for e in graph.edges}
    assert set(trace.edges.select("src", "dst", "source").rows()) == wanted
    kernels = dict(trace.slices.select("task", "kernel").unique().rows())
    assert kernels == {ids[t.id]: t.kernel for t in made.tasks if t.core != "none"}


def test_deps_json_has_what_the_runtime_writes() -> None:
    made = attention()
    document = deps_document(made, task_graph(made))
    alloc, q_proj = document["tasks"][:2]
    assert (alloc["kernel_ids"], alloc["args"]) == ([-1, -1, -1], [])
    assert (q_proj["kernel_ids"], q_proj["block_num"], q_proj["early_dispatch"]) == ([0, -1, -1], 3, True)
    assert q_proj["args"][1] == {
        "idx": 1,
        "type": "OUTPUT_EXISTING",
        "tensor_id": "1",
        "dtype": "BFLOAT16",
        "shape": [8],
        "start_offset": "0",
        "strides": [1],
    }
    raw = next(e for e in document["edges"] if e["source"] == "tensormap")
    assert (raw["pred"], raw["succ"], raw["arg"], raw["overlap"], raw["flags"]) == ("1", "3", 0, "covered", ["wait"])
    assert {e["source"] for e in document["edges"] if e["succ"] == "8"} == {"explicit"}


def test_dot_survives_any_name() -> None:
    made = attention()
    text = dot(made, task_graph(made))
    assert '2 [label="2 soft\\"max\\\\", shape=diamond];' in text
    assert "0 -> 1 [style=solid];" in text
    assert "4 -> 5 [style=bold];" in text
    by_kernel = dot(made, task_graph(made), "kernel")
    assert '1 [label="qk (2)", shape=box];' in by_kernel
    assert '0 -> 1 [label="2"];' in by_kernel


def test_a_trace_without_times_has_edges_and_no_slices(tmp_path: Path) -> None:
    made = attention()
    graph = task_graph(made)
    timeless_trace(made, graph).write(tmp_path / "graph.npu")
    again = read(tmp_path / "graph.npu")
    assert again.slices.is_empty()
    assert again.span == (0, 0)
    assert set(again.edges.select("src", "dst", "origin").rows()) == {
        (src, dst, origin) for (src, dst), origins in graph.pairs.items() for origin in origins
    }
    assert again.edges.filter(dst=2, origin="raw").select("src_kernel", "dst_kernel").rows() == [("qk", 'soft"max\\')]
    assert again.meta.notes["tasks"][0] == {"task": 0, "kernel": "q_proj", "unit": "AIC", "blocks": 3}


def test_only_npuscopes_own_folder_can_hold_it() -> None:
    check_timeless("graph.npu")
    with pytest.raises(CannotWrite, match="own folder only"):
        check_timeless("graph.pftrace")


def test_counts_per_kernel_and_area() -> None:
    made = attention()
    counts = count_graphs([made], [task_graph(made)], area_rules())
    assert counts.areas.select("area", "kernels", "tasks").rows() == [
        ("attention", 1, 2),
        ("other", 1, 2),
        ("QKV", 1, 1),
        ("no work", 1, 1),
    ]
    assert counts.kernels.select("kernel", "waits").rows() == [
        ("q_proj", 0),
        ("qk", 2),
        ('soft"max\\', 2),
        ("task_dummy", 2),
    ]
    told: Any = counts.as_dict()
    assert told["edges"] == {"creator": 7, "raw": 4, "waw": 0, "explicit": 2}
    assert (told["tasks"], told["kernels"]["qk"]["blocks"], told["allocations"]) == (6, 2, 3)
    edges = "7 on the task that made a tensor, 4 on a task that wrote what is read, 2 declared in the program"
    told_lines = as_text(graph("f.py", None, counts)).splitlines()
    assert f"dependencies between tasks: {edges}" in told_lines  # an origin without edges is left out


def test_one_of_several_programs_is_named() -> None:
    made, empty = attention(), recording([X], [])
    assert choose_program([empty, made], None, "f.py") == 1
    assert choose_program([made, made], 1, "f.py") == 1
    with pytest.raises(NpuscopeError, match="2 programs ran"):
        choose_program([made, made], None, "f.py")
    with pytest.raises(NpuscopeError, match="no program 3"):
        choose_program([made, made], 3, "f.py")
    with pytest.raises(NpuscopeError, match="no program of it submitted a task"):
        choose_program([empty], None, "f.py")
