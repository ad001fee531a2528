"""What came of variants: a row of a ranking each, and a line of a file that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import polars as pl

from npuscope.answer import kept_lines
from npuscope.base.surroundings import Surroundings
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, TEXT, TIME, Form, figures, percent
from npuscope.time.estimate_forms import COMPARED, INTERVAL
from npuscope.time.uncertainty import Against, Estimate, against, time_after, time_estimate


def _fullest(value: object) -> str:
    """`Mat 98.4% (gate_aic)`."""
    if not isinstance(value, dict):
        return str(value)
    function = f" ({value['function']})" if value["function"] else ""
    return f"{value['space']} {percent(value['share'])}{function}"


def _ratio(value: object) -> str:
    return f"{figures(value)}x" if isinstance(value, float) else str(value)


VARIANTS = Columns(
    "rank",
    "A variant, the fastest first and those that cannot run last. What there is not is left out.",
    (
        Column("rank", COUNT, "its place"),
        Column("variant", TEXT, "file and settings"),
        Column("key", TEXT, "tells equal variants in a results file", only="a hash"),
        Column("wall_ns", TIME, "simulated wall time"),
        Column("to_first", Form("ratio", "number", _ratio), "its wall over that of the variant named first"),
        Column("against_first", COMPARED, "where 80% of measured ratios lie, and the probability that it is faster",
               title="80%, faster"),
        Column("wall_interval_ns", INTERVAL, "where 80% of measured walls lie",
               only="the fastest's is told below the table, all are drawn"),
        Column("tasks", COUNT, "submitted"),
        Column("blocks", COUNT, "run"),
        Column("bound", TEXT, "the kind of its first cause (docs/reference/json.md)", title="limited by"),
        Column("verdict", TEXT, "the first sentence of its diagnosis", only="the fastest's is told above the table"),
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
    verdict: str | None = None  # the first sentence of its diagnosis
    before_ns: int | None = None  # the anchored wall of the program that a capture is of, and the kind of its cause
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


def kept(path: Path | None) -> AbstractContextManager[tuple[dict[str, Outcome], Callable[[Outcome], None]]]:
    """Outcomes so far by key, and how to add one; without a path nothing is kept."""
    return kept_lines.kept(path, kept_lines.Kind(Outcome, b'{"variant": "', "rank or sweep"))
