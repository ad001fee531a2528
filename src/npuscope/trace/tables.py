"""A profiler's tables: CSV files and SQLite databases as frames, and their rows on the way to a Trace.

A CSV file is text cells, exactly as written, with the line of whatever is wrong with it. A spreadsheet runs a cell that
begins like a formula, so what we write has a ' before such text, and what we read has none: the cells are the same.
"""

from __future__ import annotations

import csv
import io
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import polars as pl
from polars.exceptions import NoDataError, PolarsError

from npuscope.base.errors import BadInput
from npuscope.base.frozen import dataclass
from npuscope.trace import source
from npuscope.trace.core import NEGATIVE, Ledger
from npuscope.trace.schema import LARGEST_US, LONGEST_US
from npuscope.trace.source import whole_number

BOM = b"\xef\xbb\xbf"
# what a spreadsheet acts on, and numbers that begin alike; quotes before it are part of it, so that any can be undone
FORMULA = r"(?s)^'*(\s*[=+\-@＝＋－＠].|[\t\r\n])"
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
MOST_ROWS = 20_000_000  # a view can go on for ever
T = TypeVar("T")
_PLACE = {"place": pl.String, "unit": pl.String, "device": pl.Int32}
_SLICE = {"start": pl.Int64, "dur": pl.Int64, **dict.fromkeys(("kernel", "kind", "table"), pl.String)}
NO_SLICES = pl.DataFrame(schema={**_SLICE, **_PLACE})
NO_SAMPLES = pl.DataFrame(schema={**_PLACE, "name": pl.String, "time": pl.Int64, "value": pl.Float64})
csv.field_size_limit(1 << 30)  # a kernel's name may be longer than the module's usual 128 KiB


@dataclass(frozen=True)
class CsvTable:
    """`cells` has one text column per header entry, named uniquely; `header` has the names as written."""

    header: tuple[str, ...]
    cells: pl.DataFrame
    lines: pl.Series  # the line of each row, unless cells have line breaks inside
    line_end: str
    bom: bool
    blank_lines: int


