"""Passes as tables of their own: the source's text, the chosen window, and what is known beside."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from planted import DEEPSEEK, QWEN, Plan, plant

from npuscope.base.errors import CannotWrite, NpuscopeError
from npuscope.explain.passes import Passes, passes
from npuscope.explain.passes.export import cut_out, fill, rows_of, selected, write_pass
from npuscope.explain.passes.ranks import ForwardOptions, forward
from npuscope.trace import read

SMALL = replace(QWEN, layers=6)


def found_in(folder: Path, plan: Plan) -> tuple[Path, Passes]:
    plant(plan, path := folder / "kernel_details.csv")
    return path, passes(read(path))


def test_exported_passes_hold_the_lines_of_the_source(tmp_path: Path) -> None:
    """Every line of the source is in one pass, unchanged and in order."""
    source, found = found_in(tmp_path, Plan(SMALL, ("decode",) * 3, side_stream=True))
    (out := tmp_path / "out").mkdir()
    tables = [path for path in fill(found, [0, 1, 2], "full", out) if path.suffix == ".csv"]
    header, *lines = source.read_text().splitlines()
    assert [table.name for table in tables] == [f"pass_000{n}_decode.csv" for n in range(3)]
    together = []
    for table in tables:
        first, *rest = table.read_text().splitlines()
        assert first == header
        together += rest
    assert sorted(together) == sorted(lines)
    assert all(table.read_text().splitlines()[1:] == [x for x in lines if x in set(table.read_text().splitlines())]
               for table in tables)  # fmt: skip


def test_a_duplicate_across_the_border_goes_where_its_kernel_is(tmp_path: Path) -> None:
    """The AI_CPU row of a pass's first attention begins 90 µs earlier; with no pause, that is in the pass before."""
    plan = Plan(replace(SMALL, head=("GatherV2",), first=(), layer=SMALL.layer[3:]), ("decode",) * 3, pause_ns=4_000)
    _, found = found_in(tmp_path, plan)
    first = found.table["anchor_start_ns"][1]
    part = cut_out(found, 1)
    again = part.slices.filter(part.slices["Accelerator Core"] == "AI_CPU").sort("start")[0]
    assert again["start"][0] == first - 90_000
    assert again["start"][0] < found.table["start_ns"][1]


def test_windows(tmp_path: Path) -> None:
    _, found = found_in(tmp_path, Plan(SMALL, ("decode",) * 3))
    start = found.trace.slices["start"].to_numpy()
    told = found.rows["first_listing"].to_numpy()
    (rows,) = rows_of(found, [1], "anchor")
    kept = start[told[rows]]
    begin, end = found.table["anchor_start_ns"][1], found.table["anchor_end_ns"][1]
    assert kept.min() == begin
    assert kept.max() < end
    (full,) = rows_of(found, [1], "full")
    assert set(rows) < set(full)
    (everything,) = rows_of(found, [1], "capture")
    assert len(everything) == found.trace.slices.height
    share = 1 - sum(found.trace.slices["dur"][int(r)] for r in rows if told[r] == r) / found.table["sum_ns"][1]
    assert found.main_table().rows()[1]["excluded"] == {"anchor": pytest.approx(share), "full": 0.0, "capture": 0.0}


def test_metadata_tells_where_a_table_comes_from(tmp_path: Path) -> None:
    source, found = found_in(tmp_path, Plan(SMALL, ("prefill", "decode", "decode")))
    table, beside = write_pass(found, 0, "anchor", tmp_path / "prefill.csv")
    about = json.loads(beside.read_text())
    assert about["source"] == [str(source)]
    assert about["window"] == "anchor"
    assert about["window_ns"] == [found.table["anchor_start_ns"][0], found.table["anchor_end_ns"][0]]
    assert about["pass"]["phase"] == "prefill"
    assert about["pass"]["tokens"] == 4096
    assert about["rows_written"] == len(table.read_text().splitlines()) - 1
    assert about["sequences"][1]["kernels"] == list(SMALL.layer)
    # each layer has two all-reduces told twice, the head one and the tail an all-gather; six tilings on the AI CPU
    assert about["capture"]["marked"]["collective listed logically and physically"] == 3 * (2 * 6 + 2)
    assert about["capture"]["marked"]["AI_CPU row of a kernel"] == 3 * 6
    again = passes(read(table)).table
    assert again.select("attentions", "complete").rows() == [(6, False)]  # the window leaves its head and tail out


def test_a_selection_is_numbers_and_words(tmp_path: Path) -> None:
    plan = Plan(replace(DEEPSEEK, layers=6), ("prefill", "decode", "decode"), drafts=1, stall=1)
    _, found = found_in(tmp_path, plan)
    assert selected(found, ["draft"]) == [1, 3, 5]
    assert selected(found, ["clean"]) == [0, 1, 3, 4, 5]
    assert selected(found, ["4", "0-1", "prefill"]) == [0, 1, 4]
    for beyond in ("6", "2-6", "0-99999999999"):
        with pytest.raises(NpuscopeError, match="no pass 6"):
            selected(found, [beyond])
    with pytest.raises(NpuscopeError, match="is no pass number and no word"):
        selected(found, ["first"])


def test_nothing_is_exported_over_something_else(tmp_path: Path) -> None:
    source, _ = found_in(tmp_path, Plan(SMALL, ("decode",) * 2))
    (precious := tmp_path / "precious").mkdir()
    (precious / "thesis.txt").write_text("two years")
    forward(
        source, ForwardOptions(select=("all",), out=precious / "passes")
    )  # an export below or beside it changes nothing
    forward(source, ForwardOptions(select=("all",), out=tmp_path / "out"))
    (precious / "forward.json").write_text("{}")
    with pytest.raises(CannotWrite, match="something else is there"):
        forward(source, ForwardOptions(select=("0",), out=precious))
    assert (precious / "thesis.txt").read_text() == "two years"
    forward(source, ForwardOptions(select=("1",), out=tmp_path / "out"))  # an older export is replaced
    assert {path.name for path in (tmp_path / "out").glob("*.csv")} == {"pass_0001_decode.csv"}


def test_cells_with_line_ends_survive(tmp_path: Path) -> None:
    path, found = found_in(tmp_path, Plan(SMALL, ("decode",) * 2))
    text = path.read_text().replace("GatherV2_0,", '"Gather\nV2",', 1)
    path.write_text(text)
    found = passes(read(path))
    (out := tmp_path / "out").mkdir()
    written = fill(found, [0, 1], "full", out)
    assert '"Gather\nV2"' in written[0].read_text()
    assert read(written[2]).slices.height == rows_of(found, [1], "full")[0].size
