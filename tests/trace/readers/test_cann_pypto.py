"""Runs of CANN's own PyPTO: the folder is one run, and every file of it says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import balanced, named, refused, write_events, x

import npuscope
from npuscope.chip.devices import load
from npuscope.explain import compare, explain
from npuscope.explain.doctor import symptoms_of
from npuscope.forward.roofline import roofline
from npuscope.trace import Trace

RUN = "cann_pypto/output_20261117_212512"
SIMULATED = "CostModelSimulationOutput"
# Two tasks of the leaf "qk" (label) on cube cores, then one of an unnamed leaf on a vector core; a hub before them.
# Cycles at 1.8 GHz: 1,800 are a microsecond.
AIC, AIV, HUB = 1, 0, 4
NODES = [  # number, opmagic, leaf, core type, successors
    (0, 9, "0", HUB, [1, 2]),
    (1, 10, "77", AIC, [3]),
    (2, 11, "77", AIC, [3]),
    (3, 12, "18446744073709551615", AIV, []),
]
RAN = {1: (0, 1800, 5400), 2: (1, 1800, 9000), 3: (2, 10800, 12600)}  # task: core, start, end
UNITS = ["AIC", "AIC", "AIV", "AIV"]  # the last core stays idle


def graph(header: str = "psgId,", fixed: str = "0,", sequence: int = 0) -> str:
    lines = [f"seqNo,taskId,rootIndex,rootHash,opmagic,leafIndex,leafHash,coreType,{header}successors"]
    lines += [
        f"{sequence},{n},0,5,{magic},0,{leaf},{core},{fixed}" + ",".join(map(str, to))
        for n, magic, leaf, core, to in NODES
    ]
    return "\n".join(lines) + "\n"


def program() -> dict[str, Any]:
    tensors = [
        {"magic": 1, "shape": [16, 32], "rawtensor": 1, "mem_type": {"asis": 15}, "mem_range": [0, 0]},
        {"magic": 2, "shape": [16, 32], "rawtensor": 1, "mem_type": {"asis": 2}, "mem_range": [0, 1024]},
        {"magic": 3, "shape": [32, 8], "rawtensor": 1, "mem_type": {"asis": 3}, "mem_range": [512, 1024]},
        {"magic": 4, "shape": [16, 8], "rawtensor": 2, "mem_type": {"asis": 4}, "mem_range": [0, 512]},
    ]
    cube = [
        {"opcode": "PHASE1"},
        {"opcode": "COPY_IN", "file": "/home/me/k.py", "line": 3, "ioperands": [1], "ooperands": [2]},
        {"opcode": "A_MUL_B", "file": "/home/me/k.py", "line": 4, "ioperands": [2, 3], "ooperands": [4]},
        {"opcode": "COPY_OUT", "file": "/home/me/k.py", "line": 9, "ioperands": [4], "ooperands": [1]},
    ]
    raw = [{"rawmagic": 1, "datatype": 6}, {"rawmagic": 2, "datatype": 7}]  # half, float
    label = {"label": "qk", "filename": "k.py", "lineno": 1}
    calls = [
        {"opcode": "CALL", "opmagic": 10, "semantic_label": label},
        {"opcode": "CALL", "opmagic": 11, "semantic_label": label},
    ]
    return {
        "version": "2.0",
        "functions": [
            {"hash": "77", "func_magicname": "F_leaf0_1", "graphtype": 3, "operations": cube, "tensors": tensors,
             "rawtensors": raw},
            {"hash": "18446744073709551615", "func_magicname": "F_leaf1_2", "graphtype": 3},
            {"hash": "5", "func_magicname": "F_root", "graphtype": 2,
             "operations": [*calls, {"opcode": "CALL", "opmagic": 12}]},
        ],
    }  # fmt: skip


def cores(**more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"blockIdx": n, "coreType": unit, "tasks": []} for n, unit in enumerate(UNITS)]
    for task, (core, start, end) in RAN.items():
        found[core]["tasks"].append({"taskId": task, "seqNo": 0, "execStart": start, "execEnd": end, **more})
    return found


def simulated(folder: Path, *, graph_text: str | None = None) -> Path:
    inner = folder / SIMULATED
    inner.mkdir(parents=True)
    hub = {"blockIdx": 9, "coreType": "HUB", "tasks": [{"taskId": 0, "seqNo": 0, "execStart": 1, "execEnd": 2}]}
    (inner / "_simulate.swim.json").write_text(json.dumps([*cores(completeSeq=0, subGraphId=1), hub]))
    (folder / "dyn_topo.txt").write_text(graph() if graph_text is None else graph_text)
    (folder / "program.json").write_text(json.dumps(program()))
    return folder


def merged(folder: Path, scale: float = 1800) -> Path:
    """The merged swimlane, as the tool's converter makes it of the same run."""
    tids = {core: 1002 + 2 * core for core in range(4)}
    events = [*named("Machine View", "Fake Core_0", tid=1000)]
    events += [e for core, unit in enumerate(UNITS) for e in named(None, f"{unit}_{core + 1}", tid=tids[core])]
    events += named(None, "HUB_80", tid=1160)
    events.append(x("0-0-0-2-0()", 1 / scale, 1 / scale, tid=1160, args={"taskId": 0, "seqNo": 0}))
    for task, (core, start, end) in RAN.items():
        label = "qk" if task < 3 else ""
        hint = f"Task:[0-0-{task}], rootHash:5, callOpMagic:9, leafHash:{NODES[task][2]}, TaskId:{task}"
        args = {"event-hint": hint, "taskId": task, "seqNo": 0}
        events.append(x(f"0-0-{task}-2-0({label})", start / scale, (end - start) / scale, tid=tids[core], args=args))
    places = {0: (1160, 1, 2), **{task: (tids[core], start, end) for task, (core, start, end) in RAN.items()}}
    flow = 100
    for task, *_, successors in NODES:
        for to in successors:
            flow += 1
            leaves = {"ph": "s", "tid": places[task][0], "ts": places[task][2] / scale - 0.0001 * (scale > 1)}
            enters = {"ph": "f", "bp": "e", "tid": places[to][0], "ts": places[to][1] / scale}
            both = {"pid": 1, "id": flow, "cat": "machine-view-last-dep", "name": "machine-view-last-dep"}
            events += [{**both, **leaves}, {**both, **enters}]
    return write_events(folder / "merged_swimlane.json", events)


