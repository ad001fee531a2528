"""Runs of CANN's own PyPTO: the folder is one run, and every file of it says the same."""

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from builders import balanced, named, refused, write_events, x
from cann_runs import SIMULATED, cores, graph, merged, perf_sim, program, simulated, simulator

import npuscope
from npuscope.chip.devices import load
from npuscope.explain import compare, explain
from npuscope.explain.doctor import symptoms_of
from npuscope.forward.roofline import roofline
from npuscope.trace import Trace

RUN = "cann_pypto/output_20261117_212512"


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


@pytest.mark.parametrize("lanes", [range(2000), [1160]])  # all tasks; one that only flows name
def test_a_task_of_a_graph_that_no_number_counts_is_refused(tmp_path: Path, lanes: Sequence[int]) -> None:
    file = merged(tmp_path)
    tree = json.loads(file.read_text())
    for event in tree["traceEvents"]:
        if event.get("tid") in lanes:
            event.get("args", {})["seqNo"] = 2**40
    file.write_text(json.dumps(tree))
    with pytest.raises(npuscope.NpuscopeError, match="fits no 63 bits"):
        npuscope.read(file)


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
    cube["tensors"][2]["mem_type"] = {"asis": [3]}
    written["functions"][2]["operations"].append({"opmagic": [10], "semantic_label": "odd"})
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
    path = simulator(tmp_path / "run")
    alone = npuscope.read(path)
    assert work(alone) == [("qk", 1000, 2000)]
    assert alone.lanes["unit"].to_list() == ["AIC", "AIV", "AICPU"]
    whole = npuscope.read(tmp_path / "run")
    assert work(whole) == TRUTH
    assert balanced(whole)
    assert balanced(alone)
    first = whole.slices.filter(pl.col("task") == 1).select("dispatch", "finish").row(0)
    assert first == (600, 4000)  # handed out until cycle 1,080, its end resolved from cycle 7,200 on


def test_perf_sims_trace_is_pipes_in_cycles_with_dependencies(tmp_path: Path) -> None:
    trace = npuscope.read(perf_sim(tmp_path))
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
