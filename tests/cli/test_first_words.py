"""What somebody types first: help, half a word, a wrong word, the wrong kind of file, a folder of captures."""

from __future__ import annotations

import ast
import os
import pty
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
import typer
from command import npuscope
from sessions import ROOT

from npuscope.cli import GROUPS, app
from npuscope.table.parts import Notes, Part, Say, as_text
from npuscope.trace.example import write_decode_run, write_decode_steps

PROGRAM = str(Path(sys.executable).with_name("npuscope"))


def test_help_is_short_and_long_everywhere() -> None:
    assert npuscope("-h").stdout == npuscope("--help").stdout
    assert npuscope("report", "-h").stdout == npuscope("report", "--help").stdout
    assert npuscope("device", "list", "-h").returncode == 0


@pytest.mark.parametrize("name", [name for names in GROUPS.values() for name in names if name != "formats"])
def test_help_has_examples(name: str) -> None:
    told = npuscope(name, "--help")
    assert told.returncode == 0
    assert f"npuscope {name}" in told.stdout.split("Example")[1]


def test_half_a_word_is_completed_without_loading_a_command() -> None:
    asked = {"_NPUSCOPE_COMPLETE": "complete_bash", "COMP_WORDS": "npuscope ro", "COMP_CWORD": "1"}
    assert npuscope(**asked).stdout.split() == ["roofline"]
    asked = {"_NPUSCOPE_COMPLETE": "complete_bash", "COMP_WORDS": "npuscope report --ht", "COMP_CWORD": "2"}
    assert npuscope(**asked).stdout.split() == ["--html"]


def test_a_program_where_a_capture_is_wanted_and_the_other_way(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text('"""Ünicode first."""\n')
    told = npuscope("report", tmp_path / "x.py")
    assert told.returncode == 2
    assert "`npuscope simulate`" in told.stderr
    write_decode_run(tmp_path / "run")
    told = npuscope("simulate", tmp_path / "run")
    assert told.returncode == 2
    assert "`npuscope report`" in told.stderr


def test_a_folder_with_three_captures_lists_them(tmp_path: Path) -> None:
    # GIVEN what `npuscope demo --keep` leaves
    write_decode_run(tmp_path / "run")
    write_decode_run(tmp_path / "slow_scheduler")
    write_decode_steps(tmp_path / "kernel_details.csv")
    told = npuscope("report", tmp_path)
    assert told.returncode == 2
    assert "3 captures" in told.stderr
    for name in ("kernel_details.csv", "run", "slow_scheduler"):
        assert name in told.stderr
    # BUT places that differ by a number are ranks
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    for number in range(2):
        write_decode_run(ranks / f"card_{number}")
    assert npuscope("report", ranks).returncode == 0


def test_lines_are_as_wide_as_the_terminal_and_whole_in_a_pipe() -> None:
    words = "It takes " + "very " * 40 + "long."
    parts: list[Part] = [
        Say(words),
        Notes([words]),
        Notes(["+ a line of code that is longer than the terminal, to be copied"]),
    ]
    lines = as_text(parts, width=50).splitlines()
    assert max(map(len, lines[:-1])) <= 50
    assert lines[-1].startswith("  + a line of code")
    assert lines[-1].endswith("copied")
    assert len(as_text(parts).splitlines()) == 4


def test_an_error_is_coloured_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    ran = subprocess.run([PROGRAM, "reprot"], stderr=theirs, stdout=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    assert ran.returncode == 2
    assert os.read(ours, 4096).startswith(b"\x1b[1;31mnpuscope:\x1b[0m ")
    os.close(ours)


def every_option() -> dict[str, list[Any]]:
    """Every command with its options."""
    group: Any = typer.main.get_command(app)
    found = {}
    for name in (name for names in GROUPS.values() for name in names):
        command = group.get_command(None, name)
        each = (command, *getattr(command, "commands", {}).values())
        found[name] = [one for part in each for one in part.params if one.param_type_name == "option"]
    return found


def test_pages_and_markdown_have_one_spelling_everywhere() -> None:
    spelled = {name for options in every_option().values() for one in options for name in one.opts}
    assert not spelled & {"--plot", "--markdown", "--csv-file", "--page"}
    for command, options in every_option().items():
        for one in options:
            if "--out" in one.opts:
                assert "-o" in one.opts, command
    assert {"--html", "--md", "--json"} <= spelled


def imported() -> set[str]:
    """What modules of npuscope import when they are loaded, but for Python's own."""
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found |= {name.partition(".")[0] for name in names}
    stood_in_for = {"torch"}  # by autodoc_mock_imports of docs/conf.py
    return found - set(sys.stdlib_module_names) - {"npuscope", "__future__", "", *stood_in_for}


def brought_by(wanted: list[str], extras: dict[str, list[str]]) -> set[str]:
    """All packages that some requirements bring, as they are installed here."""
    brought, waiting = set[str](), list(wanted)
    while waiting:
        one = waiting.pop()
        if own := re.match(r"npuscope\[(.*)\]", one):
            waiting += [line for extra in own[1].split(",") for line in extras[extra]]
            continue
        name = re.split(r"[^\w.-]", one)[0].lower().replace("_", "-")
        if name in brought or "extra ==" in one:
            continue
        brought.add(name)
        try:
            waiting += requires(name) or []
        except PackageNotFoundError:
            continue
    return brought


def test_the_extra_docs_brings_all_that_the_reference_pages_load() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    brought = brought_by([*project["dependencies"], *extras["docs"]], extras)
    known = packages_distributions()
    lacking = {
        name for name in imported() if not {one.lower().replace("_", "-") for one in known.get(name, [name])} & brought
    }
    assert lacking == set()
    # and the test would see it
    without = brought_by([*project["dependencies"], "sphinx", "myst-parser", "furo"], extras)
    assert "mcp" not in without


def test_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").glob("*.ipynb")]
    pages += (ROOT / "src").rglob("*.py")
    named = [page for page in pages if re.search(r"pip install '?npuscope", page.read_text())]
    assert named == []


def test_the_demo_names_the_command_as_it_can_be_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from npuscope.cli.demo import own_command

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / ".venv/bin/npuscope")])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_command() == ".venv/bin/npuscope"  # make demo, and nothing was activated
    (tmp_path / "npuscope").touch(mode=0o755)
    assert own_command() == "npuscope"