def work(trace: Trace) -> list[tuple[str, int, int]]:
    rows = trace.slices.filter(pl.col("kind") == "task").sort("task")
    return list(rows.select("kernel", "start", "dur").iter_rows())


TRUTH = [("qk", 1000, 2000), ("qk", 1000, 4000), ("F_leaf1_2", 6000, 1000)]
EDGES = {(0, 1), (0, 2), (1, 3), (2, 3)}


def test_the_folder_is_one_run_with_labels_dependencies_and_all_cores(tmp_path: Path) -> None:
    trace = npuscope.read(simulated(tmp_path / "output_1"))
    assert work(trace) == TRUTH
    assert set(trace.edges.select("src", "dst").iter_rows()) == EDGES
    assert trace.lanes["unit"].to_list() == ["AIC", "AIC", "AIV", "AIV"]
    assert trace.meta.notes["num_cores"] == 4
    assert balanced(trace)
    explained = explain(trace)
    assert explained.path.kind == "chain"
    assert explained.work.wall == 6000
    leaf = trace.meta.notes["leaves"]["F_leaf0_1"]
    # one product of 16×32 by 32×8; a tile of 16×32 halves in, 16×8 floats out
    assert (leaf["cube_flops"], leaf["bytes"]) == (2 * 16 * 32 * 8, 16 * 32 * 2 + 16 * 8 * 4)
    assert (leaf["place"], leaf["memory"]) == ("k.py:4", {"L0A": 1024, "L0B": 1024, "L0C": 512})


def test_every_file_of_the_run_says_the_same(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "output_1")
    swim = npuscope.read(folder / SIMULATED / "_simulate.swim.json")
    view = npuscope.read(merged(folder / SIMULATED))
    for trace in (swim, view):
        assert work(trace) == TRUTH
        assert balanced(trace)
        assert set(trace.edges.select("src", "dst").iter_rows()) == EDGES


