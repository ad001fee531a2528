"""The docs as a whole: short, about what every reader has, built without a warning, and of commands that exist."""

from __future__ import annotations

import csv
import re
import runpy
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main
from sessions import FENCE, ROOT

DOCS = ROOT / "docs"
MOST_WORDS = (
    40_000  # raised from 29,700 with the commands and producers of 0.3: a new page replaces sentences elsewhere
)
PAGES = sorted(page for page in DOCS.rglob("*.md") if not {"_build", "generated"} & set(page.parts))
TABLES = sorted((DOCS / "reference/tables").glob("*.csv"))
MOST_IN_A_CELL = 20  # words beside names in backticks
# pages of evidence quote: sentences and errors as they were printed, sources and misses in their authors' words
QUOTES = re.compile(r"(compatibility|diagnoses|trust)\w*\.(md|csv)")
SITE = ("sphinx", "myst_parser", "furo")
# a command on a line of its own, as a step of a workflow, or between backticks; and what follows it
CALL = re.compile(r"(?:^ *(?:\$ |- )?|(?:run|entry): |`)npuscope ([a-z]+)(?![\w.])([^`#\n]*)", re.MULTILINE)
SPAN = re.compile(r"(?<!`)`[^`\n]+`(?!`)")


def test_the_docs_are_short() -> None:
    assert sum(len(page.read_text().split()) for page in PAGES) <= MOST_WORDS


def test_the_ways_through_the_code_are_those_of_today() -> None:
    """`python docs/generate.py` writes them."""
    ways = runpy.run_path(str(DOCS / "generate.py"))["ways"]()
    assert f"<!-- ways -->\n{ways}<!-- end of ways -->" in (DOCS / "understand" / "architecture.md").read_text()


@pytest.mark.parametrize("page", [*PAGES, *TABLES], ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_needs_no_file_that_only_its_authors_have(page: Path) -> None:
    assert not re.findall(
        r"\.\./shared\S*|shared/data\S*|(?<![\w/.])/(?:work|root)/\S*|(?<![\w/.])ascend/\S+", page.read_text()
    )


def rows(page: Path) -> list[list[str]]:
    """The cells of a page's tables, or of a table that a page shows."""
    text = page.read_text()
    if page.suffix == ".csv":
        return list(csv.reader(text.splitlines()))
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]


def words_in(cell: str) -> int:
    return len(re.sub(r"`[^`]*`|\]\([^)]*\)", "", cell).split())


@pytest.mark.parametrize(
    "page", [page for page in (*PAGES, *TABLES) if not QUOTES.fullmatch(page.name)], ids=lambda page: page.name
)
def test_cells_of_tables_are_short(page: Path) -> None:
    assert [cell for row in rows(page) for cell in row if words_in(cell) > MOST_IN_A_CELL] == []


def test_a_long_cell_would_be_found() -> None:
    assert words_in("`a b c` is " + "word " * 19) == 20
    assert words_in("see [two words](page.md) and " + "word " * 19) == 23


@pytest.mark.full
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    lacking = [name for name in SITE if find_spec(name) is None]
    if lacking:
        pytest.skip(f"no {', '.join(lacking)}: pip install -e '.[docs]'")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    run = subprocess.run(build, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "howto/explain.html").exists()


@cache
def options(command: str) -> frozenset[str] | None:
    """What `npuscope COMMAND` takes, that of its subcommands included; None where there is no such command."""
    from npuscope.cli import app

    group: Any = typer.main.get_command(app)
    if (found := group.get_command(None, command)) is None:
        return None
    each = (found, *getattr(found, "commands", {}).values())
    return frozenset(name for one in each for given in one.params for name in (*given.opts, *given.secondary_opts)) | {
        "--help"
    }


def calls(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a page and the options that each is given; those after `--` are a program's."""
    return [
        (command, re.findall(r"(?<=\s)--?[a-z][\w-]*", rest.partition(" -- ")[0].partition("   (")[0]))
        for part in (*(block for language, block in FENCE.findall(text) if language != "python"), *SPAN.findall(text))
        for command, rest in CALL.findall(part)
    ]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path) -> None:
    for command, given in calls(page.read_text()):
        known = options(command)
        assert known is not None, f"npuscope {command}"
        assert set(given) <= known, f"npuscope {command}"


def test_a_wrong_command_would_be_found() -> None:
    page = "```console\n$ npuscope report run --hmtl a.html\n```\nand `npuscope explane run`"
    assert calls(page) == [("report", ["--hmtl"]), ("explane", [])]
    known = options("report")
    assert known is not None
    assert "--html" in known
    assert "--hmtl" not in known
    assert options("explane") is None
    assert "--json" in (options("device") or ())
