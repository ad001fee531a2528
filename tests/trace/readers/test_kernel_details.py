"""Ascend's kernel tables: exact times, every cell kept, duplicates marked, and back again character by character."""

import csv
import io
from pathlib import Path

import polars as pl
import pytest
from builders import KERNEL_HEADER, kernel_row, refused, write_kernel_table
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope.explain.doctor import symptoms_of
from npuscope.trace.intervals import one_group
from npuscope.trace.intervals import union as union_of
from npuscope.trace.tables import unguarded

REAL = {
    # file: rows, columns, first start, span, sum, union (µs); from the captures' README
    "longcat_910c/kernel_details.csv": (3785, 47, "1779440805781809.542", 71_502.028, 89_632.564, 55_273.840),
    "msinsight_cnn/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv":
        (191, 8, "1736405443881410.320", 116_251.183, 94_344.340, 90_343.069),
    "msinsight_cnn/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv":
        (191, 46, "1736408883704643.212", 136_581.009, 114_865.613, 110_836.940),
    "msinsight_cnn/level2/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv":
        (191, 46, "1736412474730135.222", 129_862.874, 108_841.491, 104_830.239),
    "mstt_2023/kernel_details.csv": (591, 33, "1699529622790614.8", 516_885.540, 396_807.040, 394_576.980),
    "npu_mfu_sample/ASCEND_PROFILER_OUTPUT/kernel_details.csv":
        (200, 46, "1777097775243356.820", 256_232.480, 88_795.340, 87_980.780),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_tables_have_their_known_rows_and_exact_times(shared: Path, name: str) -> None:
    rows, columns, first, span, total, union = REAL[name]
    trace = npuscope.read(shared / "ascend" / name)
    _, start, dur = trace.arrays()
    whole, _, fraction = first.partition(".")
    assert trace.slices.height == rows
    assert len(trace.meta.notes["header"]) == columns
    assert trace.slices["start"].min() == int(whole + fraction.ljust(3, "0"))
    assert (trace.span[1] - trace.span[0]) / 1000 == pytest.approx(span, abs=1e-9)
    assert dur.sum() / 1000 == pytest.approx(total, abs=1e-9)
    assert union_of(one_group(start, start + dur)).length / 1000 == pytest.approx(union, abs=1e-9)


@pytest.mark.parametrize("name", ["decode_steps", "op_summary", "task_time", *REAL])
def test_a_table_comes_back_byte_by_byte(
    request: pytest.FixtureRequest, small: dict[str, Path], tmp_path: Path, name: str
) -> None:
    path = small[name] if name in small else request.getfixturevalue("shared") / "ascend" / name
    npuscope.read(path).write(tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_bytes() == path.read_bytes()


def test_longcat_steps_lanes_and_duplicates(shared: Path) -> None:
    trace = npuscope.read(shared / "ascend/longcat_910c/kernel_details.csv")
    assert trace.slices["step"].value_counts().sort("step").rows() == [(step, 757) for step in (3, 4, 5, 6, 7)]
    assert trace.meta.marked == {"collective listed logically and physically": 150, "AI_CPU row of a kernel": 140}
    again = trace.slices.filter(pl.col("duplicate_of").is_not_null())
    assert again.filter(pl.col("kind") == "comm")["Stream ID"].unique().to_list() == ["N/A"]
    # README: the longest row, an all-reduce of 14,061.241 µs, is listed twice; the physical row has its name now
    longest = trace.slices.filter(pl.col("dur") == 14_061_241)
    assert longest["kernel"].to_list() == ["HcomAllReduce_612_0_1"] * 2
    assert sorted(longest["Name"].to_list()) == ["AivKernel", "HcomAllReduce_612_0_1"]
    # README's table: sum of step 5 without duplicate collectives and AI_CPU, whose 8 Cumsum rows are work of their own
    step = trace.slices.filter((pl.col("step") == 5) & (pl.col("kind") != "comm") | pl.col("duplicate_of").is_null())
    step = step.filter(
        (pl.col("step") == 5) & pl.col("duplicate_of").is_null() & (pl.col("Accelerator Core") != "AI_CPU")
    )
    assert step["dur"].sum() == 7_890_975


def test_each_tiling_row_belongs_to_one_attention_of_its_step(shared: Path) -> None:
    slices = npuscope.read(shared / "ascend/longcat_910c/kernel_details.csv").slices
    tilings = slices.filter((pl.col("Accelerator Core") == "AI_CPU") & pl.col("duplicate_of").is_not_null())
    kernels = slices.select(pl.col("task").alias("duplicate_of"), "start", "step", "Accelerator Core")
    pairs = tilings.join(kernels, on="duplicate_of", suffix="_kernel")
    assert pairs["duplicate_of"].n_unique() == 140
    assert pairs["Accelerator Core_kernel"].unique().to_list() == ["MIX_AIC"]
    assert (pairs["step"] == pairs["step_kernel"]).all()
    assert (pairs["start"] < pairs["start_kernel"]).all()


def test_ai_cpu_work_with_shapes_is_no_duplicate(shared: Path) -> None:
    trace = npuscope.read(shared / "ascend/mstt_2023/kernel_details.csv")
    assert trace.slices["duplicate_of"].null_count() == 591  # seven AI_CPU Casts are Casts


def test_collectives_that_differ_in_a_nanosecond_are_not_duplicates(tmp_path: Path) -> None:
    comm = {"type": "HcomAllReduce", "core": "COMMUNICATION"}
    rows = [
        kernel_row(**comm, name="HcomAllReduce_1", stream="N/A", start="10.000", dur="5.000"),
        kernel_row(**comm, name="AivKernel", stream="7", start="10.000", dur="5.000"),
        kernel_row(**comm, name="HcomAllReduce_2", stream="N/A", start="20.000", dur="5.000"),
        kernel_row(**comm, name="AivKernel", stream="7", start="20.001", dur="5.000"),
    ]
    trace = npuscope.read(write_kernel_table(tmp_path / "k.csv", rows))
    assert trace.slices["duplicate_of"].to_list() == [1, None, None, None]
    assert trace.slices["kernel"].to_list() == ["HcomAllReduce_1", "HcomAllReduce_1", "HcomAllReduce_2", "AivKernel"]


def test_aicpu_kernels_of_a_collective_are_its_duplicates(tmp_path: Path) -> None:
    rows = [
        kernel_row(
            name="allgatherAicpuKernel", type="allgatherAicpuKernel", core="AI_CPU", start="9.000", dur="20.000"
        ),
        kernel_row(
            name="hcom_allGather__1", type="hcom_allGather_", core="COMMUNICATION", stream="N/A", start="10.000"
        ),
        kernel_row(name="allreduceAicpuKernel", type="allreduceAicpuKernel", core="AI_CPU", start="90.000"),
    ]
    trace = npuscope.read(write_kernel_table(tmp_path / "k.csv", rows))
    assert trace.slices["duplicate_of"].to_list() == [1, None, None]


def test_pypto_launch_rows_point_at_their_kernel(tmp_path: Path) -> None:
    rows = [
        kernel_row(
            name="simpler_aicpu_l1_exec_93", type="simpler_aicpu_l1_exec_93", core="AI_CPU", start="1.000", dur="900"
        ),
        kernel_row(name="aicore_kernel_0", type="aicore_kernel_0", core="MIX_AIC", start="5.000", dur="880"),
    ]
    assert npuscope.read(write_kernel_table(tmp_path / "k.csv", rows)).slices["duplicate_of"].to_list() == [1, None]


def test_pypto_launches_in_msprofs_table_count_once(tmp_path: Path) -> None:
    """Two scheduler threads and the kernel share a name; only the kernel's row has counters. The first thread of the
    second launch is done before its kernel starts; the last row is alone."""
    header = [
        "Op Name",
        "OP Type",
        "Task Type",
        "Task Start Time(us)",
        "Task Duration(us)",
        "Stream ID",
        "aicore_time(us)",
    ]
    launches = [(10, 40, "42", "N/A"), (11, 50, "43", "N/A"), (20, 30, "46", "0.0"),
                (100, 5, "42", "N/A"), (103, 50, "43", "N/A"), (110, 30, "46", "0.0"),
                (300, 5, "42", "N/A")]  # fmt: skip
    rows = [
        dict(zip(header, ["PYPTO_add", "N/A", "N/A", f"{start}.000", f"{dur}.000", stream, counter], strict=True))
        for start, dur, stream, counter in launches
    ]
    trace = npuscope.read(write_kernel_table(tmp_path / "op_summary_0.csv", rows, header))
    assert trace.slices["duplicate_of"].to_list() == [2, 2, None, 5, 5, None, None]
    assert trace.meta.marked == {"AI_CPU row with the name of its kernel": 4}


def test_op_summary_is_the_same_table_under_other_names(tmp_path: Path) -> None:
    header = ["Op Name", "OP Type", "Task Type", "Task Start Time(us)", "Task Duration(us)", "Stream ID"]
    row = dict(zip(header, ["MatMul_1", "MatMul", "AI_CORE", "10.5\t", "2.25", "4"], strict=True))
    trace = npuscope.read(write_kernel_table(tmp_path / "op_summary_0.csv", [row], header))
    assert trace.meta.format == "op_summary"
    assert trace.slices.select("kernel", "start", "dur", "OP Type").row(0) == ("MatMul_1", 10_500, 2_250, "MatMul")


cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), max_size=12)
times = st.tuples(st.integers(0, 10**12), st.integers(0, 999), st.sampled_from(["", "\t"]))