def test_a_merged_swimlane_alone_has_its_labels_its_flows_and_its_idle_core(tmp_path: Path) -> None:
    trace = npuscope.read(merged(tmp_path))
    assert [row[1:] for row in work(trace)] == [row[1:] for row in TRUTH]
    assert [row[0] for row in work(trace)] == ["qk", "qk", "leaf 18446744073709551615"]
    assert set(trace.edges.select("src", "dst").iter_rows()) == EDGES
    assert trace.lanes.height == 4


def test_a_merged_swimlane_in_whole_cycles_is_turned_into_time(tmp_path: Path) -> None:
    trace = npuscope.read(merged(tmp_path, scale=1))
    assert [row[1:] for row in work(trace)] == [row[1:] for row in TRUTH]
    assert "cycles" in (trace.meta.clock or "")
    assert set(trace.edges.select("src", "dst").iter_rows()) == EDGES


def test_tasks_that_only_the_older_converter_placed_are_work(tmp_path: Path) -> None:
    events = [*named("Machine View", "Fake Core_3", tid=1006), x("0-1-53-82-3()", 1e9, 2.5, tid=1006)]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert trace.slices.select("kernel", "dur").row(0) == ("leaf 82-3", 2500)
    assert trace.lanes["unit"].to_list() == ["AIC"]


def test_newer_graphs_have_more_columns_and_graphs_repeat_numbers(tmp_path: Path) -> None:
    newer = graph("psgId,wrapId,staticSuccCount,", "0,-1,1,")
    trace = npuscope.read(simulated(tmp_path / "new", graph_text=newer))
    assert set(trace.edges.select("src", "dst").iter_rows()) == EDGES
    older = graph(fixed="0,,")  # one version leaves a field empty before the successors
    trace = npuscope.read(simulated(tmp_path / "old", graph_text=older))
    assert set(trace.edges.select("src", "dst").iter_rows()) == EDGES


def test_a_graph_of_another_run_is_refused_and_a_broken_one_named(tmp_path: Path) -> None:
    other = npuscope.read(simulated(tmp_path / "a", graph_text=graph(sequence=4)))
    assert other.edges.is_empty()
    assert "another run" in other.meta.notes["graph_refused"]
    broken = npuscope.read(simulated(tmp_path / "b", graph_text="seqNo,taskId\n1,2\n"))
    assert work(broken)[0][1:] == TRUTH[0][1:]
    assert "files-not-read" in {one.id for one in symptoms_of(broken).symptoms}


def test_a_program_of_another_version_still_names_what_it_can(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "run")
    written = program()
    cube = written["functions"][0]
    cube["hash"] = 77
    cube["operations"][2] |= {"line": None, "file": None}
    cube["operations"].append({"opcode": "EXP", "ioperands": None, "ooperands": [[4, "x"]]})
    cube["tensors"][1]["shape"] = ["N", 32]
    cube["tensors"][3] |= {"mem_range": None, "rawtensor": {"datatype": 7}}
    (folder / "program.json").write_text(json.dumps(written))
    trace = npuscope.read(folder)
    assert work(trace) == TRUTH
    leaf = trace.meta.notes["leaves"]["F_leaf0_1"]
    assert (leaf["cube_flops"], leaf["vector_elements"], leaf["place"]) == (0, 16 * 8, "k.py:3-9")  # of its copies


def test_a_graph_that_lacks_some_tasks_is_still_used(tmp_path: Path) -> None:
    lines = [line for line in graph().splitlines() if not line.startswith("0,2,")]
    trace = npuscope.read(simulated(tmp_path / "run", graph_text="\n".join(lines)))
    assert set(trace.edges.select("src", "dst").iter_rows()) == {(0, 1), (0, 2), (1, 3)}
    assert trace.meta.marked == {"task that dyn_topo.txt does not have": 1}


