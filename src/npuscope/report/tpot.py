"""Time per token as a report: the measurement basis, groups by area, which steps were simulated; and its history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npuscope.forward.llm.tpot import Tpot
from npuscope.forward.llm.tpot_history import Entry, commit_told, history_table, ms_of, series, settings_told
from npuscope.report.charts.history import history_chart, likely
from npuscope.table.formats import levels, significant
from npuscope.table.parts import Chart, Heading, Notes, Part, Rows, Say
from npuscope.time.estimate_forms import chance_told
from npuscope.time.uncertainty import against

RUNS = 40  # of a history, drawn in a line


def tpot(result: Tpot, wide: bool = False) -> Iterator[Part]:
    tables = result.tables()
    yield Heading(result.title())
    yield Say(result.verdict(), strong=True)
    yield Rows(result.basis().facts(), text=100)
    yield Heading(
        "groups (tasks) per layer"
        if result.layers is not None
        else "groups (tasks) per step: the program takes no --layers"
    )
    yield Rows(tables["group_table"])
    yield Heading(_interpolated(result))
    yield Rows(tables["simulated"], wide=wide)
    yield Notes(result.notes, "note: ")


def _interpolated(result: Tpot) -> str:
    count, of = len(result.simulated), result.decoding.tokens
    if count == of:
        return "The step was simulated." if of == 1 else f"All {of} steps were simulated."
    return f"{count} of {of} steps were simulated (a row's length counts the new token); linear between them."


def since(known: Sequence[Entry], entry: Entry) -> str:
    """The new entry of a history beside those of the same settings."""
    told = settings_told(entry)
    before = [one for one in known if settings_told(one) == told]
    if not before:
        return "The history has no earlier run with these settings."
    values = [ms_of(one) for one in (*before, entry)][-RUNS:]
    old, new = values[-2:]
    change = f" ({new / old - 1:+.1%})" if old else ""
    a, b = (str(one.get("bound")) for one in (before[-1], entry))
    sure = f", faster with a probability of {chance_told(against(old, new, a, b))}" if old > 0 and new > 0 else ""
    trend = levels(value / (max(values) or 1.0) for value in values)
    moved = f"{significant(old)} → {significant(new)} ms/token{change}{sure}"
    return f"Since {commit_told(before[-1])}: {moved}; runs so far {trend}"


def history(name: str, entries: Sequence[Entry]) -> Iterator[Part]:
    """A history file over commits."""
    yield Heading(f"Time per token: {name}", 1)
    yield Say(_verdict(entries), strong=True)
    yield Chart(history_chart(entries))
    yield Heading("Runs")
    yield Rows(history_table(entries))


def _verdict(entries: Sequence[Entry]) -> str:
    """Where the longest-followed settings stand against their beginning."""
    if not entries:
        return "Nothing measured yet."
    told, run = max(series(entries).items(), key=lambda one: len(one[1]))
    first, last = (ms_of(entry) for _, entry in (run[0], run[-1]))
    change = f", {last / first - 1:+.1%} since {significant(first)}" if len(run) > 1 and first else ""
    return f"{significant(last)} ms/token{likely(run[-1][1])}{change} ({told})."
