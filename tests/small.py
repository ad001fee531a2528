"""One small capture of each format, of our own making, so that a story about every capture runs on any machine.

`benchmarks/mutate.py` breaks them in thousands of ways.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cann_runs
import swimlanes
import xla_profiles
from builders import (
    count,
    kernel_row,
    named,
    point,
    write_bundle,
    write_database,
    write_events,
    write_kernel_table,
    write_nsys,
    write_swimlane,
    x,
)

import npuscope
from npuscope.trace.example import write_decode_run, write_decode_steps

FLOW = {"cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1}


def decode_steps(folder: Path) -> Path:
    """A kernel table with steps, streams, collectives and second tellings."""
    write_decode_steps(folder / "kernel_details.csv")
    return folder / "kernel_details.csv"


def op_summary(folder: Path) -> Path:
    """The table as msprof writes it."""
    header = ["Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "Task Type", "Task Start Time(us)",
              "Task Duration(us)", "Task Wait Time(us)", "Block Dim"]  # fmt: skip
    rows = [
        {"Device_id": "0", "Model ID": "4294967295", "Task ID": str(n), "Stream ID": str(n % 2), "Op Name": f"mm_{n}",
         "OP Type": "MatMulV2", "Task Type": "AI_CORE", "Task Start Time(us)": f"{100 + 7 * n}.{n:03d}\t",
         "Task Duration(us)": "5.25", "Task Wait Time(us)": "0", "Block Dim": "24"}
        for n in range(12)
    ]  # fmt: skip
    return write_kernel_table(folder / "op_summary_0.csv", rows, header, "\r\n")


def task_time(folder: Path) -> Path:
    """msprof's shortest table, with orders of the queue that have no name."""
    header = ["kernel_name", "kernel_type", "stream_id", "task_id", "task_time(us)", "task_start(us)", "task_stop(us)"]
    rows = [
        {"kernel_name": name, "kernel_type": kind, "stream_id": "3", "task_id": str(n), "task_time(us)": "2.5",
         "task_start(us)": f"{10 * n}.125", "task_stop(us)": f"{10 * n + 2}.625"}
        for n, (name, kind) in enumerate([("softmax", "KERNEL_AIVEC"), ("N/A", "NOTIFY_WAIT"), ("mm", "KERNEL_AICORE")])
    ]  # fmt: skip
    return write_kernel_table(folder / "task_time_0.csv", rows, header)


def chrome(folder: Path) -> Path:
    """Events of every phase that a JSON trace may have."""
    events = [
        *named("process", "thread"),
        x("outer", 0, 10), x("inner", 1, 3), x("beside", 4, 9, tid=2),
        {"ph": "B", "name": "begun", "ts": 20, "pid": 1, "tid": 1}, {"ph": "E", "ts": 25, "pid": 1, "tid": 1},
        {"ph": "b", "cat": "c", "id": 7, "name": "async", "ts": 2, "pid": 1, "tid": 1},
        {"ph": "e", "cat": "c", "id": 7, "name": "async", "ts": 8, "pid": 1, "tid": 1},
        {"ph": "i", "name": "moment", "ts": 3, "pid": 1, "tid": 1, "s": "t"},
        {"ph": "s", "id": 1, "ts": 1, "pid": 1, "tid": 1}, {"ph": "f", "id": 1, "ts": 5, "pid": 1, "tid": 2, "bp": "e"},
        count("used", 0, memory=1.5), count("used", 9, memory=2),
    ]  # fmt: skip
    return write_events(folder / "trace.json", events, displayTimeUnit="ns")


def kineto(folder: Path) -> Path:
    """torch.profiler's JSON: steps, launches, kernels, a collective, a copy."""
    events = [*named("python", "thread 1"), *named("GPU 0", "stream 7", pid=0, tid=7)]
    for step in range(3):
        begin = 1000 * step
        events.append(x(f"ProfilerStep#{step}", begin, 900, cat="user_annotation"))
        names = ("gemm", "softmax", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "gemm")
        for n, name in enumerate(names):
            id, at = 10 * step + n + 1, begin + 50 * n
            stream = 20 if "nccl" in name else 7
            told = {"device": 0, "stream": stream, "correlation": id}
            events += [
                x("aten::mm", at, 20, cat="cpu_op", args={"External id": id}),
                x("cudaLaunchKernel", at + 5, 4, cat="cuda_runtime", args={"correlation": id}),
                {**FLOW, "ph": "s", "id": id, "ts": at + 5},
                {**FLOW, "ph": "f", "id": id, "ts": at + 30, "pid": 0, "tid": stream, "bp": "e"},
                x(name, at + 30, 40, pid=0, tid=stream, cat="kernel", args=told),
            ]
        events.append(x("Memcpy HtoD", begin + 300, 8, pid=0, tid=7, cat="gpu_memcpy", args={"stream": 7, "bytes": 64}))
    return write_events(folder / "kineto.pt.trace.json", events, schemaVersion=1, distributedInfo={"rank": 0})


