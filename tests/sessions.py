"""The `$ npuscope …` sessions of README, docs and stories: where they stand, where they run, what they print.

A page's commands run in one folder that has what pages speak of: `models/`, `demo_out/` and the page's own
programs. `...` stands for lines left out.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from command import npuscope

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(text: str, language: str) -> list[str]:
    """Fenced blocks of a language; "" for those that name none."""
    return [block for found, block in FENCE.findall(text) if found == language]


def sessions(block: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a block, each with the lines shown below it."""
    for part in re.split(r"^\$ npuscope ", block, flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield command, shown


def prepare(folder: Path) -> Path:
    """A place to run commands of all pages in."""
    here = folder / "here"
    here.mkdir()
    shutil.copytree(ROOT / "models", here / "models", ignore=shutil.ignore_patterns("__pycache__"))
    printed("demo --keep demo_out", here)
    (here / "budget.toml").write_text(blocks((ROOT / "docs/howto/ci.md").read_text(), "toml")[0])
    return here


def file_name(block: str) -> str | None:
    """Of a program or settings of a page, which its first line names; None of lines that are to be run as they are."""
    found = re.match(r"# (\w+\.(py|toml))\n", block)
    return found[1] if found else None


def own_programs(page: str, here: Path) -> None:
    """Writes the programs and settings of a page, named by their first line; a table of kernels is model.csv."""
    for text in [*blocks(page, "python"), *blocks(page, "toml")]:
        if name := file_name(text):
            (here / name).write_text(text)
    for table in blocks(page, "csv"):
        (here / "model.csv").write_text(table)


def printed(command: str, here: Path) -> list[str]:
    """What a command prints, be it an error."""
    run = npuscope(*shlex.split(command), folder=here)
    # where models are installed differs from machine to machine: pages show their place in the repository
    return (run.stdout + run.stderr).replace(f"{ROOT}/models/", "models/").splitlines()


def left_out(line: str) -> bool:
    return line.strip() in ("...", "")
