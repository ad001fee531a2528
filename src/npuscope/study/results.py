"""What came of variants, kept in a file of JSON lines that only ever grows, so that nothing is simulated twice.

One command at a time writes to a file. What is not such a file is refused and left as it is; only a last line of ours
that an interrupt cut off is taken out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

import msgspec
import polars as pl

from npuscope.analysis.forms import COUNT, TEXT, TIME, Form, percent
from npuscope.analysis.table import Column, Columns, Table
from npuscope.errors import BadInput, CannotWrite
from npuscope.simulate.estimate_forms import COMPARED, INTERVAL
from npuscope.simulate.uncertainty import Against, Estimate, against, time_after, time_estimate
from npuscope.tile.script.surroundings import Surroundings

OURS = b'{"variant": "'


def _fullest(value: object) -> str:
    """`Mat 98.4% (gate_aic)`."""
    if not isinstance(value, dict):
        return str(value)
    function = f" ({value['function']})" if value["function"] else ""
    return f"{value['space']} {percent(value['share'])}{function}"


def _third(value: object) -> str:
    return f"{value:.3f}x" if isinstance(value, float) else str(value)


VARIANTS = Columns(
    "rank",
    "A variant, the fastest first and those that cannot run last. What there is not is left out.",
    (
        Column("rank", COUNT, "its place"),
        Column("variant", TEXT, "file and settings"),
        Column("key", TEXT, "tells equal variants in a results file", only="a hash"),
        Column("wall_ns", TIME, "simulated wall time"),
        Column("to_first", Form("ratio", "number", _third), "its wall over that of the variant named first"),
        Column("against_first", COMPARED, "where 80 % of measured ratios lie, and the probability that it is faster",
               title="80 %, faster"),
        Column("wall_interval_ns", INTERVAL, "where 80 % of measured walls lie",
               only="the fastest's is told below the table, all are drawn"),
        Column("tasks", COUNT, "submitted"),
        Column("blocks", COUNT, "run"),
        Column("bound", TEXT, "memory, cube, vector, scheduler, orchestrator or dependency"),
        Column("memory", Form("text", "object", _fullest, right=False), "the fullest: `{function, space, share}`",
               title="fullest memory"),
        Column("finding", TEXT, "what to know of its time: a ring too small, a store past a tensor",
               only="listed below the table"),
        Column("error", TEXT, "why it cannot run", only="listed below the table, once for all that have it"),
        Column("settings", TEXT, "object: name -> value, as text", only="they are the variant's name"),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Fullest:
    """The fullest on-chip memory of a program; above 1 a comment lets it through."""

    function: str
    space: str
    share: float


@dataclass(frozen=True)
class Outcome:
    """What came of a variant: a time, or the error that keeps it from running."""

    variant: str
    key: str
    wall_ns: int | None = None
    tasks: int | None = None
    blocks: int | None = None
    bound: str | None = None
    memory: Fullest | None = None
    error: str | None = None
    finding: str | None = None
    before_ns: int | None = None  # the anchored wall of the program that a capture is of, and its bound
    before_bound: str | None = None
    seen: Surroundings | None = None  # what its program took from around it, which its key tells of

    def as_dict(self) -> dict[str, object]:
        """A line of `--results`: what there is."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def is_whole(self) -> bool:
        if self.error is not None:
            return self.wall_ns is None
        return self.wall_ns is not None and self.wall_ns >= 0 and None not in (self.tasks, self.blocks, self.bound)


def variant_table(found: Sequence[Outcome], baseline: Outcome) -> Table:
    """Ranked variants; `baseline` is the one named first."""
    walls = [one.wall_ns / baseline.wall_ns if one.wall_ns and baseline.wall_ns else None for one in found]
    ranks = ({"rank": number, "to_first": wall} for number, wall in enumerate(walls, 1))
    rows = [
        {**asdict(replace(one, seen=None)), **rank, **_likely(one, baseline)}
        for one, rank in zip(found, ranks, strict=True)
    ]
    return Table(VARIANTS, pl.DataFrame(rows, infer_schema_length=None))


def against_first(one: Outcome, baseline: Outcome) -> Against | None:
    """A variant against the one named first; None for that one itself, or where one of them does not run."""
    if one.key == baseline.key or not one.wall_ns or not baseline.wall_ns:
        return None
    return against(baseline.wall_ns, one.wall_ns, baseline.bound or "", one.bound or "")


def wall_estimate(one: Outcome) -> Estimate | None:
    """With a capture below it as sure as the change from it, else as any wall."""
    if one.wall_ns is None:
        return None
    if one.before_ns and one.wall_ns:
        return time_after(one.wall_ns, against(one.before_ns, one.wall_ns, one.before_bound or "", one.bound or ""))
    return time_estimate(one.wall_ns, "wall", one.bound or "")


def _likely(one: Outcome, baseline: Outcome) -> dict[str, object]:
    versus, wall = against_first(one, baseline), wall_estimate(one)
    return {
        "against_first": None if versus is None else versus.as_dict(),
        "wall_interval_ns": None if wall is None else wall.as_dict(),
    }


def variant_rows(
    found: Sequence[Outcome], baseline: Outcome, settings: Mapping[str, object]
) -> list[dict[str, object]]:
    """The contract of `rank` and `sweep --json`: what there is; `settings` by variant."""
    rows = variant_table(found, baseline).rows()
    told = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return [{**row, "settings": settings[str(row["variant"])]} for row in told]


@contextmanager
def kept(path: Path | None) -> Iterator[tuple[dict[str, Outcome], Callable[[Outcome], None]]]:
    """Outcomes so far by key, and how to add one; without a path nothing is kept."""
    if path is None:
        yield {}, lambda one: None
        return
    if path.exists() and not path.is_file():
        raise CannotWrite("is a folder" if path.is_dir() else "is no regular file", path=path)
    with _refusing(path):
        file = path.open("a+b")
    try:
        with _refusing(path):
            _lock(file, path)
            known = _read(file, path)

        def add(one: Outcome) -> None:
            with _refusing(path):
                file.write(json.dumps(one.as_dict()).encode() + b"\n")
                file.flush()

        yield known, add
    finally:
        with _refusing(path):  # what could not be written is tried once more
            file.close()


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(error.strerror or str(error), path=path, remedy="Name another file for --results.") from error


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        raise CannotWrite(
            "another rank or sweep is writing to it", path=path, remedy="Wait for it, or name another file."
        ) from error


def _read(file: BinaryIO, path: Path) -> dict[str, Outcome]:
    file.seek(0)
    *lines, last = file.read().split(b"\n")
    found = {}
    for number, line in enumerate(lines, 1):
        try:
            one = msgspec.json.decode(line, type=Outcome)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _not_ours(path, number) from error
        if not one.is_whole:
            raise _not_ours(path, number)
        found[one.key] = one
    if last:
        if not (last.startswith(OURS) or OURS.startswith(last)):
            raise _not_ours(path, len(lines) + 1)
        file.truncate(sum(map(len, lines)) + len(lines))
    return found


def _not_ours(path: Path, line: int) -> BadInput:
    remedy = "Name the file that an earlier rank or sweep wrote, or a new one."
    return BadInput("not a result of rank or sweep", path=path, line=line, remedy=remedy)
