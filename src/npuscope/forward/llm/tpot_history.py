"""Times per token over commits: a file with one JSON object per line, which only ever grows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TypeAlias

import polars as pl

from npuscope.base.errors import CannotWrite
from npuscope.explain.many.files import commit_of, read_lines
from npuscope.explain.many.history import Commit, History, followed
from npuscope.forward.llm.tpot import BASIS, Tpot
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import TEXT

Entry: TypeAlias = dict[str, object]  # a line of a history; other versions may have written other fields
SETTINGS = ("model", "arguments", "device", "batch", "context", "tokens", "layers")
LEFT_OUT = ("simulated", "token_ms", "group_table")  # too much for a line that is kept for ever
LINE = "not a history of times per token: a line must be a JSON object with ms_per_token"
HISTORY = Columns(
    "tpot --history",
    "A run, the newest first.",
    (
        Column("date", TEXT, "when"),
        Column("commit", TEXT, "of the program's project; a plus where files differed from it"),
        Column("model", TEXT, "the program"),
        *(column for column in BASIS if column.key not in ("first_ms", "last_ms", "ms_per_token_interval")),
    ),
)


def interval_of(entry: Entry) -> tuple[float, float] | None:
    """Where the measured time is likely to lie; None where the entry is of a version that did not say."""
    found = entry.get("ms_per_token_interval")
    if not isinstance(found, dict):
        return None
    low, high = found.get("low"), found.get("high")
    return (float(low), float(high)) if isinstance(low, int | float) and isinstance(high, int | float) else None


def read_history(path: str | Path) -> list[Entry]:
    """The entries, oldest first; none where there is no file yet."""
    return list(read_lines(Path(path), _entry, LINE)) if Path(path).exists() else []


def is_tpot_history(path: str | Path) -> bool:
    """Whether a file's first line is one of ours."""
    try:
        with open(path, encoding="utf-8") as file:
            return '"ms_per_token"' in file.readline()
    except (OSError, UnicodeDecodeError):
        return False


def _entry(told: Entry, number: int) -> Entry:
    if not isfinite(ms_of(told)) or not isinstance(told.get("arguments", []), list):
        raise ValueError(f"line {number}")
    return told


def check_place(path: str | Path) -> None:
    """Refuses a file that could not be written, before a long simulation."""
    file = Path(path)
    if (file.exists() and not file.is_file()) or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise CannotWrite("not a file that can be written", path=path, remedy="Name another file.")


def entry_of(result: Tpot, file: str) -> Entry:
    """A line of the history: when, at which commit of the program's project, and what came out."""
    commit, changed = commit_of(Path(file).resolve().parent)
    told = {name: value for name, value in result.as_dict().items() if name not in LEFT_OUT}
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit, "changed": changed, **told}


def series(entries: Sequence[Entry]) -> dict[str, list[tuple[int, Entry]]]:
    """Entries of the same model and settings, each with its place in the history."""
    found: dict[str, list[tuple[int, Entry]]] = {}
    for place, entry in enumerate(entries):
        found.setdefault(settings_told(entry), []).append((place, entry))
    return found


def followed_by_settings(entries: Sequence[Entry], threshold: float) -> History:
    """Where times per token changed; they are simulated, so there is no noise."""
    commits = [Commit(commit_told(entry), subject=str(entry.get("date", ""))) for entry in entries]
    values = {told: [(place, ms_of(entry) * 1e6) for place, entry in run] for told, run in series(entries).items()}
    return followed(commits, values, exact=True, threshold=threshold)


def settings_told(entry: Entry) -> str:
    """Model and settings in words."""
    given = entry.get("arguments")
    arguments = " ".join(map(str, given)) if isinstance(given, list | tuple) else ""
    model = str(entry.get("model", "?")) + (f" {arguments}" if arguments else "")
    sizes = [f"{name} {entry[name]}" for name in SETTINGS[3:] if entry.get(name) is not None]
    return ", ".join([model, *sizes, str(entry.get("device", "?"))])


def ms_of(entry: Entry) -> float:
    """The time per token."""
    return float(str(entry["ms_per_token"]))


def history_table(entries: Sequence[Entry]) -> Table:
    """Newest first; what other versions did not write is a dash."""
    rows = [{**entry, "commit": commit_told(entry)} for entry in reversed(entries)]
    columns = {name: [_number_or_word(row.get(name)) for row in rows] for name in HISTORY.keys}
    return Table(HISTORY, pl.DataFrame({name: pl.Series(name, told, strict=False) for name, told in columns.items()}))


def _number_or_word(value: object) -> object:
    return value if value is None or isinstance(value, int | float) else str(value)


def commit_told(entry: Entry) -> str:
    """A commit, with a plus where files differed from it."""
    return f"{entry.get('commit') or '–'}{'+' if entry.get('changed') else ''}"
