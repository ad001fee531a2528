"""A CSV file as text cells, exactly as written, with the line of whatever is wrong with it.

A spreadsheet runs a cell that begins like a formula. So what we write has a ' before such text, and what we read has
none: the cells are the same on both sides.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from polars.exceptions import NoDataError, PolarsError

from npuscope.base.errors import BadInput
from npuscope.trace import source

BOM = b"\xef\xbb\xbf"
# what a spreadsheet acts on, and numbers that begin alike; quotes before it are part of it, so that any can be undone
FORMULA = r"(?s)^'*(\s*[=+\-@＝＋－＠].|[\t\r\n])"
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
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
        raise _located(path, data, len(header), str(error)) from error
    # Polars fills short rows with empty cells in silence, so rows that end in one are looked at again
    suspects = cells.select((pl.col(columns[-1]) == "").arg_true()).to_series()
    blank = pl.all_horizontal(pl.col(columns) == "")
    blank_lines = int(cells[suspects.to_list()].select(blank.sum()).item()) if len(suspects) else 0
    if len(suspects) > blank_lines:
        _refuse_short_rows(path, data, len(header))
    lines = cells.select(pl.int_range(2, pl.len() + 2, dtype=pl.Int64).alias("line"))["line"]
    if blank_lines:
        is_blank = cells.select(blank.alias("blank"))["blank"]
        cells, lines = cells.filter(~is_blank), lines.filter(~is_blank)
    line_end = "\r\n" if b"\r\n" in head else "\n"
    cells = unguarded(cells)
    return CsvTable(tuple(header), cells, lines, line_end, head.startswith(BOM), blank_lines)


def unique_names(header: list[str]) -> list[str]:
    """Column names that a table can hold: repeats get a number."""
    seen: dict[str, int] = {}
    names = []
    for name in header:
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return names


def _text(path: Path, data: Path | bytes) -> io.TextIOWrapper:
    raw = io.BytesIO(data) if isinstance(data, bytes) else path.open("rb")
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")


def _located(path: Path, data: Path | bytes, width: int, message: str) -> BadInput:
    """The error of the first line that a strict second reading rejects."""
    whole = data if isinstance(data, bytes) else path.read_bytes()
    try:
        whole.decode()
    except UnicodeDecodeError as error:
        return BadInput("bytes that are not UTF-8 text", path=path, line=whole.count(b"\n", 0, error.start) + 1)
    with _text(path, whole) as text:
        rows = csv.reader(text, strict=True)
        try:
            for row in rows:
                if row and len(row) != width:
                    what = f"{len(row)} cells where the header has {width}"
                    return BadInput(what, path=path, line=rows.line_num)
        except csv.Error as error:
            return BadInput(f"broken CSV ({error})", path=path, line=rows.line_num)
    return BadInput(f"not readable as CSV ({message.splitlines()[0]})", path=path)


def _refuse_short_rows(path: Path, data: Path | bytes, width: int) -> None:
    with _text(path, data) as text:
        rows = csv.reader(text)
        for row in rows:
            if row and len(row) != width:
                raise BadInput(
                    f"{len(row)} cells where the header has {width}: the file looks truncated",
                    path=path,
                    line=rows.line_num,
                    remedy="Copy or export it again.",
                )
