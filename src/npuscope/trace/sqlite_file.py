"""A profiler's SQLite database: its tables as frames, whatever the columns really hold."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import polars as pl
from polars.exceptions import PolarsError

from npuscope.base.errors import BadInput
from npuscope.trace import source
from npuscope.trace.json_file import whole_number

MAGIC = b"SQLite format 3\x00"
MOST_ROWS = 20_000_000  # a view can go on for ever
T = TypeVar("T")


class SqliteFile:
    """The tables and views of an open database; `path` is the name to tell it by."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        query = "select name from sqlite_master where type in ('table', 'view')"
        self.tables: set[str] = {row[0] for row in connection.execute(query)}

    def columns(self, table: str) -> list[str]:
        return [row[1] for row in self._connection.execute(f"pragma table_info({_quoted(table)})")]

    def count(self, table: str) -> int:
        """Rows of a table."""
        return int(self._connection.execute(f"select count(*) from {_quoted(table)}").fetchone()[0])

    def rows(self, table: str, columns: Sequence[str], kind_of: Callable[[str], pl.DataType]) -> pl.DataFrame:
        """Some columns of a table. SQLite keeps any type in any column: what is not of its kind becomes null."""
        picked = ", ".join(_quoted(column) for column in columns)
        rows = self._connection.execute(f"select {picked} from {_quoted(table)}").fetchmany(MOST_ROWS + 1)
        if len(rows) > MOST_ROWS:
            raise BadInput(f"table {table} has more than {MOST_ROWS:,} rows", path=self.path)
        values: Iterable[Iterable[object]] = zip(*rows, strict=True) if rows else ([] for _ in columns)
        return pl.DataFrame([_series(c, v, kind_of(c)) for c, v in zip(columns, values, strict=True)])


def read_sqlite(path: Path, read: Callable[[SqliteFile], T]) -> T:
    """What `read` makes of a database, which may be packed."""
    if not source.is_packed(path):
        return _read_plain(path, path, read)
    with tempfile.NamedTemporaryFile(suffix=".db") as plain:
        plain.write(source.read_all(path))
        plain.flush()
        return _read_plain(Path(plain.name), path, read)


def _read_plain(path: Path, named: Path, read: Callable[[SqliteFile], T]) -> T:
    # immutable: the file is only looked at, and a read-only folder is no obstacle; not so where a write-ahead
    # log holds rows that are not in the file itself yet
    log = path.with_name(path.name + "-wal")
    options = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{options}", uri=True)) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            return read(SqliteFile(named, connection))
    except (sqlite3.Error, PolarsError, OverflowError, UnicodeDecodeError) as error:
        raise BadInput(f"not readable as a profiler database ({error})", path=named) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _series(name: str, values: Iterable[object], kind: pl.DataType) -> pl.Series:
    if kind == pl.String():
        return pl.Series(name, [v if isinstance(v, str) else None for v in values], dtype=pl.String)
    if kind == pl.Float64():
        return pl.Series(name, [float(v) if isinstance(v, int | float) else None for v in values], dtype=pl.Float64)
    return pl.Series(name, [_whole(v) for v in values], dtype=pl.Int64)


def _whole(value: object) -> int | None:
    """An int of 64 bits; PYTORCH_API has its times as text."""
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return whole_number(value)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else None
