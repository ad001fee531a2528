"""The profiler's SQLite database."""

import sqlite3
from pathlib import Path

import polars as pl
import pytest
from builders import balanced, refused, write_database
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope.explain.doctor import symptoms_of


def test_the_real_database_has_its_known_tables(shared: Path) -> None:
    trace = npuscope.read(shared / "ascend/msinsight_cnn_db/level2/ascend_pytorch_profiler_0.db")
    # README: TASK 552, COMMUNICATION_OP 4, PYTORCH_API 2460; and CANN_API 1133
    assert trace.slices.height == 552 + 4 + 2460 + 1133
    # HBM 104, AICORE_FREQ 3, NPU_MODULE_MEM 1078 with a number each; LLC 26, NPU_MEM 27, SOC_BANDWIDTH_LEVEL 16 with
    # two, MEMORY_RECORD 990 with three, ACC_PMU 688 with four
    assert trace.counters.height == 104 + 3 + 1078 + 2 * (26 + 27 + 16) + 3 * 990 + 4 * 688
    assert balanced(trace)
    assert trace.meta.unknown == {}
    assert trace.select(kind="task").slices.height == 187
    assert trace.meta.marked == {"part of a collective that is listed whole": 296}
    assert (trace.meta.device, trace.lanes["rank"].unique().to_list()) == ("Ascend910B", [0])
    step = trace.slices.filter(pl.col("step") == 50)
    assert step["start"].min() >= 1736414119633143240  # type: ignore[operator]
    assert step["start"].max() < 1736414119776885110  # type: ignore[operator]
    kernel = trace.slices.filter(pl.col("kernel") == "trans_TransData_0")
    assert kernel["inputShapes"].item() == '"32,3,224,224"'
    assert kernel["aiv_total_cycles"].item() > 0


def test_samples_are_counters_of_their_device(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.db", [(5, 9, 2, 1)], {0: "AI_CORE", 1: "MatMul", 2: "read"})
    execute(path, "create table HBM (deviceId, timestampNs, bandwidth, hbmId, type)")
    execute(path, "insert into HBM values (3, 7, 12.5, 0, 2), (3, 8, 'much', 0, 2), (3, null, 1, 0, 2)")
    trace = npuscope.read(path)
    samples = trace.counters.join(trace.lanes, on="lane", suffix=" of lane")
    assert samples.select("name of lane", "device", "name", "time", "value").rows() == [
        ("HBM", 3, "HBM 0 read B/s", 7, 12.5)
    ]
    assert trace.meta.dropped == {"sample without a usable time or number": 2}
    assert balanced(trace)


@pytest.mark.parametrize(
    ("statement", "what", "count", "severity"),
    [
        ("create table MOODS as select 1 a union select 2", "table 'MOODS'", 2, "warning"),
        ("alter table TASK add column mood", "column of TASK 'mood'", 1, "note"),
        (
            "create table HBM (deviceId, timestampNs, speed)",
            "form of the table HBM, which lacks 'bandwidth'",
            1,
            "warning",
        ),
    ],
)
def test_what_nobody_knows_is_reported(tmp_path: Path, statement: str, what: str, count: int, severity: str) -> None:
    path = write_database(tmp_path / "x.db", [(5, 9, 2, 1)], {0: "AI_CORE", 1: "MatMul"})
    execute(path, statement)
    trace = npuscope.read(path)
    assert trace.meta.unknown == {what: count}
    assert [(f.what, f.severity) for f in symptoms_of(trace).symptoms] == [(f"unknown {what}", severity)]


def test_a_task_without_a_stream_has_a_lane(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.db", [(5, 9, 2, 1)], {0: "AI_CORE", 1: "MatMul"})
    execute(path, "update TASK set streamId = null")
    trace = npuscope.read(path)
    assert trace.lanes["name"].to_list() == ["stream unknown"]
    trace.write(tmp_path / "x.pftrace")


def test_names_and_times_are_exact(tmp_path: Path) -> None:
    start = 1_736_414_119_646_051_168
    path = write_database(tmp_path / "x.db", [(start, start + 7, 2, 1)], {0: "AI_CORE", 1: "MatMul"})
    assert npuscope.read(path).slices.select("start", "dur", "kernel").row(0) == (start, 7, "MatMul")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "not readable as a profiler database|malformed"),
        (lambda path: path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4000), "not readable"),
        (lambda path: execute(path, "drop table TASK"), "no TASK"),
        (lambda path: execute(path, "alter table TASK drop column startNs"), "lacks the column startNs"),
    ],
)
def test_a_damaged_database_is_refused(tmp_path: Path, damage, message: str) -> None:
    path = write_database(tmp_path / "x.db", [(n, n + 1, 2, 1) for n in range(300)], {0: "AI_CORE", 1: "MatMul"})
    damage(path)
    refused(path, message)