@given(
    rows=st.lists(st.tuples(times, times, cells, cells), max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    bom=st.booleans(),
    extra=st.lists(cells.filter(bool), unique=True, max_size=3),
)
def test_any_table_comes_back_cell_by_cell(tmp_path_factory, rows, end, bom, extra) -> None:
    folder = tmp_path_factory.mktemp("table")
    header = [
        *KERNEL_HEADER,
        *(name for name in extra if name not in KERNEL_HEADER),
        "start",
        "Name",
    ]  # our word, a repeat
    table = [
        [
            kernel_row(name=name, start=f"{s[0]}.{s[1]:03d}{s[2]}", dur=f"{d[0]}.{d[1]}").get(column, note) or "N/A"
            for column in header
        ]
        for s, d, name, note in rows
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows([header, *table])
    data = (b"\xef\xbb\xbf" if bom else b"") + text.getvalue().encode()
    (folder / "in.csv").write_bytes(data)
    trace = npuscope.read(folder / "in.csv")
    assert trace.meta.records == trace.slices.height == len(rows)
    trace.write(folder / "out.csv")
    back = (folder / "out.csv").read_bytes().decode("utf-8-sig")
    cells = pl.DataFrame(list(csv.reader(io.StringIO(back, newline=""))), orient="row")
    assert unguarded(cells).rows() == [tuple(header), *map(tuple, table)]


BAD = {
    "truncated row": ("{header}\n1,0,1,2,MatMul", "line 2: 5 cells where the header has 12"),
    "row too long": ("{header}\n{row},surplus", "line 2: 13 cells where the header has 12"),
    "no number": ("{header}\n{row}\n" + "1,0,1,2,M,M,C,soon,5,0,1,s", "line 3: 'soon' in column Start Time"),
    "not a number at all": ("{header}\n1,0,1,2,M,M,C,nan,5,0,1,s", "'nan' in column Start Time"),
    "too large": ("{header}\n1,0,1,2,M,M,C,99999999999999999999,5,0,1,s", "is not a time in microseconds"),
    "open quote": ('{header}\n1,0,1,2,"M,M,C,1,5,0,1,s', "line"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_broken_table_is_refused_with_its_line(tmp_path: Path, case: str) -> None:
    text, message = BAD[case]
    row = "1,0,1,2,M,M,C,1.000,5.000,0,1,s"
    path = tmp_path / "bad.csv"
    path.write_text(text.format(header=",".join(KERNEL_HEADER), row=row))
    message = refused(path, message)
    assert "bad.csv" in message
    assert "\n" not in message


def test_text_that_is_not_utf8_names_its_line(tmp_path: Path) -> None:
    path = write_kernel_table(tmp_path / "k.csv", [kernel_row(), kernel_row(name="K")])
    path.write_bytes(path.read_bytes().replace(b",K,", b",\xff\xfe,"))
    refused(path, r"line 3.*not UTF-8")


def test_negative_durations_and_blank_lines_are_repaired_and_counted(tmp_path: Path) -> None:
    path = write_kernel_table(tmp_path / "k.csv", [kernel_row(dur="-3.000"), kernel_row()])
    path.write_bytes(path.read_bytes() + b"\n")
    trace = npuscope.read(path)
    assert trace.slices["dur"].to_list() == [0, 5_000]
    assert trace.meta.repaired == {"negative duration set to zero": 1}
    assert (trace.meta.records, trace.meta.dropped) == (3, {"blank line": 1})


def test_a_table_without_rows_is_an_empty_trace(tmp_path: Path) -> None:
    trace = npuscope.read(write_kernel_table(tmp_path / "k.csv", []))
    assert (trace.slices.height, trace.span) == (0, (0, 0))


def test_msprofs_task_times_have_the_queues_orders_too(tmp_path: Path) -> None:
    header = ["Device_id", "kernel_name", "kernel_type", "stream_id", "task_id"]
    header += ["task_time(us)", "task_start(us)", "task_stop(us)"]
    rows = [
        ["0", "gemm_1", "KERNEL_MIX_AIC", "3", "1", "5.125", "100.500\t", "105.625\t"],
        ["0", "N/A", "EVENT_WAIT", "3", "2", "7", "106.000\t", "113.000\t"],
        ["0", "tiling", "KERNEL_AICPU", "4", "3", "2", "107.000\t", "109.000\t"],
    ]
    text = "\n".join(",".join(cells) for cells in [header, *rows]) + "\n"
    (tmp_path / "task_time_0.csv").write_text(text)
    for path in (tmp_path / "task_time_0.csv", tmp_path):  # also as all that a root has
        trace = npuscope.read(path)
        assert trace.meta.format == "task_time"
        assert trace.slices.select("kernel", "kind", "start", "dur").rows() == [
            ("gemm_1", "task", 100_500, 5_125),
            ("EVENT_WAIT", "schedule", 106_000, 7_000),
            ("tiling", "task", 107_000, 2_000),
        ]
        assert trace.lanes["name"].to_list() == ["stream 3", "stream 4"]
        assert trace.meta.unknown == {}
        assert symptoms_of(trace).symptoms == ()
    trace.write(tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_text() == text