def test_without_the_program_a_leaf_keeps_its_hash(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "run")
    (folder / "program.json").unlink()
    assert [kernel for kernel, *_ in work(npuscope.read(folder))] == ["leaf 77", "leaf 77", "leaf 18446744073709551615"]
    (folder / "dyn_topo.txt").unlink()
    trace = npuscope.read(folder)
    assert [row[1:] for row in work(trace)] == [row[1:] for row in TRUTH]
    assert trace.edges.is_empty()


def test_a_measured_run_counts_ticks_of_its_clock(tmp_path: Path) -> None:
    ticks = [core for core in cores(leafIndex=3) if core["tasks"]]  # cores without a task are left out
    (tmp_path / "tilefwk_L1_prof_data.json").write_text(json.dumps(ticks))
    (tmp_path / "dyn_topo.txt").write_text(graph())
    (tmp_path / "program.json").write_text(json.dumps(program()))
    trace = npuscope.read(tmp_path)
    assert [row[1:] for row in work(trace)] == [(36_000, 72_000), (36_000, 144_000), (216_000, 36_000)]  # 20 ns a tick
    assert "num_cores" not in trace.meta.notes
    assert "unit-assumed" in {one.id for one in symptoms_of(trace).symptoms}  # A2, A3 or 950: nothing says it
    marks = [
        {"name": "BEGIN_0", "end": 1000},
        {"name": "INIT_0", "end": 3000},
        {"name": "DEV_TASK_BUILD_0(1)", "end": 4000},
    ]
    machine = [{"blockIdx": 0, "coreType": "AICPU-CTRL", "freq": 1000, "tasks": marks}]
    (tmp_path / "machine_trace_perf_data_1.json").write_text(json.dumps(machine))
    both = npuscope.read(tmp_path)
    assert [row[1:] for row in work(both)] == [(1800, 3600), (1800, 7200), (10_800, 1800)]  # 1 ns a tick
    control = both.slices.filter(pl.col("kind") == "schedule")
    assert control.select("kernel", "start", "dur", "step").rows() == [
        ("INIT", 1000, 2000, 0),
        ("DEV_TASK_BUILD", 3000, 1000, 0),
    ]
    assert symptoms_of(both).verdict.startswith("sound")
    assert balanced(both)


def test_the_rate_of_a_measured_run_follows_from_its_merged_swimlane(tmp_path: Path) -> None:
    (tmp_path / "tilefwk_L1_prof_data.json").write_text(json.dumps(cores(leafIndex=3)))
    merged(tmp_path, scale=1000)
    assert work(npuscope.read(tmp_path))[0][1:] == (1800, 3600)


def test_pipes_are_queues_of_instructions(tmp_path: Path) -> None:
    log = {"MTE_IN": [{"execStart": 0, "execEnd": 1800, "tileOp": "7 COPY_IN 1 DDR TO 2 L1"}],
           "CUBE": [{"execStart": 1800, "execEnd": 2700, "tileOp": "8 A_MUL_B 3"}]}  # fmt: skip
    (tmp_path / "a.pipe.swim.json").write_text(json.dumps([{"blockIdx": 0, "coreType": "AIC", "pipeLogs": log}]))
    trace = npuscope.read(tmp_path / "a.pipe.swim.json")
    assert trace.slices.select("kernel", "kind", "dur").rows() == [("COPY_IN", "copy", 1000), ("A_MUL_B", "task", 500)]
    assert trace.lanes["name"].to_list() == ["AIC_0 MTE_IN", "AIC_0 CUBE"]
    assert balanced(trace)


