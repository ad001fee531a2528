"""Large captures for benchmarks, made from a seed or by repeating a real one."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import orjson
import polars as pl

PMU = [
    "aicore_time(us)",
    "aic_total_cycles",
    "aic_mac_time(us)",
    "aic_mac_ratio",
    "aic_scalar_time(us)",
    "aic_scalar_ratio",
    "aic_mte1_time(us)",
    "aic_mte1_ratio",
    "aic_mte2_time(us)",
    "aic_mte2_ratio",
    "aic_fixpipe_time(us)",
    "aic_fixpipe_ratio",
    "aic_icache_miss_rate",
    "aiv_time(us)",
    "aiv_total_cycles",
    "aiv_vec_time(us)",
    "aiv_vec_ratio",
    "aiv_scalar_time(us)",
    "aiv_scalar_ratio",
    "aiv_mte2_time(us)",
    "aiv_mte2_ratio",
    "aiv_mte3_time(us)",
    "aiv_mte3_ratio",
    "aiv_icache_miss_rate",
    "cube_utilization(%)",
]


def kernel_table(path: Path, rows: int) -> Path:
    """A kernel_details.csv of 47 columns, as CANN of 2026 writes it."""
    rng = np.random.default_rng(7)
    number = np.arange(rows)
    start = 1_779_440_805_781_809_542 + np.cumsum(rng.integers(2_000, 60_000, rows))
    kinds = np.array(["MatMulV2", "RmsNorm", "SwiGlu", "FusedInferAttentionScore", "RotaryMul", "Add", "Cast"])
    which = rng.integers(0, len(kinds), rows)
    shapes = np.array([f'"16,{64 << n};{64 << n},5120"' for n in range(len(kinds))])
    frame = pl.DataFrame({"n": number, "start": start, "kind": kinds[which], "shape": shapes[which]})
    us = pl.col("start").cast(pl.String)
    columns = {
        "Step Id": (pl.col("n") // 757).cast(pl.String),
        "Device_id": pl.lit("4"),
        "Model ID": pl.lit("4294967295"),
        "Task ID": (pl.col("n") % 65535).cast(pl.String),
        "Stream ID": pl.lit("46"),
        "Name": pl.concat_str("kind", pl.lit("_"), (pl.col("n") % 757).cast(pl.String)),
        "Type": pl.col("kind"),
        "OP State": pl.lit("static"),
        "Accelerator Core": pl.lit("AI_CORE"),
        "Start Time(us)": pl.concat_str(us.str.slice(0, 16), pl.lit("."), us.str.slice(16), pl.lit("\t")),
        "Duration(us)": pl.concat_str((pl.col("n") % 90 + 1).cast(pl.String), pl.lit(".620")),
        "Wait Time(us)": pl.lit("0.110000"),
        "Block Num": pl.lit("24"),
        "Mix Block Num": pl.lit("0"),
        "HF32 Eligible": pl.lit("NO"),
        "Input Shapes": pl.col("shape"),
        "Input Data Types": pl.lit("DT_BF16;DT_BF16"),
        "Input Formats": pl.lit("ND;FRACTAL_NZ"),
        "Output Shapes": pl.lit('"16,5120"'),
        "Output Data Types": pl.lit("DT_BF16"),
        "Output Formats": pl.lit("ND"),
        "Context ID": pl.lit("N/A"),
        **{name: ((pl.col("n") * 7 % 9973) / 1000).cast(pl.String) for name in PMU},
    }
    frame.select(expression.alias(name) for name, expression in columns.items()).write_csv(path)
    return path


def tracr_bundle(root: Path, events: int) -> Path:
    """A bundle of 77 channels written by four AICPU threads: polling phases and tasks on 72 cores."""
    rng = np.random.default_rng(11)
    labels = ["Phase1", "Phase4", "Running_Task_Single"]
    names = (
        [f"AICPU_{i}" for i in range(4)]
        + [f"AICube_{i}" for i in range(24)]
        + [f"AIVector_{i}" for i in range(48)]
        + ["INVALID"]
    )
    record = np.dtype([("channel", "<u2"), ("event", "<u2"), ("extra", "<u4"), ("time", "<u8")])
    process = root / "proc.1000"
    for thread in range(4):
        count = events // 4
        data = np.empty(count, dtype=record)
        data["time"] = 10**12 + np.cumsum(rng.integers(20, 400, count))
        polls = rng.random(count) < 0.8
        data["channel"], data["event"] = thread, rng.integers(0, 2, count)
        data["extra"] = 0xFFFFFFFF
        # the rest dispatch and retire tasks on the thread's own 18 cores, in turn
        core = np.flatnonzero(~polls)
        pair = np.arange(len(core)) // 2
        data["channel"][core] = 4 + thread * 18 + pair % 18
        data["event"][core] = np.where(np.arange(len(core)) % 2 == 0, 2, 65535)
        data["extra"][core] = pair % 7
        folder = process / f"thread.{thread}"
        folder.mkdir(parents=True)
        data.tofile(folder / "traces.bts")
    metadata = {
        "markerLabels": labels,
        "markerColorIds": [1, 2, 3],
        "markerTypes": {"1": "a"},
        "channel_names": names,
        "num_channels": 77,
        "pid": 1000,
        "start_time": 10**12,
    }
    (process / "metadata.json").write_text(json.dumps(metadata))
    return root


def repeat_kernel_table(source: Path, target: Path, times: int, with_steps: int) -> Path:
    """A kernel table several times over, later each time; steps are counted on, or all N/A."""
    cells = pl.read_csv(source, infer_schema=False)
    ns = pl.col("Start Time(us)").str.strip_chars().str.replace(".", "", literal=True).cast(pl.Int64)
    span = int(cells.select(ns.max() - ns.min()).item()) + 1_000_000
    steps = cells["Step Id"].n_unique()
    with target.open("wb") as out:
        for turn in range(times):
            later = (ns + turn * span).cast(pl.String)
            text = pl.concat_str(later.str.slice(0, 16), pl.lit("."), later.str.slice(16), pl.lit("\t"))
            step = (pl.col("Step Id").cast(pl.Int64) + turn * steps).cast(pl.String) if with_steps else pl.lit("N/A")
            rows = cells.with_columns(text.alias("Start Time(us)"), step.alias("Step Id"))
            out.write(rows.write_csv(include_header=turn == 0).encode())
    return target


def repeat_kineto(source: Path, target: Path, times: int) -> Path:
    """A torch-profiler trace several times over, with times and ids shifted so that nothing collides."""
    data = orjson.loads(gzip.decompress(source.read_bytes()))
    events = data.pop("traceEvents")
    stamps = [e["ts"] for e in events if "ts" in e]
    span = int(max(stamps) - min(stamps)) + 1000
    step = 1 + max(e["id"] for e in events if isinstance(e.get("id"), int))
    with gzip.open(target, "wb", compresslevel=1) as out:
        out.write(orjson.dumps(data)[:-1] + b',"traceEvents":[')
        for turn in range(times):
            shifted = []
            for event in events:
                event = {**event, "ts": event["ts"] + turn * span}
                if isinstance(event.get("id"), int):
                    event["id"] += turn * step
                if "correlation" in event.get("args", {}):
                    event["args"] = {**event["args"], "correlation": event["args"]["correlation"] + turn * step}
                shifted.append(orjson.dumps(event))
            out.write((b"," if turn else b"") + b",\n".join(shifted))
        out.write(b"]}")
    return target


def chrome_trace(path: Path, events: int) -> Path:
    """Plain Chrome JSON: short slices on a hundred lanes."""
    with path.open("w") as out:
        out.write("[")
        for n in range(events):
            event = f'{{"ph":"X","name":"k{n % 50}","pid":1,"tid":{n % 100},"ts":{n},"dur":1.5,"args":{{"i":{n}}}}}'
            out.write(f"{',' if n else ''}{event}\n")
        out.write("]")
    return path


def chip_swimlane(folder: Path, tasks: int) -> Path:
    """A run of simpler on 24 cube and 48 vector cores: swimlane of level 2, and a dependency per task."""
    rng = np.random.default_rng(7)
    cores, number = 72, np.arange(tasks)
    core, slot = number % cores, number // cores
    run = rng.integers(1_000, 4_000, tasks)
    start = 100_000 + slot * 5_000 + core * 60 + rng.integers(300, 900, tasks)
    dispatch, finish = start - rng.integers(50, 250, tasks), start + run + rng.integers(20, 100, tasks)
    records = {
        "chip_swimlane_level": 2,
        "metadata": {"clock_freq_hz": 50_000_000, "num_cores": cores, "core_types": ["aic"] * 24 + ["aiv"] * 48},
        "aicore_tasks": np.stack([core, number, slot + 1, start, start + run, np.zeros_like(number)], axis=1),
        "aicpu_tasks": np.stack([core, slot + 1, dispatch, finish], axis=1),
    }
    folder.mkdir(parents=True)
    path = folder / "chip_swimlane_records.json"
    path.write_bytes(orjson.dumps(records, option=orjson.OPT_SERIALIZE_NUMPY))
    producers = number[: -2 * cores]
    consumers = producers + rng.integers(cores, 2 * cores, len(producers))
    functions = [[n % 20, -1, -1] if n % cores < 24 else [-1, n % 20, -1] for n in range(tasks)]
    deps = {
        "tasks": [{"task_id": str(n), "kernel_ids": ids} for n, ids in enumerate(functions)],
        "edges": [
            {"pred": str(a), "succ": str(b), "source": "tensormap"}
            for a, b in zip(producers.tolist(), consumers.tolist(), strict=True)
        ],
    }
    (folder / "deps.json").write_bytes(orjson.dumps(deps))
    return path


if __name__ == "__main__":
    # a process of its own for each capture: a benchmark's memory must not count the memory of making its input
    name, *arguments = sys.argv[1:]
    maker = {
        "kernel_table": kernel_table,
        "tracr_bundle": tracr_bundle,
        "repeat_kernel_table": repeat_kernel_table,
        "repeat_kineto": repeat_kineto,
        "chrome_trace": chrome_trace,
        "chip_swimlane": chip_swimlane,
    }[name]
    maker(*(int(a) if a.isdigit() else Path(a) for a in arguments))  # type: ignore[operator]
