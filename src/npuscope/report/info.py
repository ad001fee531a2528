"""What a capture is, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.explain.doctor import Symptoms
from npuscope.explain.summary import Summary
from npuscope.table.formats import duration, many, sentence_start
from npuscope.table.parts import Heading, Notes, Part, Rows, Say

ACCOUNT = (
    ("merged", "joined"),
    ("marked", "marked"),
    ("repaired", "repaired"),
    ("dropped", "left out"),
    ("unknown", "not understood"),
)
MOST_COUNTERS = 10


def info(path: str, summary: Summary, symptoms: Symptoms) -> Iterator[Part]:
    """What `npuscope info` prints of the capture at `path`."""
    lanes = ", ".join(f"{n} {unit}" for unit, n in summary.lanes.items())
    tasks = f"{summary.slices:,} from {many(summary.records, 'record')}, {summary.tasks:,} of them device tasks"
    samples = many(summary.samples, "sample")
    rows = {
        "device": summary.device or "not recorded",
        "lanes": lanes or "none",
        "ranks": f"{len(summary.ranks)}" if len(summary.ranks) > 1 else "",
        "slices": tasks,
        "window": duration(summary.window_ns),
        "kernels": f"{summary.kernels:,}",
        "steps": f"{summary.steps} ({_range(summary.step_ids)})" if summary.steps else "none marked",
        "links": f"{summary.edges:,} from one slice to another (dependencies, launches)" if summary.edges else "none",
        "counters": f"{summary.counters.height:,} with {samples}" if summary.counters.height else "",
    }
    yield Heading(f"{path}: {summary.format}, {duration(summary.window_ns)} with {many(summary.slices, 'slice')}")
    yield Notes([f"{name:<8} {value}" for name, value in rows.items() if value])
    if summary.top_kernels:
        yield Rows(summary.tables()["top_kernels"])
        if summary.kernels > len(summary.top_kernels):
            yield Notes([f"… and {summary.kernels - len(summary.top_kernels):,} more kernels"])
    if summary.counters.height:
        yield Rows(summary.tables()["counters"], MOST_COUNTERS)
    account = [
        f"{word:<15} {count:>9,}  {reason}"
        for name, word in ACCOUNT
        for reason, count in getattr(summary, name).items()
    ]
    yield Notes(account)
    yield Say(f"doctor: {symptoms.verdict}")
    for found in symptoms.findings:
        if found.id == "instrumented":
            yield Say(f"recording: {found.effect}")


def doctor(path: str, format: str, slices: int, symptoms: Symptoms) -> Iterator[Part]:
    """What `npuscope doctor` prints of the capture at `path`."""
    yield Say(sentence_start(symptoms.verdict), strong=True)
    yield Say(f"{path}: {format}, {many(slices, 'slice')}")
    for finding in symptoms.findings:
        yield Heading(f"{finding.severity}: {finding.count:,} × {finding.what}  [{finding.id}]")
        yield Notes([*([f"e.g. {finding.example}"] if finding.example else []), finding.effect])


def _range(steps: tuple[int, ...]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