def test_the_simulators_whole_trace_is_in_cycles_and_says_when_tasks_were_handed_out(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "run")
    hint = "[0-0-1-0-0] Executing SeqNo:0 TaskId:1 pSgId:0 Function:, hash:77"
    events = [
        *named("Top_Machine", "AIC_0", pid=1000, tid=30000),
        *named("AIC_0", "AIC_Machien_View", pid=30000, tid=1),
        *named("AICPU_0", "AICPU_Thread_0", pid=20000, tid=100),
        *named("AIV_1", "AIV_Machien_View", pid=40000, tid=1),
        x("0-0-1 (a)", 1800, 3600, pid=1000, tid=30000, args={"event-hint": hint}),
        x("0-0-1 (a)", 1800, 3600, pid=30000, tid=1, args={"event-hint": hint}),
        x("Dispatch_Task_1", 900, 180, pid=20000, tid=100),
        x("Resolving_1", 7200, 360, pid=20000, tid=100),
    ]
    path = write_events(folder / SIMULATED / "_simulate.pefetto.trace.json", events)
    alone = npuscope.read(path)
    assert work(alone) == [("qk", 1000, 2000)]
    assert alone.lanes["unit"].to_list() == ["AIC", "AIV", "AICPU"]
    whole = npuscope.read(folder)
    assert work(whole) == TRUTH
    assert balanced(whole)
    assert balanced(alone)
    first = whole.slices.filter(pl.col("task") == 1).select("dispatch", "finish").row(0)
    assert first == (600, 4000)  # handed out until cycle 1,080, its end resolved from cycle 7,200 on


def test_perf_sims_trace_is_pipes_in_cycles_with_dependencies(tmp_path: Path) -> None:
    cube, load = "[AIC-0] CUBE", "[AIC-0] MTE2"
    events = [
        {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "Core 0"}},
        *({"ph": "M", "pid": 0, "tid": t, "name": "thread_name", "args": {"name": t}} for t in (cube, load)),
        x("TLOAD(a)", 0, 1850, pid=0, tid=load, cat=load),
        x("TMATMUL(c)", 1850, 3700, pid=0, tid=cube, cat=cube),
        {"ph": "s", "id": 1, "pid": 0, "tid": load, "ts": 1850, "name": "dep", "cat": "flow"},
        {"ph": "f", "id": 1, "pid": 0, "tid": cube, "ts": 1850, "name": "dep", "cat": "flow"},
    ]
    trace = npuscope.read(write_events(tmp_path / "gemm.json", events))
    assert trace.meta.format == "pto-perf-sim"
    assert trace.slices.select("kernel", "kind", "start", "dur").rows() == [
        ("TLOAD", "copy", 0, 1000), ("TMATMUL", "task", 1000, 2000),
    ]  # fmt: skip
    assert trace.edges.select("src", "dst", "name").rows() == [(0, 1, "dependency")]


def test_a_chrome_file_of_whole_numbers_and_unknown_origin_is_not_called_sound(tmp_path: Path) -> None:
    whole = npuscope.read(write_events(tmp_path / "a.json", [*named("engine", "pipe"), x("op", 10, 20)]))
    assert "unit-unknown" in {one.id for one in symptoms_of(whole).symptoms}
    parts = npuscope.read(write_events(tmp_path / "b.json", [*named("engine", "pipe"), x("op", 10.5, 20)]))
    assert "unit-unknown" not in {one.id for one in symptoms_of(parts).symptoms}


def test_a_run_without_times_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "dyn_topo.txt").write_text(graph())
    assert "run_mode" in refused(tmp_path, "without times")


@pytest.mark.parametrize("text", ['[{"blockIdx": 0, "tasks": [{"taskId": -7}]}]', '[{"blockIdx": 0, "tasks": 3}]'])
def test_broken_lists_of_cores_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.swim.json").write_text(text)
    refused(tmp_path / "x.swim.json", "task number|not a list of cores")


def test_the_shared_run(shared: Path) -> None:
    trace = npuscope.read(shared / RUN)
    explained = explain(trace)
    assert dict(trace.slices.filter(pl.col("kind") == "task")["kernel"].value_counts().iter_rows()) == {
        "scores": 16, "softmax": 16, "values": 8,
    }  # fmt: skip
    rows = [line.split(",") for line in (shared / RUN / "dyn_topo.txt").read_text().splitlines()[1:]]
    assert set(trace.edges.select("src", "dst").iter_rows()) == {
        (int(r[1]), int(to)) for r in rows for to in r[9:] if to
    }
    units = dict(trace.lanes["unit"].value_counts().iter_rows())
    assert (units["AIC"], units["AIV"]) == (24, 48)
    swim = json.loads((shared / RUN / SIMULATED / "_simulate.swim.json").read_text())
    ran = [task for core in swim if core["coreType"] != "HUB" for task in core["tasks"]]
    cycles = max(one["execEnd"] for one in ran) - min(one["execStart"] for one in ran)
    assert explained.work.wall == pytest.approx(cycles / 1.8, abs=1)
    assert trace.meta.notes["simulator_cycles"] == 48796
    assert balanced(trace)
    assert "values" in explained.path.by_kernel()["kernel"].to_list()


