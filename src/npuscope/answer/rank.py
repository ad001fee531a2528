"""Several programs, each predicted on its own, in order of their times: in processes of this machine or on a Ray
cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl

from npuscope.answer.answer import Answer
from npuscope.answer.judge import WARM
from npuscope.answer.prediction import brief_answer_of
from npuscope.answer.request import Request
from npuscope.answer.results import results_in
from npuscope.base import progress
from npuscope.base.interval import Against
from npuscope.base.jobs import Failed
from npuscope.base.pool import Workers, run
from npuscope.lower.chip import DEFAULT
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, TEXT, TIME, Form, figures, percent
from npuscope.time.uncertainty import COMPARED, INTERVAL, against

KIND = "rank"


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
    
        Column("rank", COUNT, "its place"),
        Column("variant", TEXT, "file and settings"),
        Column("key", TEXT, "tells equal variants in a results file", only="a hash"),
        Column("wall_ns", TIME, "simulated wall time"),
        Column("to_first", Form("ratio", "number", _ratio), "its wall over that of the variant named first"),
        Column("against_first", COMPARED, "where 80% of measured ratios lie, and the probability that it is faster",
               title="80%, likely faster"),
        Column("wall_interval_ns", INTERVAL, "where 80% of measured walls lie",
               only="the fastest's is told below the table, all are drawn"),
        Column("tasks", COUNT, "submitted"),
        Column("blocks", COUNT, "run"),
        Column("bound", TEXT, "the kind of its first cause (docs/reference/json.md)", title="limited by"),
        Column("verdict", TEXT, "the first sentence of its diagnosis", only="the fastest's is told above the table"),
        Column("worth", Form("text", "object", str), "what mending that is worth: `{ns, low_ns, high_ns}`",
               only="the fastest's is told above the table"),
        Column("memory", Form("text", "object", _fullest, right=False), "the fullest: `{function, space, share}`",
               title="memory"),
        Column("notice", TEXT, "what to know of its time: a ring too small, a store past a tensor",
               only="listed below the table"),
        Column("error", TEXT, "why it cannot run", only="listed below the table, once for all that have it"),
        Column("settings", TEXT, "object: name -> value, as text", only="they are the variant's name"),
)  # fmt: skip


def answers_of(
    requests: Sequence[Request], results: Path | None = None, engine: str = "processes", jobs: int | None = None
) -> list[Answer]:
    """A brief answer for each, in their order; those in `results` are taken from there, the others added to it."""
    with results_in(results, KIND) as kept:
        known = kept.known(requests)
        missing = [request for request, one in zip(requests, known, strict=True) if one is None]
        ran = iter(_run(missing, len(requests) - len(missing), engine, jobs))
        found = [
            kept.add(request, next(ran) if one is None else one) for request, one in zip(requests, known, strict=True)
        ]
    return [replace(one, candidate=request.name) for request, one in zip(requests, found, strict=True)]


def _run(missing: list[Request], done: int, engine: str, jobs: int | None) -> Iterator[Answer]:
    what, total = "simulating variants", done + len(missing)
    progress.report(what, done, total)
    for one in brief_answers(missing, Workers(engine, jobs, modules=WARM)):
        yield one
        done += 1
        progress.report(what, done, total)


def brief_answers(requests: Sequence[Request], workers: Workers) -> Iterator[Answer]:
    """A brief answer for each; one that ended its process without any is tried again another time."""
    isolated = workers.jobs != 1 or workers.engine != "processes"
    for request, one in zip(requests, run(brief_answer_of, requests, workers, isolated), strict=True):
        yield (
            Answer(request.name, "crashed", one.message, device=request.device or DEFAULT)
            if isinstance(one, Failed)
            else one
        )


def ranked(found: Sequence[Answer]) -> list[Answer]:
    """The fastest first; those that do not run last, as they came."""
    return sorted(found, key=lambda one: (one.wall_ns is None, one.wall_ns or 0))


def best_by_setting(requests: Sequence[Request], found: Iterable[Answer]) -> dict[str, dict[str, int | None]]:
    """Per setting with several values the best time in nanoseconds of each; None where no variant with it runs."""
    times = {one.candidate: one.wall_ns for one in found}
    best: dict[str, dict[str, int | None]] = {}
    for request in requests:
        time = times[request.name]
        for name, value in request.settings:
            values = best.setdefault(name, {})
            so_far = values.setdefault(value, time)
            if time is not None:
                values[value] = time if so_far is None else min(so_far, time)
    return {name: values for name, values in best.items() if len(values) > 1}


def variant_table(found: Sequence[Answer], baseline: Answer) -> Table:
    """Ranked variants; `baseline` is the one named first."""
    rows = []
    for number, one in enumerate(found, 1):
        versus = against_first(one, baseline)
        rows.append(
            {
                "rank": number,
                "variant": one.candidate,
                "key": one.key,
                "wall_ns": one.wall_ns,
                "to_first": one.wall_ns / baseline.wall_ns if one.wall_ns and baseline.wall_ns else None,
                "against_first": versus and versus.as_dict(),
                "wall_interval_ns": one.time and one.time.as_dict(),
                "tasks": one.tasks,
                "blocks": one.blocks,
                "bound": one.bound or None,
                "verdict": one.bound_message or None,
                "worth": one.worth and asdict(one.worth),
                "memory": one.memory and asdict(one.memory),
                "notice": (one.message or None) if one.time else None,
                "error": one.error,
            }
        )
    return Table(VARIANTS, pl.DataFrame(rows, infer_schema_length=None))


def against_first(one: Answer, baseline: Answer) -> Against | None:
    """A variant against the one named first; None for that one itself, or where one of them does not run."""
    if one.key == baseline.key or not one.wall_ns or not baseline.wall_ns:
        return None
    return against(baseline.wall_ns, one.wall_ns, baseline.regime, one.regime)


def variant_rows(found: Sequence[Answer], baseline: Answer, settings: Mapping[str, object]) -> list[dict[str, object]]:
    """The contract of `rank` and `sweep --json`: what there is; `settings` by variant."""
    rows = variant_table(found, baseline).rows()
    there = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return [{**row, "settings": settings[str(row["variant"])]} for row in there]
