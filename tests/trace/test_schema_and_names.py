"""Times as text, annotations of steps and shapes of tensors mean what their writers meant."""

from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import polars as pl
import pytest
from builders import KERNEL_HEADER, kernel_row, write_kernel_table
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope.trace.names import StepMark, numbered, step_mark, with_tensors
from npuscope.trace.schema import needs_rounding, ns_from_us, us_from_ns


def ns(text: str) -> int | None:
    return pl.select(ns_from_us(pl.lit(text))).item()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1779440805781809.542\t", 1_779_440_805_781_809_542),  # float64 would be 42 ns off
        ("1699529622790614.8", 1_699_529_622_790_614_800),  # 2023: as few digits as needed
        ("308926", 308_926_000),
        ("-0.5", -500),
        ("27.9605625", 27_961),  # digits below the nanosecond round
        ("4.2999999999999545", 4_300),  # a float64 printed in full
        ("0", 0),
    ],
)
def test_text_of_the_profilers_is_read_exactly(text: str, expected: int) -> None:
    assert ns(text) == expected


@pytest.mark.parametrize(
    "text", ["N/A", "", "12a", "1.2.3", "1.-5", "99999999999999999999", "9999999999999999.0", "nan"]
)
def test_what_is_not_a_time_is_null(text: str) -> None:
    assert ns(text) is None


@given(st.integers(-(10**15), 10**15), st.text("0123456789", max_size=9))
def test_any_decimal_equals_exact_arithmetic(whole: int, fraction: str) -> None:
    text = f"{whole}.{fraction}" if fraction else str(whole)
    exact = (Decimal(text) * 1000).quantize(Decimal(1), rounding=ROUND_HALF_EVEN)
    assert ns(text) == int(exact)


@given(st.integers(-(10**18), 4 * 10**18))
def test_nanoseconds_survive_the_way_to_text_and_back(nanoseconds: int) -> None:
    text = pl.select(us_from_ns(pl.lit(nanoseconds, dtype=pl.Int64))).item()
    assert ns(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "said"), [("1.2345", True), ("1.2340000000001", False), ("1.2339999999", False), ("1.23", False)]
)
def test_rounding_is_reported_only_where_something_was_said(text: str, said: bool) -> None:
    assert pl.select(needs_rounding(pl.lit(text))).item() is said


VLLM, SGLANG, TORCH = "execute_", "step[", "ProfilerStep#"


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("ProfilerStep#17", StepMark(TORCH, 17)),
        ("execute_context_1(888_788544)_generation_0(0)", StepMark(VLLM, None, "prefill", 888)),
        ("execute_context_0(0)_generation_32(32)", StepMark(VLLM, None, "decode", 32)),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
         StepMark(VLLM, None, "decode", 32)),
        ("execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk34489)", StepMark(VLLM, None, "mixed", 8192)),
        ("step[EXTEND bs=15 toks=15360]", StepMark(SGLANG, None, "prefill", 15360)),
        ("step[DECODE bs=32]", StepMark(SGLANG, None, "decode", 32)),
        ("step[TARGET_VERIFY bs=4]", StepMark(SGLANG, None, "target_verify", None)),
        ("execute_diffusion_1_256x256", None),
        ("execute_context", None),
        ("ProfilerStep#x", None),
        ("capture_32_DECODE", None),
    ],
)  # fmt: skip
def test_names(name: str, mark: StepMark | None) -> None:
    assert step_mark(name) == mark


def test_the_spelling_with_most_marks_counts() -> None:
    decode, extend = "execute_context_0(0)_generation_1(1)", "step[EXTEND bs=1 toks=5]"
    assert numbered(["ProfilerStep#4", decode, "ProfilerStep#5", decode]) == [4, None, 5, None]  # one in each
    assert numbered(["ProfilerStep#4", decode, decode]) == [None, 0, 1]  # many in one
    assert numbered([decode, extend]) == [0, None]  # SGLang's is inside the other
    assert numbered(["nothing"]) == [None]


HEADER = [*KERNEL_HEADER, "Input Data Types", "Input Formats"]


@pytest.mark.parametrize(
    ("shapes", "dtypes", "formats", "expected"),
    [
        ('"4,8;9,2,16"', "DT_BF16;INT8", "ND;NZ", ([[4, 8], [9, 2, 16]], ["BF16", "INT8"], ["ND", "NZ"])),
        ('"84;"', "INT64;INT64", "FORMAT_ND;FORMAT_ND", ([[84], []], ["INT64", "INT64"], ["ND", "ND"])),
        ('""', "FLOAT", "ND", ([[]], ["FLOAT"], ["ND"])),
        ('"8"', "65534", "NULL", ([[8]], [None], [None])),
        ("N/A", "N/A", "N/A", (None, None, None)),
    ],
)  # fmt: skip
def test_text_of_the_profiler_becomes_lists(
    tmp_path: Path, shapes: str, dtypes: str, formats: str, expected: tuple
) -> None:
    row = {**kernel_row(shapes=shapes), "Input Data Types": dtypes, "Input Formats": formats}
    slices = with_tensors(npuscope.read(write_kernel_table(tmp_path / "k.csv", [row], HEADER)).slices)
    assert slices.select("input_shapes", "input_dtypes", "input_formats").row(0) == expected


@pytest.mark.parametrize("name", ["longcat_910c", "mstt_2023", "npu_mfu_sample/ASCEND_PROFILER_OUTPUT"])
def test_real_rows_have_equal_slots(shared: Path, name: str) -> None:
    slices = with_tensors(npuscope.read(shared / "ascend" / name / "kernel_details.csv").slices)
    for side in ("input", "output"):
        shapes, dtypes, formats = (slices[f"{side}_{what}"].list.len() for what in ("shapes", "dtypes", "formats"))
        assert not ((shapes != dtypes) | (dtypes != formats)).any()
    assert slices["input_shapes"].is_not_null().sum() == (slices["Input Shapes"] != "N/A").sum()


def test_the_database_speaks_the_same_language(shared: Path) -> None:
    trace = npuscope.read(shared / "ascend/msinsight_cnn_db/level2/ascend_pytorch_profiler_0.db")
    row = with_tensors(trace.slices).filter(pl.col("kernel") == "trans_TransData_0")
    assert row["input_shapes"].item().to_list() == [[32, 3, 224, 224]]
