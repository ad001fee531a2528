"""A prediction as a plain CSV: read where it is clear, refused with the line where it is not."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from written_passes import a_pass

from npuscope import NpuscopeError
from npuscope.forward.align.alignment import align
from npuscope.forward.align.sides import CsvColumns, read_side


def test_a_csv_with_kernel_and_time(tmp_path: Path) -> None:
    path = tmp_path / "model.csv"
    path.write_text('Kernel,Latency (ms),Shapes\nMatMul,0.013,"16,512;512,768"\nattention,0.036,\n')
    trace = read_side(path)
    assert trace.slices["dur"].to_list() == [13_000, 36_000]
    assert trace.slices["start"].to_list() == [0, 13_000]
    path.write_text("op,a_us,b\nMatMul,1,2\n")
    trace = read_side(path, CsvColumns(time="b", unit="ms"))
    assert trace.slices["dur"].to_list() == [2_000_000]


def test_a_table_of_counts_is_matched_without_order(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text('kernel_type,input_shapes,count,mean_us\nSwiGlu,"16,3200",2,4\nMatMulV2,"16,512;768,512",1,12\n')
    measured = a_pass(
        [("MatMulV2", 9.0, "16,512;512,512"), ("MatMulV2", 11.0, "16,512;512,768"), ("SwiGlu", 5.0, "16,3200")]
    )
    found = align(read_side(path), measured)
    assert not found.ordered
    assert found.pairs.select("kernel", "predicted_ns", "measured_ns").rows() == [
        ("MatMulV2", 12_000, 11_000),
        ("SwiGlu", 4_000, 5_000),
    ]
    assert (found.missing["kernel"].to_list(), found.extra["kernel"].to_list()) == (["MatMulV2"], ["SwiGlu"])
    assert not found.pairs["moved"].any()
    assert found.pairs["same_shapes"].all()
    assert found.layers.is_empty()
    assert found.m6_honest == 20 / 25  # all of both
    real = read_side(shared / "measured_kernels_by_shape.csv")
    assert real.slices.height == pl.read_csv(shared / "measured_kernels_by_shape.csv")["count"].sum()


BAD = {
    "no calls": ("kernel,us\n", "no calls"),
    "not a number": ("kernel,us\nMatMul,1\nAdd,fast\n", "line 3: 'fast' in column us is not a time"),
    "nan": ("kernel,us\nMatMul,NaN\n", "line 2: 'NaN' in column us is not a time"),
    "negative": ("kernel,us\nMatMul,-1\n", "line 2"),
    "infinite": ("kernel,us\nMatMul,1e400\n", "line 2"),
    "too long": ("kernel,us\nMatMul,1e15\n", "line 2"),
    "no time": ("kernel,colour\nMatMul,blue\n", "no column of time among kernel, colour"),
    "no kernel": ("colour,us\nblue,1\n", "no column of kernel among colour, us"),
    "two times": ("kernel,time_us,latency_ms\nMatMul,1,1\n", "several columns of time: time_us, latency_ms"),
    "no unit": ("kernel,time\nMatMul,1\n", "does not say its unit"),
    "bad count": ("kernel,us,count\nMatMul,1,-2\n", "line 2: '-2' in column count is not a count"),
    "short row": ("kernel,us\nMatMul,1\nAdd\n", "line 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_csv_is_refused_with_what_is_wrong_and_where(tmp_path: Path, name: str) -> None:
    text, said = BAD[name]
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(NpuscopeError) as error:
        read_side(path)
    assert said in str(error.value)
