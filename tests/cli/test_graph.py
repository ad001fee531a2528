"""`npuscope graph` with a run in place of a script: what it prints, writes and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from recordings import buffer, recording, task, turns, whole
from typer.testing import CliRunner

from npuscope.cli import app
from npuscope.tile.graph import exact_edges
from npuscope.tile.record.model import Recording
from npuscope.tile.script.run import run_script


def made() -> Recording:
    x, local = buffer(0, 8, origin="parameter", direction="In"), buffer(1, 8)
    writers = [task(n, whole(x), whole(local, "w"), kernel="q_proj", turns=turns((0, "parallel", n))) for n in range(2)]
    return recording([x, local], [*writers, task(2, whole(local), kernel="qk", deps=(0,))])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The run that the command gets; `asked` is what it asked for."""
    told = SimpleNamespace(recordings=(made(),), passed=None, failure="", output="", asked=None)

    def run_script(path: str, argv: list[str], mode: str) -> SimpleNamespace:
        told.asked = (path, argv, mode)
        return told

    monkeypatch.setattr("npuscope.cli.graph.run_script", run_script)
    return told


def test_counts_for_people_and_the_contract_for_programs(ran: SimpleNamespace) -> None:
    printed = CliRunner().invoke(app, ["graph", "layer.py"])
    assert printed.exit_code == 0, printed.output
    assert "layer.py: 3 tasks with 3 blocks of 2 kernels" in printed.output
    assert (
        "dependencies between tasks: 3 on the task that made a tensor, 2 on a task that wrote what is read, "
        "1 declared in the program"
    ) in printed.output
    assert ran.asked == ("layer.py", [], "shapes")

    ran.passed = True
    told = json.loads(
        CliRunner().invoke(app, ["graph", "layer.py", "--values", "--json", "--", "--max-seq", "8"]).output
    )
    assert ran.asked == ("layer.py", ["--max-seq", "8"], "values")
    assert (told["passed"], told["tasks"]) == (True, 3)
    assert told["edges"] == {"creator": 3, "raw": 2, "waw": 0, "explicit": 1}
    assert {"tasks", "blocks", "unit", "flops", "gm_read", "gm_written"} <= set(told["kernels"]["q_proj"])
    assert told["areas"]["QKV"]["tasks"] == 2


def test_all_files_in_one_go(ran: SimpleNamespace, tmp_path: Path) -> None:
    wanted = [
        "--deps",
        tmp_path / "deps.json",
        "--dot",
        tmp_path / "g.dot",
        "--trace",
        tmp_path / "g.npu",
        "--by",
        "kernel",
    ]
    done = CliRunner().invoke(app, ["graph", "layer.py", *map(str, wanted)])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deps.json", "g.dot", "g.npu", "name_map.json"]
    assert len(json.loads((tmp_path / "deps.json").read_text())["tasks"]) == 4  # three and an allocation
    assert '0 -> 1 [label="2"];' in (tmp_path / "g.dot").read_text()
    assert f"wrote {tmp_path / 'name_map.json'}" in done.output


def test_a_failed_golden_is_exit_code_1(ran: SimpleNamespace) -> None:
    ran.passed = False
    done = CliRunner().invoke(app, ["graph", "layer.py", "--values"])
    assert done.exit_code == 1
    assert "golden (the numbers it should give): FAIL" in done.output


def test_the_program_of_the_page_waits_for_whole_tensors_until_it_is_given_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN the program of docs/howto/graph.md
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "graph.md").read_text()
    program = re.search(r"```python\n(# scale\.py.*?)```", page, re.DOTALL)
    assert program
    (tmp_path / "scale.py").write_text(program[1])
    monkeypatch.chdir(tmp_path)

    # WHEN its graph is asked for, THEN there are 19 pairs that wait, and only four that really depend on each other;
    assert (
        "8 on the task that made a tensor, 16 on a task that wrote what is read, 3 on"
        in CliRunner().invoke(app, ["graph", "scale.py"]).output
    )
    one = run_script("scale.py", mode="shapes").recordings[0]
    assert [(e.src, e.dst, e.hazard) for e in exact_edges(one)] == [(n, 4 + n, "raw") for n in range(4)]

    # with slices for arguments the runtime knows that too
    sliced = program[1]
    for old, new in SLICED.items():
        assert old in sliced
        sliced = sliced.replace(old, new)
    (tmp_path / "sliced.py").write_text(sliced)
    assert (
        "8 on the task that made a tensor, 4 on a task that wrote what is read\n"
        in CliRunner().invoke(app, ["graph", "sliced.py"]).output
    )


REGION = "        with pl.at(level=pl.Level.CORE_GROUP, name_hint="
PART = "        part = pl.slice(mid, [16, 128], [i * 16, 0])\n"
SLICED = {
    f'{REGION}"double")': f'{PART}{REGION}"double")',
    f'{REGION}"square")': f'{PART}        result = pl.slice(out, [16, 128], [i * 16, 0])\n{REGION}"square")',
    "mid = pl.assemble(mid, pl.add(rows, rows), [i * 16, 0])": "part = pl.assemble(part, pl.add(rows, rows), [0, 0])",
    "            rows = pl.slice(mid, [16, 128], [i * 16, 0])": "            rows = pl.slice(part, [16, 128], [0, 0])",
    "out = pl.assemble(out, pl.mul(rows, rows), [i * 16": "result = pl.assemble(result, pl.mul(rows, rows), [0",
}
