"""What `info` says of a capture."""

from pathlib import Path

from builders import kernel_row, write_kernel_table

import npuscope
from npuscope.explain.summary import summarise


def test_a_small_table_by_hand(tmp_path: Path) -> None:
    comm = {"type": "HcomAllReduce", "core": "COMMUNICATION", "start": "40.000", "dur": "10.000"}
    rows = [
        kernel_row(name="MatMul_1", start="10.000", dur="5.000", step="1"),
        kernel_row(name="MatMul_2", start="20.000", dur="7.000", step="2"),
        kernel_row(name="HcomAllReduce_1", stream="N/A", step="2", **comm),
        kernel_row(name="AivKernel", stream="9", step="2", **comm),
    ]
    summary = summarise(npuscope.read(write_kernel_table(tmp_path / "k.csv", rows)))
    assert (summary.slices, summary.tasks, summary.meta.records) == (4, 4, 4)
    assert summary.lanes == {"stream": 2, "link": 1}
    assert summary.window_ns == 40_000  # 10 µs to 50 µs
    assert (summary.steps, summary.step_ids) == (2, (1, 2))
    # kernels by type, the collective once
    assert summary.top_kernels.rows() == [("MatMul", 2, 12_000), ("HcomAllReduce", 1, 10_000)]
    assert summary.meta.marked == {"collective listed logically and physically": 1}


def test_longcat_has_its_47_types(shared: Path) -> None:
    summary = summarise(npuscope.read(shared / "ascend/longcat_910c/kernel_details.csv"))
    assert (summary.kernels, summary.steps, summary.window_ns) == (47, 5, 71_502_028)