def test_leaves_are_told_in_the_order_in_which_people_tune(tmp_path: Path) -> None:
    leaves = explain(npuscope.read(simulated(tmp_path / "run"))).leaves
    assert leaves is not None
    columns = ("kernel", "unit", "cores_used", "cores", "tasks", "core_ns", "place", "bytes")
    assert leaves.table.select(columns).rows() == [
        ("qk", "AIC", 2, 2, 2, 6000, "k.py:4", 16 * 32 * 2 + 16 * 8 * 4),
        ("F_leaf1_2", "AIV", 1, 2, 1, 1000, None, None),
    ]
    # 2 and 4 µs on the two cube cores: the busier one is a third above their mean
    assert [sentence for sentence in leaves.sentences if "33.3%" in sentence and "rebalance" in sentence]


def test_a_chain_of_small_vector_leaves_is_named(tmp_path: Path) -> None:
    inner = tmp_path / SIMULATED
    inner.mkdir()
    tasks = [{"taskId": n, "seqNo": 0, "execStart": 1800 * n, "execEnd": 1800 * (n + 1)} for n in range(4)]
    places = [
        {"blockIdx": 0, "coreType": "AIC", "tasks": tasks[:1]},
        {"blockIdx": 1, "coreType": "AIV", "tasks": tasks[1:]},
    ]
    (inner / "a.swim.json").write_text(json.dumps(places))
    rows = [f"0,{n},0,5,{n},0,{n + 100},{int(n == 0)},0,{n + 1 if n < 3 else ''}" for n in range(4)]
    head = "seqNo,taskId,rootIndex,rootHash,opmagic,leafIndex,leafHash,coreType,psgId,successors"
    (tmp_path / "dyn_topo.txt").write_text("\n".join([head, *rows]))
    calls = [{"opmagic": n, "semantic_label": {"label": name}} for n, name in enumerate(("mm", "scale", "exp", "cast"))]
    (tmp_path / "program.json").write_text(
        json.dumps({"functions": [{"hash": 5, "graphtype": 2, "operations": calls}]})
    )
    leaves = explain(npuscope.read(tmp_path)).leaves
    assert leaves is not None
    (chain,) = [sentence for sentence in leaves.sentences if "chain" in sentence]
    assert "`scale` → `exp` → `cast` (3 µs" in chain  # not the product before them


def test_roofline_prices_a_task_by_its_part_of_the_chip(tmp_path: Path) -> None:
    found = roofline(npuscope.read(simulated(tmp_path / "run")), "ascend910b1")
    row = found.calls.filter(pl.col("kernel") == "qk").row(0, named=True)
    chip = load("ascend910b1")
    flops, moved = 2 * 16 * 32 * 8, 16 * 32 * 2 + 16 * 8 * 4
    limits = (flops / ((chip.peak("cube", "fp16") or 0) / chip.cores.cube.value) * 1e9, moved / chip.bandwidth * 1e9)
    assert (row["flops"], row["bytes"]) == (flops, moved)
    assert row["limit_ns"] == pytest.approx(max(limits))


def test_compare_finds_a_changed_tile(tmp_path: Path) -> None:
    sides = []
    for name, width in (("a", 64), ("b", 128)):
        folder = simulated(tmp_path / name)
        written = program()
        written["functions"][0]["operations"][2] |= {
            "tile": {"cube": [0, 0], "vec": [width, 0]},
            "semantic_label": "qk",
        }
        (folder / "program.json").write_text(json.dumps(written))
        sides.append(npuscope.read(folder))
    assert compare(sides[0], sides[1]).not_like_for_like == ("vec tile of `qk`: 64 against 128",)