def trace_view(folder: Path) -> Path:
    """torch_npu's timeline: streams of the device, the host's calls, queue orders, its own overlap analysis."""
    device = [
        x(name, f"{100 + 10 * n}.250", 8, pid=33, tid=2, args={"Task Type": kind})
        for n, (name, kind) in enumerate(
            [("MatMul", "AI_CORE"), ("Add", "AI_VECTOR_CORE"), ("EVENT_WAIT", "EVENT_WAIT")]
        )
    ]
    events = [
        *named("Ascend Hardware", "Stream 2", pid=33, tid=2), *named("CANN", "Thread 9", pid=35, tid=9),
        *named("Overlap Analysis", "Computing", pid=34, tid=0), *device,
        x("launch", "90.5", 3, pid=35, tid=9), x("Computing", "100.250", 18, pid=34, tid=0),
    ]  # fmt: skip
    (folder / "trace_view.json").write_text(json.dumps(events))
    return folder / "trace_view.json"


def merged_swimlane(folder: Path) -> Path:
    """The runtime's own timeline: cores, scheduler, orchestrator, dependencies as flows."""
    events = [
        *named("Worker View", "AIC_0"), *named("Worker View", "AIV_0", tid=2),
        *named("AICPU Scheduler", "Sched_0", pid=3), *named("AICPU Orchestrator", "Orch_0", pid=4),
        x("submit(t0)", 0, 1, pid=4), x("dispatch", 1, 1, pid=3),
        x("gemm(r0t0)", 2, 5, args={"taskId": 0}), x("add(r0t1)", 8, 2, tid=2, args={"taskId": 1}),
        {"ph": "s", "id": 1, "name": "dependency", "cat": "flow", "ts": 6.99, "pid": 1, "tid": 1},
        {"ph": "f", "id": 1, "name": "dependency", "cat": "flow", "ts": 8, "pid": 1, "tid": 2, "bp": "e"},
    ]  # fmt: skip
    return write_events(folder / "merged_swimlane.json", events)


def tracr(folder: Path) -> Path:
    """A bundle of one process with two threads that hand out tasks to three cores."""
    points = {
        thread: b"".join(
            point(channel, event, 10**12 + 100 * n + thread, extra)
            for n, (channel, event, extra) in enumerate(
                [(0, 0, 0xFFFFFFFF), (2 + thread, 1, 5), (0, 65535, 0xFFFFFFFF), (2 + thread, 65535, 0xFFFFFFFF)] * 3
            )
        )
        for thread in (1, 2)
    }
    labels: dict[str, Any] = {"markerLabels": ["Phase1", "Running_Task_Single"], "num_channels": 5}
    names = ["AICPU_0", "AICPU_1", "AICube_0", "AIVector_0", "AIVector_1"]
    return write_bundle(folder / "tracr", points, channel_names=names, start_time=10**12, **labels)


def tracr_perfetto(folder: Path) -> Path:
    """TraCR's own post-processor's JSON: a process, its threads, tasks on two cores."""
    lanes = ("AICPU_0", "AICube_0", "AIVector_0")
    names = [event for n, lane in enumerate(lanes) for event in named("TraCR proc.1000", lane, tid=n)]
    tasks = [x(f"Running_Task_{n}", 10 * n, 7, tid=1 + n % 2, args={"extra_id": 5}) for n in range(6)]
    return write_events(folder / "perfetto.json", [*names, x("Phase1", 0, 60, tid=0), *tasks])


def both(folder: Path) -> Path:
    """A swimlane and the bundle of the same run: each core's tasks in the same order."""
    swimlanes.write(folder / "both", swimlanes.august())
    points = [
        point(0, 0, 10**6), point(1, 1, 10**6 + 200, 5), point(1, 65535, 10**6 + 9_000), point(2, 1, 10**6 + 12_000, 5),
        point(2, 65535, 10**6 + 15_000), point(1, 1, 10**6 + 16_000, 6), point(1, 65535, 10**6 + 20_000),
        point(0, 65535, 10**6 + 21_000),
    ]  # fmt: skip
    names = ["AICPU_0", "AICube_0", "AIVector_0", "AIVector_1"]
    labels: dict[str, Any] = {"markerLabels": ["Phase1", "Running_Task_Single"], "num_channels": 4}
    write_bundle(folder / "both" / "tracr", {1: b"".join(points)}, channel_names=names, start_time=10**6, **labels)
    return folder / "both"