def execute(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


def test_rows_without_times_are_counted(tmp_path: Path) -> None:
    path = write_database(tmp_path / "x.db", [(5, 9, 2, 1), (9, 5, 2, 1)], {0: "AI_CORE", 1: "MatMul"})
    execute(path, "update TASK set startNs = 'soon' where taskId = 0")
    trace = npuscope.read(path)
    assert trace.meta.dropped == {"row without a usable time": 1}
    assert trace.meta.repaired == {"negative duration set to zero": 1}


def test_ai_cpu_tasks_with_the_name_of_their_kernel_tell_it_again(tmp_path: Path) -> None:
    names = {1: "PYPTO_add", 2: "KERNEL_AICPU", 3: "KERNEL_MIX_AIC", 4: "MEMCPY_ASYNC"}
    tasks = [(1000, 5000, 42, 1), (1100, 5100, 43, 1), (1500, 4500, 46, 1), (6000, 7000, 46, 9)]
    path = write_database(tmp_path / "ascend_pytorch_profiler_0.db", tasks, names)
    with sqlite3.connect(path) as db:
        for number, kind in enumerate([2, 2, 3, 4]):
            db.execute("update TASK set taskType = ? where globalTaskId = ?", (kind, number))
        db.execute("delete from COMPUTE_TASK_INFO where globalTaskId = 3")
    db.close()
    trace = npuscope.read(path)
    assert trace.slices["duplicate_of"].to_list() == [2, 2, None, None]
    assert trace.slices["kind"].to_list() == ["task", "task", "task", "copy"]
    assert trace.meta.marked["AI_CPU row with the name of its kernel"] == 2


cell = st.one_of(st.integers(-5, 10**12), st.none(), st.text(max_size=2), st.floats(), st.integers(2**62, 2**63 - 1))
task = st.tuples(*[cell] * 8)
sample = st.tuples(*[cell] * 5)


@given(st.lists(task, max_size=5), st.lists(sample, max_size=5))
def test_every_row_is_accounted_for(tmp_path_factory: pytest.TempPathFactory, tasks: list, samples: list) -> None:
    path = write_database(tmp_path_factory.mktemp("d") / "x.db", [(5, 9, 2, 1)], {0: "AI_CORE", 1: "MatMul"})
    with sqlite3.connect(path) as db:
        db.executemany("insert into TASK values (?, ?, ?, ?, ?, ?, ?, ?)", tasks)
        db.execute("create table HBM (deviceId, timestampNs, bandwidth, hbmId, type)")
        db.executemany("insert into HBM values (?, ?, ?, ?, ?)", samples)
    db.close()
    trace = npuscope.read(path)
    assert trace.meta.records == 1 + len(tasks) + len(samples)
    assert balanced(trace)
    trace.write(path.with_suffix(".npu"))
    back = npuscope.read(path.with_suffix(".npu"))
    assert back.slices.equals(trace.slices)
    assert back.counters.equals(trace.counters)
