"""Small runs of CANN's own PyPTO and of pto-isa's perf_sim: the same tasks in every form that its tools write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from builders import named, write_events, x

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


def simulator(folder: Path) -> Path:
    """The simulator's whole trace beside such a run: one task, and when it was handed out."""
    folder = simulated(folder)
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
    return write_events(folder / SIMULATED / "_simulate.pefetto.trace.json", events)


def perf_sim(folder: Path) -> Path:
    cube, load = "[AIC-0] CUBE", "[AIC-0] MTE2"
    events = [
        {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "Core 0"}},
        *({"ph": "M", "pid": 0, "tid": t, "name": "thread_name", "args": {"name": t}} for t in (cube, load)),
        x("TLOAD(a)", 0, 1850, pid=0, tid=load, cat=load),
        x("TMATMUL(c)", 1850, 3700, pid=0, tid=cube, cat=cube),
        {"ph": "s", "id": 1, "pid": 0, "tid": load, "ts": 1850, "name": "dep", "cat": "flow"},
        {"ph": "f", "id": 1, "pid": 0, "tid": cube, "ts": 1850, "name": "dep", "cat": "flow"},
    ]
    return write_events(folder / "gemm.json", events)