def nsys(folder: Path) -> Path:
    process = 7 << 24
    kernel = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": process, "demangledName": 1, "shortName": 2}
    kernels = [{**kernel, "start": 100 * n, "end": 100 * n + 60, "correlationId": n} for n in range(1, 5)]
    call = {"globalTid": process + 9, "nameId": 3, "returnValue": 0}
    calls = [{**call, "start": 100 * n - 50, "end": 100 * n - 40, "correlationId": n} for n in range(1, 5)]
    tables = {"CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": calls}
    return write_nsys(folder / "report.sqlite", {1: "void gemm(int)", 2: "gemm", 3: "cudaLaunchKernel"}, **tables)


def ascend_db(folder: Path) -> Path:
    tasks = [(1000 * n, 1000 * n + 700, 2 + n % 2, n % 3) for n in range(9)]
    return write_database(folder / "ascend_pytorch_profiler_0.db", tasks, {0: "MatMul", 1: "Add", 2: "hcom_allReduce_"})


def rocprof(folder: Path) -> Path:
    gpu = {"handle": 900}
    where: dict[str, Any] = {"agent_id": gpu, "queue_id": {"handle": 2}, "kernel_id": 17}
    dispatches = [
        {"kind": 11, "operation": 1, "thread_id": 5, "correlation_id": {"internal": n}, "start_timestamp": 1000 * n,
         "end_timestamp": 1000 * n + 400, "dispatch_info": {**where, "dispatch_id": n}}
        for n in range(1, 5)
    ]  # fmt: skip
    entry = {
        "metadata": {"pid": 5},
        "agents": [{"id": gpu, "type": 2, "product_name": "MI300X"}],
        "kernel_symbols": [{"kernel_id": 17, "kernel_name": "gemm.kd", "formatted_kernel_name": "gemm(int)"}],
        "strings": {"buffer_records": []},
        "buffer_records": {"kernel_dispatch": dispatches},
    }
    (folder / "results.json").write_text(json.dumps({"rocprofiler-sdk-tool": [entry]}))
    return folder / "results.json"


def decode_run(folder: Path) -> Path:
    """A swimlane with its dependencies and names, as a folder."""
    write_decode_run(folder / "run")
    return folder / "run"


def npu(folder: Path) -> Path:
    """npuscope's own folder."""
    npuscope.read(write_swimlane(folder / "source", [[0, 1, 1, 1000, 2000, 0], [1, 2, 1, 2500, 3000, 0]])).write(
        folder / "trace.npu"
    )
    return folder / "trace.npu"


def ranks(folder: Path) -> Path:
    """A profiler root of two ranks."""
    for rank in range(2):
        place = folder / "root" / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        place.mkdir(parents=True)
        rows = [kernel_row(start=f"{1000 + 10 * n + rank}.5", dur="7.25") for n in range(6)]
        write_kernel_table(place / "kernel_details.csv", rows)
    return folder / "root"


def cann_pypto(folder: Path) -> Path:
    """The output folder of CANN's own PyPTO."""
    return cann_runs.simulated(folder / "output")


def dispatches(folder: Path) -> Path:
    """A run over two ranks, with the host's log of one of them."""
    for rank in range(2):
        place = folder / "run" / f"rank{rank}" / "d0"
        place.mkdir(parents=True)
        swimlanes.write(place, next(iter(swimlanes.LAYOUTS.values()))())
        (place / "dispatch_identity.json").write_text('{"run_id": 1, "endpoint_dispatch_id": 1}')
    host_log(folder / "run")
    return folder / "run"


def host_log(folder: Path) -> Path:
    """A call of the host, from bind to its end."""
    spans = (("chip.run.bind", 1, 1000, 400), ("chip.run.runner_run", 1, 1500, 9000), ("chip.run", 0, 900, 9800))
    lines = [
        f"[mono_ns={ts + dur}][T0x1][TIMING] emit_host_span: [STRACE] v=1 pid=7 tid=7 inv=1 hid=ab depth={depth} "
        f"name={name} ts={ts} dur={dur} {'run_id=1 dispatch_id=1' if not depth else ''}"
        for name, depth, ts, dur in spans
    ]
    path = folder / "host.7.log"
    path.write_text("\n".join(lines) + "\n")
    return path


