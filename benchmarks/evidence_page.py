"""Writes a page of evidence: its prose as Markdown, its long tables as CSV files that the site shows in their place.

A table of hundreds of rows is data: people filter it, and nobody reads it as prose.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

LONG = 3  # rows from which a table is a file of its own
TABLE = re.compile(r"(?:^\|.*\|\n){3,}", re.MULTILINE)
CELL = re.compile(r"(?<!\\)\|")


def write_page(page: Path, text: str) -> list[Path]:
    """The files that were written: the page, and its tables in the folder `tables` beside it; old ones go away."""
    folder = page.parent / "tables"
    folder.mkdir(exist_ok=True)
    for old in folder.glob(f"{page.stem}_[0-9]*.csv"):
        old.unlink()
    written: list[Path] = []

    def apart(found: re.Match[str]) -> str:
        head, _, *rows = [_cells(line) for line in found[0].splitlines()]
        if len(rows) < LONG:
            return found[0]
        file = folder / f"{page.stem}_{len(written) + 1}.csv"
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([head, *rows])
        file.write_text(lines.getvalue(), encoding="utf-8")
        written.append(file)
        return f"```{{csv-table}}\n:file: tables/{file.name}\n:header-rows: 1\n```\n"

    page.write_text(TABLE.sub(apart, text), encoding="utf-8")
    return [page, *written]


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in CELL.split(line)[1:-1]]
