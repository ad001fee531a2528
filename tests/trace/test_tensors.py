"""Shapes, dtypes and formats, parsed on demand."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from builders import KERNEL_HEADER, kernel_row, write_kernel_table

import npuscope
from npuscope.trace.names import with_tensors

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
    slices = with_tensors(npuscope.read(write_kernel_table(tmp_path / "k.csv", [row], HEADER)))
    assert slices.select("input_shapes", "input_dtypes", "input_formats").row(0) == expected


@pytest.mark.parametrize("name", ["longcat_910c", "mstt_2023", "npu_mfu_sample/ASCEND_PROFILER_OUTPUT"])
def test_real_rows_have_equal_slots(shared: Path, name: str) -> None:
    slices = with_tensors(npuscope.read(shared / "ascend" / name / "kernel_details.csv"))
    for side in ("input", "output"):
        shapes, dtypes, formats = (slices[f"{side}_{what}"].list.len() for what in ("shapes", "dtypes", "formats"))
        assert not ((shapes != dtypes) | (dtypes != formats)).any()
    assert slices["input_shapes"].is_not_null().sum() == (slices["Input Shapes"] != "N/A").sum()


def test_the_database_speaks_the_same_language(shared: Path) -> None:
    trace = npuscope.read(shared / "ascend/msinsight_cnn_db/level2/ascend_pytorch_profiler_0.db")
    row = with_tensors(trace).filter(pl.col("kernel") == "trans_TransData_0")
    assert row["input_shapes"].item().to_list() == [[32, 3, 224, 224]]