SERVED = [
    {"name": "process_name", "ph": "M", "pid": 6, "tid": 0, "args": {"name": "pypto-serving"}},
    {"name": "scheduler.schedule", "cat": "scheduler", "ph": "X", "ts": 100, "dur": 20, "pid": 6, "tid": 1, "args": {}},
    {"name": "scheduler.process_step_output", "cat": "scheduler", "ph": "X", "ts": 900, "dur": 30, "pid": 6, "tid": 1,
     "args": {"new_tokens": 4}},
]  # fmt: skip


def serving(folder: Path) -> Path:
    """A profile of pypto-serving in fragments, the last line cut off."""
    place = folder / "profile" / "fragments"
    place.mkdir(parents=True)
    (place / "trace.6.jsonl").write_text("\n".join(map(json.dumps, SERVED)) + '\n{"name": "sched')
    return folder / "profile"


def serving_merged(folder: Path) -> Path:
    (folder / "trace.json").write_text(json.dumps({"traceEvents": SERVED}))
    return folder / "trace.json"


def scope_stats(folder: Path) -> Path:
    """How full two rings were, as version 6 counts."""
    head = {"version": 6, "fatal": False, "dropped": 0, "total": 2, "task_window_max": [8, 4], "heap_max": [4096, 4096],
            "dep_pool_max": [64, 64], "tensormap_max": 128}  # fmt: skip
    zero = {"site": "a.cpp:7", "phase": "begin", "depth": 1, "ring": 1, "task_window_start": 0, "task_window_end": 0,
            "heap_start": 0, "heap_end": 0, "dep_pool_start": 1, "dep_pool_end": 1, "tensormap": 0}  # fmt: skip
    end = {**zero, "phase": "end", "task_window_end": 4, "heap_end": 1024, "dep_pool_end": 6, "tensormap": 5}
    (folder / "scope_stats.jsonl").write_text("\n".join(map(json.dumps, (head, zero, end))) + "\n")
    return folder / "scope_stats.jsonl"


def host_phases(folder: Path) -> Path:
    """Phases of one bind."""
    records = [{"phase": "args", "start_ns": 1000, "end_ns": 1100, "detail": 4096, "tid": 7}]
    line = {"pid": 7, "inv": 1, "clock": "host_monotonic_ns", "dropped": 0, "records": records}
    (folder / "host_phase_records.jsonl").write_text(json.dumps(line) + "\n")
    return folder / "host_phase_records.jsonl"


def counted_tasks(folder: Path) -> Path:
    """A swimlane with counters of its tasks, their arguments and its rings beside it."""
    path = write_swimlane(folder / "counted", [[0, 1, 1, 1000, 2000, 0], [1, 2, 1, 2500, 3000, 0]])
    place = path if path.is_dir() else path.parent
    rows = ["0,0,0x1,0,0,1000,0,600,10,0,300,0,1,9,2", "0,1,0x2,0,1,500,100,0,10,0,300,0,1,9,2"]
    counters = "vec_busy_cycles,cube_busy_cycles,scalar_busy_cycles,mte1_busy_cycles,mte2_busy_cycles,mte3_busy_cycles"
    head = f"thread_id,core_id,task_id,func_id,core_type,pmu_total_cycles,{counters},icache_miss,icache_req,event_type"
    (place / "pmu.csv").write_text("\n".join([head, *rows]) + "\n")
    argument = {"task_id": "0x1", "role": "input", "kind": "tensor", "dtype": "float32", "shape": [16, 4]}
    (place / "args_dump.json").write_text(json.dumps({"dropped_records": 3, "args": [argument]}))
    scope_stats(place)
    return place


def _swimlane(layout: Callable[[], swimlanes.Layout]) -> Callable[[Path], Path]:
    return lambda folder: swimlanes.write(folder, layout())


SMALL: dict[str, Callable[[Path], Path]] = {
    made.__name__: made
    for made in (decode_steps, op_summary, task_time, chrome, kineto, trace_view, merged_swimlane, tracr,
                 tracr_perfetto, both, nsys, ascend_db, rocprof, decode_run, npu, ranks, cann_pypto, dispatches,
                 host_log, serving, serving_merged, scope_stats, host_phases, counted_tasks)
} | {
    "cann_swimlane": cann_runs.merged, "cann_simulator": cann_runs.simulator, "perf_sim": cann_runs.perf_sim,
    "xplane": xla_profiles.xplane, "xla_viewer": xla_profiles.viewer,
} | {f"swimlane_{name}": _swimlane(layout) for name, layout in swimlanes.LAYOUTS.items()}  # fmt: skip
