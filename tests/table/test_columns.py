"""A column is declared once: every output has it, and adding one is one line."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from made import DEPENDS, DOZEN, Task, dozen, made
from planted import QWEN, Plan, plant

import npuscope
from docs.reference_pages import columns_page, declared
from npuscope import explain as analysis
from npuscope.explain.changes import whatif_each
from npuscope.explain.passes import passes
from npuscope.explain.passes.statistics import statistics
from npuscope.forward.align.alignment import align
from npuscope.forward.roofline import roofline
from npuscope.lab.payload.overview import parts
from npuscope.table.columns import Columns, Table, Tabular
from npuscope.table.parts import Rows, as_markdown, as_text

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {
    "string": "a", "bool": True, "list of strings": ["a", "b"], "list of objects": [{"turn": 0, "of": 2}],
    "list": ["a"], "list of int": [2, 3],
    "[low, high], ns": [2, 3], "object: window -> share of 1": {"anchor": 0.1, "full": 0.0, "capture": 0.0},
}  # fmt: skip
LIKELY = {"low": 1.0, "high": 2.0, "coverage": 0.8}
COMPARED = {**LIKELY, "ratio": 1.5, "probability_faster": 0.1, "verdict": "slower"}
OBJECTS = {
    **dict.fromkeys(("against", "against_first"), COMPARED),
    **dict.fromkeys(("wall_interval_ns", "ms_per_token_interval"), LIKELY),
    "worth": {"ns": 2, "low_ns": 1, "high_ns": 3},
    "cost": {"bytes": 1, "flops": 2, "tasks": 3, "waits": 4},
    "tile": {"shape": [2, 3], "dtype": "FP32"},
    "memory": {"function": "f", "space": "Mat", "share": 0.5},
}


def example(columns: Columns) -> Table:
    """A table of one row that has everything."""
    row = {}
    for column in columns:
        number = 7 if column.form.json.startswith("int") else 0.25
        row[column.key] = (
            OBJECTS[column.key] if column.form.json == "object" else EXAMPLES.get(column.form.json, number)
        )
    return Table(columns, pl.DataFrame([row]))


def split(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


@pytest.mark.parametrize("columns", declared(), ids=lambda columns: columns.place)
def test_every_output_has_the_same_columns_but_those_that_say_why_not(columns: Columns) -> None:
    table = example(columns)
    for_people = [column for column in columns if not column.only]
    # JSON has all of them, and no key twice
    keys = list(table.rows()[0])
    assert keys == [column.name for column in columns]
    assert len(set(keys)) == len(keys)
    # people read one line of headings, the same in text, in Markdown, on static pages and in what pages are made from
    headings = [shown.heading for shown in table.shown()]
    assert [shown.column for shown in table.shown()] == for_people
    assert [head["title"] for head in table.heads()] == headings
    assert [head["key"] for head in table.heads()] == [column.name for column in for_people]
    if not headings:
        return
    assert split(as_text([Rows(table, wide=True)]).splitlines()[0]) == headings
    assert split(as_text([Rows(table)]).splitlines()[0]) == [s.heading for s in table.shown(wide=False)]
    assert as_markdown([Rows(table)]).splitlines()[0] == f"| {' | '.join(headings)} |"
    shown: Any = parts([Rows(table)])
    (part,) = shown["parts"]
    assert [head["title"] for head in part["columns"]] == headings
    assert [cell["text"] for cell in part["rows"][0].values()] == table.cells()[0]
    # a cell is there for every heading, and it is not the value as Python writes it
    (cells,) = table.cells()
    assert len(cells) == len(headings)
    assert not any(cell.startswith(("{", "[")) for cell in cells)


@pytest.mark.parametrize("columns", declared(), ids=lambda columns: columns.place)
def test_every_column_says_what_it_means_and_pages_can_show_it(columns: Columns) -> None:
    forms = (ROOT / "src/npuscope/lab/page/table.js").read_text()
    known = set(re.findall(r"^  (\w+)[:,]", forms.split("SHOW = {")[1].split("};")[0], re.MULTILINE))
    assert columns.about.endswith(".")
    for column in columns:
        assert column.meaning
        assert column.form.name in known, column.form.name


def results(tmp_path: Path) -> Iterator[Tabular]:
    slower = [*DOZEN, Task(13, "quant", "AIV_1", 103, 200, 102, 201)]
    run = analysis.explain(dozen(), kernels="qk|softmax|sv")
    yield from (run, run.scheduling, run.path, run.fan_out, run.steps, run.bubbles)
    assert run.overlap is not None
    yield run.overlap
    compared = analysis.compare(dozen(), made(slower, (*DEPENDS, (12, 13))), kernels="qk|softmax|sv")
    yield from (compared, compared.waterfall)
    yield from whatif_each(dozen())
    plant(Plan(QWEN, ("decode",) * 3, stall=1), tmp_path / "kernels.csv")
    capture = npuscope.read(tmp_path / "kernels.csv")
    found = passes(capture)
    yield from (found, statistics(found))
    yield roofline(capture, "a3")
    yield align(capture.select(step=[0]) if capture.slices["step"].drop_nulls().len() else capture, capture)


def test_results_have_all_the_columns_they_declare(tmp_path: Path) -> None:
    for table in chain.from_iterable(result.tables().values() for result in results(tmp_path)):
        absent = {column.key for column in table.columns} - set(table.frame.columns)
        # of passes these two are told per rank; of areas only where layers are known
        assert absent <= {"rank", "device", "tasks per layer"}, table.columns.place


def test_only_the_reference_writes_tables_of_its_own() -> None:
    for path in (ROOT / "src/npuscope/report").rglob("*.py"):
        if path.name != "reference.py":
            assert "|---" not in path.read_text(), path
            assert "<table" not in path.read_text(), path


def test_the_page_of_columns_has_every_declared_table() -> None:
    page = columns_page()
    for columns in declared():
        assert all(f"`{column.name}`" in page for column in columns), columns.place


def test_a_column_of_the_kernel_table_is_one_line(tmp_path: Path) -> None:
    """As docs/howto/extend.md tells it, on a copy of the package."""
    recipe = (ROOT / "docs/howto/extend.md").read_text()
    line = next(line for line in recipe.splitlines() if line.strip().startswith('Column("longest_ns"'))
    shutil.copytree(ROOT / "src/npuscope", tmp_path / "npuscope", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "npuscope/explain/busy_idle.py"
    after = '    Column("share", SHARE, "of all core time"),\n'
    assert after in file.read_text()
    file.write_text(file.read_text().replace(after, f"    {line.strip()},\n{after}"))
    (tmp_path / "run.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from made import dozen\n"
        "dozen().write('drawn.npu')\n"
    )  # fmt: skip

    def python(*words: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    python("run.py")
    command = ("-m", "npuscope", "report", "drawn.npu")
    text = python(*command, "--md", "r.md", "--html", "r.html")
    told = json.loads(python(*command, "--json"))
    gate = next(line for line in text.splitlines() if line.split()[:1] == ["gate"])
    assert "longest µs" in text
    assert gate.split().count("30.0") == 4  # one slice of 30 µs: core, on-core, mean and longest
    assert "| longest µs |" in (tmp_path / "r.md").read_text()
    data = json.loads((tmp_path / "r.html").read_text().split('id="document">')[1].split("</script>")[0])
    heads = data["runs"][0]["panels"]["overview"]["columns"]["report.kernels"]
    [head] = [head for head in heads if head["key"] == "longest_ns"]
    expected = {"title": "longest µs", "show": "ns", "right": True, "per": 1000, "words": {}}
    assert {key: head[key] for key in expected} == expected
    assert f'"{head["meaning"]}"' in line
    assert all(row["longest_ns"] > 0 for row in data["runs"][0]["panels"]["overview"]["report"]["kernels"])
    assert {row["name"]: row["longest_ns"] for row in told["kernels"]}["gate"] == 30_000