def header_of(head: bytes) -> list[str] | None:
    """The first line's cells, if the bytes can be a CSV file's beginning."""
    first = head.removeprefix(BOM).split(b"\n", 1)[0].rstrip(b"\r")
    try:
        rows = list(csv.reader([first.decode()], strict=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    return unguarded(pl.DataFrame({"": rows[0]}))[""].to_list() if rows and len(rows[0]) > 1 else None


def guarded(cells: pl.DataFrame) -> pl.DataFrame:
    """Text cells as they are written: nothing in them is a formula."""
    texts = _with_any(cells, pl.col(pl.String).str.contains(FORMULA))
    return cells.with_columns(pl.when(_is_active(text)).then("'" + text).otherwise(text).name.keep() for text in texts)


def unguarded(cells: pl.DataFrame) -> pl.DataFrame:
    """Cells as they were before `guarded`."""
    texts = _with_any(cells, pl.col(pl.String).str.starts_with("'"))
    inner = [(text, text.str.slice(1)) for text in texts]
    return cells.with_columns(
        pl.when(text.str.starts_with("'") & _is_active(bare)).then(bare).otherwise(text).name.keep()
        for text, bare in inner
    )


def _with_any(cells: pl.DataFrame, asked: pl.Expr) -> list[pl.Expr]:
    """The columns of which any cell is so, mostly none: looking at each costs far less than making it anew."""
    found = cells.select(asked.any())
    return [pl.col(name) for name in found.columns if found[name].item()]


def _is_active(text: pl.Expr) -> pl.Expr:
    return text.str.contains(FORMULA) & ~text.str.contains(NUMBER)


def read_csv(path: Path) -> CsvTable:
    """Every cell as text. Rows with too few or too many cells, broken quotes and bytes that are not UTF-8
    are errors that name the line; blank lines are counted and left out."""
    head = source.head(path)
    header = header_of(head)
    if header is None:
        raise BadInput("the first line is not a CSV header", path=path, line=1)
    columns = unique_names(header)
    # Polars opens only names that are UTF-8
    by_name = not source.is_packed(path) and str(path).isprintable()
    data: Path | bytes = path if by_name else source.read_all(path)
    try:
        cells = pl.read_csv(
            data,
            has_header=False,
            skip_lines=1,
            schema={name: pl.String() for name in columns},
            empty_string_is_null=False,
            glob=False,
        )
    except NoDataError:
        cells = pl.DataFrame(schema={name: pl.String() for name in columns})
    except (PolarsError, UnicodeDecodeError) as error:
        other = BadInput(f"not readable as CSV ({str(error).splitlines()[0]})", path=path)
        raise _fault(path, data, len(header), strict=True) or other from error
    # Polars fills short rows with empty cells in silence, so rows that end in one are looked at again
    suspects = cells.select((pl.col(columns[-1]) == "").arg_true()).to_series()
    blank = pl.all_horizontal(pl.col(columns) == "")
    blank_lines = int(cells[suspects.to_list()].select(blank.sum()).item()) if len(suspects) else 0
    if len(suspects) > blank_lines and (fault := _fault(path, data, len(header), strict=False)):
        raise fault
    lines = cells.select(pl.int_range(2, pl.len() + 2, dtype=pl.Int64).alias("line"))["line"]
    if blank_lines:
        is_blank = cells.select(blank.alias("blank"))["blank"]
        cells, lines = cells.filter(~is_blank), lines.filter(~is_blank)
    line_end = "\r\n" if b"\r\n" in head else "\n"
    cells = unguarded(cells)
    return CsvTable(tuple(header), cells, lines, line_end, head.startswith(BOM), blank_lines)


def unique_names(header: list[str]) -> list[str]:
    """Column names that a table can hold: repeats get a number."""
    counts: Counter[str] = Counter()
    names = []
    for name in header:
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return names


def _fault(path: Path, data: Path | bytes, width: int, *, strict: bool) -> BadInput | None:
    """The error of the first line that a second reading rejects."""
    whole = data if isinstance(data, bytes) else path.read_bytes()
    try:
        text = whole.removeprefix(BOM).decode()
    except UnicodeDecodeError as error:
        line = whole.count(b"\n", 0, error.start + (len(BOM) if whole.startswith(BOM) else 0)) + 1
        return BadInput("bytes that are not UTF-8 text", path=path, line=line)
    rows = csv.reader(io.StringIO(text, newline=""), strict=strict)
    try:
        for row in rows:
            if row and len(row) != width:
                cut = ": the file looks truncated" if len(row) < width else ""
                what = f"{len(row)} cells where the header has {width}{cut}"
                return BadInput(what, path=path, line=rows.line_num, remedy="Copy or export it again." if cut else "")
    except csv.Error as error:
        return BadInput(f"broken CSV ({error})", path=path, line=rows.line_num)
    return None


class SqliteFile:
    """The tables and views of an open database; `path` is what messages call it."""

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


def numbered(what: str, number: pl.Expr) -> pl.Expr:
    """The name of a lane, also where the database does not have its number."""
    return pl.concat_str(pl.lit(f"{what} "), number.cast(pl.String).fill_null("unknown"))


def placed(place: pl.Expr, unit: str, device: pl.Expr | None = None) -> list[pl.Expr]:
    """The columns that say which lane a row is on."""
    number = pl.lit(None) if device is None else device
    return [place.alias("place"), pl.lit(unit).alias("unit"), number.cast(pl.Int32, strict=False).alias("device")]


def launches(slices: pl.DataFrame, is_call: pl.Expr, is_launched: pl.Expr, key: list[str]) -> pl.DataFrame:
    """Edges from a call to all that it launched, which has its key."""
    calls = slices.filter(is_call).select(*key, pl.col("task").alias("src")).drop_nulls()
    launched = slices.filter(is_launched).select(*key, pl.col("task").alias("dst")).drop_nulls()
    met = calls.unique(key, keep="first", maintain_order=True).join(launched, on=key)
    return met.select("src", "dst", pl.lit("flow").alias("source"), pl.lit("launch").alias("name"))


def sound_rows(rows: pl.DataFrame, start: str, end: str, ledger: Ledger) -> pl.DataFrame:
    """The rows with usable times, as `start` and `dur`."""
    usable = [pl.col(c).is_between(0, LARGEST_US * 1000) for c in (start, end)]
    length = pl.col(end) - pl.col(start)
    sound = rows.filter(*usable, length <= LONGEST_US * 1000)
    ledger.dropped["row without a usable time"] += rows.height - sound.height
    ledger.repaired[NEGATIVE] += sound.filter(length < 0).height
    timed = sound.with_columns(pl.col(start).alias("start"), length.clip(lower_bound=0).alias("dur"))
    return timed.drop({start, end} - {"start"})


def sound_samples(samples: pl.DataFrame, ledger: Ledger) -> pl.DataFrame:
    """By time; a number that is missing, or has no time, is left out and counted."""
    sound = samples.drop_nulls(["time", "value"])
    ledger.records += samples.height
    ledger.dropped["sample without a usable time or number"] += samples.height - sound.height
    return sound.with_columns(unit=pl.lit("counter")).sort("time", maintain_order=True)


def on_lanes(slices: pl.DataFrame, samples: pl.DataFrame = NO_SAMPLES) -> tuple[pl.DataFrame, ...]:
    """Slices and samples with the lane that their place is, and the lanes."""
    place = list(_PLACE)
    places = pl.concat([slices.select(place), samples.select(place)], how="vertical_relaxed")
    lanes = places.unique(maintain_order=True).with_row_index("lane")
    joined = (
        rows.join(lanes, on=place, nulls_equal=True, maintain_order="left").drop(place) for rows in (slices, samples)
    )
    return *joined, lanes.rename({"place": "name"})
