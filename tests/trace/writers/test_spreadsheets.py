"""A kernel table is opened in spreadsheets, which run what begins like a formula. Names come from captures."""

import csv
import io
import re
from pathlib import Path

import polars as pl
import pytest
from builders import kernel_row, write_kernel_table
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope.trace.tables import guarded, unguarded

DANGER = re.compile(r"(?s)\s*[=+\-@＝＋－＠].|[\t\r\n]")
CELLS = st.text(st.sampled_from("=+-@'\t 1.5eEx＝,\"\r\n"), max_size=8)


def is_number(text: str) -> bool:
    return re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", text, re.ASCII) is not None


@given(st.lists(CELLS, min_size=1))
def test_any_cell_comes_back_and_none_is_a_formula(cells: list[str]) -> None:
    written = guarded(pl.DataFrame({"a": cells}))
    assert [cell for cell in written["a"] if DANGER.match(cell) and not is_number(cell)] == []
    assert unguarded(written)["a"].to_list() == cells
    assert [w for c, w in zip(cells, written["a"], strict=True) if w != c and w != f"'{c}"] == []


@pytest.mark.parametrize(
    "name", ["=HYPERLINK(A1)", "@SUM(1)", "-1+cmd|' /C calc'!A0", "+x", "'=x", "''@y", "\t=1", "plain", "-5"]
)
def test_a_kernel_called_like_a_formula_is_text_in_a_spreadsheet_and_itself_here(tmp_path: Path, name: str) -> None:
    trace = npuscope.read(write_kernel_table(tmp_path / "k.csv", [kernel_row(name=name), kernel_row(start="9")]))
    trace.write(tmp_path / "out.csv", "kernel_details")
    first = next(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert not DANGER.match(first["Name"]) or is_number(first["Name"])
    again = npuscope.read(tmp_path / "out.csv")
    assert again.slices["kernel"].to_list() == trace.slices["kernel"].to_list()
    # and what is written of that is the same to the last character
    again.write(tmp_path / "again.csv", "kernel_details")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()


def test_so_is_a_column(tmp_path: Path) -> None:
    table = write_kernel_table(tmp_path / "k.csv", [kernel_row()])
    table.write_text(table.read_text().replace("Step Id", "=cmd()", 1))
    trace = npuscope.read(table)
    trace.write(tmp_path / "out.csv", "kernel_details")
    header = (tmp_path / "out.csv").read_text().splitlines()[0]
    assert "'=cmd()" in header
    assert npuscope.read(tmp_path / "out.csv").meta.notes["header"] == trace.meta.notes["header"]
