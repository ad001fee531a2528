"""Bad input at the command line: one sentence on stderr, exit code 2, and nothing that a terminal would obey."""

from __future__ import annotations

import json
import os
import unicodedata
from contextlib import suppress
from pathlib import Path

import pytest
from builders import kernel_row, write_kernel_table
from command import npuscope as run
from polars.exceptions import PanicException

from npuscope.base.files import quiet_failure
from npuscope.table.columns import as_json
from npuscope.table.formats import figures, percent, printable, significant
from npuscope.trace.example import write_decode_steps

BUDGET = '[[limit]]\nmetric = "wall_us"\nmax = 6000\nmin = 1\n[[limit]]\nmetric = "wall_us"\nmax_increase = 0.05\n'
FORMAT_CHARACTERS = [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)), "\u200b", "\u2028", "\ufeff"]


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """whole.csv, and the same with nothing below its heading, and with a duration that is infinite."""
    write_decode_steps(tmp_path / "whole.csv")
    heading, first, *others = (tmp_path / "whole.csv").read_text().splitlines()
    (tmp_path / "heading.csv").write_text(f"{heading}\n")
    cells = first.split(",")
    cells[heading.split(",").index("Duration(us)")] = "inf"
    (tmp_path / "infinite.csv").write_text("\n".join([heading, ",".join(cells), *others]))
    (tmp_path / "budget.toml").write_text(BUDGET)
    return tmp_path


@pytest.mark.parametrize("bad", ["heading.csv", "infinite.csv"])
@pytest.mark.parametrize(
    "command",
    [
        "gate BAD --budget budget.toml --baseline whole.csv",
        "gate whole.csv --budget budget.toml --baseline BAD",
        "compare BAD whole.csv",
        "compare whole.csv BAD",
        "compare whole.csv vs BAD",
        "compare whole.csv whole.csv BAD",
    ],
)
def test_a_table_without_a_finite_time_is_refused_in_a_sentence(captures: Path, command: str, bad: str) -> None:
    # GIVEN a table with a heading only, or with an infinite cell
    # WHEN it is held against a budget or compared
    came = run(*command.replace("BAD", bad).split(), folder=captures)
    # THEN one sentence names it
    assert (came.returncode, came.stdout) == (2, "")
    assert len(came.stderr.splitlines()) == 1
    assert came.stderr.startswith(f"npuscope: {bad}")
    assert "bug" not in came.stderr


def test_numbers_that_are_not_finite_have_a_text() -> None:
    inf = float("inf")
    assert [figures(inf), significant(-inf), percent(inf), figures(float("nan"))] == ["∞", "-∞", "∞%", "–"]


def test_what_native_code_writes_is_dropped_with_its_failure(capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN native code that writes to stderr WHEN it fails THEN its words are gone, else they are shown
    with suppress(PanicException), quiet_failure():
        os.write(2, b"thread panicked\n" * 40)
        raise PanicException
    with quiet_failure():
        os.write(2, b"a warning\n")
    assert capfd.readouterr().err == "a warning\n"


@pytest.mark.parametrize("command", ["report", "info", "doctor", "report --json", "compare whole.csv"])
def test_format_characters_of_names_do_not_reach_the_terminal(tmp_path: Path, command: str) -> None:
    # GIVEN kernels whose names have every bidirectional control
    name = "up".join(FORMAT_CHARACTERS)
    write_kernel_table(tmp_path / "named.csv", [kernel_row(name=name, type=name)])
    write_decode_steps(tmp_path / "whole.csv")
    # WHEN a command shows them
    came = run(*command.split(), "named.csv", folder=tmp_path)
    # THEN none is printed
    assert came.returncode == 0, came.stderr
    shown = {unicodedata.category(c) for c in came.stdout + came.stderr if c != "\n"}
    assert not shown & {"Cc", "Cf", "Zl", "Zp"}


def test_printable_replaces_and_json_escapes_them() -> None:
    for character in FORMAT_CHARACTERS:
        assert printable(f"a{character}b") == "a�b"
        text = as_json([f"aä{character}b"])
        assert character not in text
        assert json.loads(text) == [f"aä{character}b"]
