"""Results as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from npuscope.analysis.doctor import Diagnosis
from npuscope.analysis.summary import Summary
from npuscope.analysis.table import aligned, microseconds, printable, short

_ACCOUNT = (
    ("merged", "became part of"),
    ("marked", "marked"),
    ("repaired", "repaired"),
    ("dropped", "left out"),
    ("unknown", "not understood"),
)
MOST_COUNTERS = 10


def info_text(path: str, summary: Summary, diagnosis: Diagnosis) -> str:
    """What `npuscope info` prints of the capture at `path`."""
    lines = [f"{printable(path)}: {summary.format}"]
    rows = [
        ("device", summary.device or "not told"),
        ("lanes", ", ".join(f"{n} {unit}" for unit, n in summary.lanes.items()) or "none"),
        ("ranks", f"{len(summary.ranks)}" if len(summary.ranks) > 1 else ""),
        (
            "slices",
            f"{summary.slices:,} from {summary.records:,} records, {summary.tasks:,} of them device tasks",
        ),
        ("window", f"{summary.window_ns / 1000:,.3f} µs from {summary.start_ns} ns"),
        ("kernels", f"{summary.kernels:,}"),
        ("steps", f"{summary.steps} ({_range(summary.step_ids)})" if summary.steps else "none marked"),
        ("edges", f"{summary.edges:,}"),
        ("counters", f"{len(summary.counters):,} with {summary.samples:,} samples" if summary.counters else ""),
    ]
    lines += [f"  {name:<8} {value}" for name, value in rows if value]
    if summary.top_kernels:
        lines.append("")
        lines += _kernel_table(summary)
    if summary.counters:
        lines += ["", *_counter_table(summary)]
    account = [line for field, word in _ACCOUNT for line in _counts(word, getattr(summary, field))]
    if account:
        lines += ["", *account]
    lines += ["", f"doctor: {diagnosis.verdict}"]
    lines += [f"recording: {found.effect}" for found in diagnosis.findings if found.id == "instrumented"]
    return "\n".join(lines)


def doctor_text(path: str, format: str, slices: int, diagnosis: Diagnosis) -> str:
    """What `npuscope doctor` prints of the capture at `path`."""
    lines = [f"{printable(path)}: {format}, {slices:,} slices", diagnosis.verdict]
    for finding in diagnosis.findings:
        lines += ["", f"{finding.severity}: {finding.count:,} × {finding.what}  [{finding.id}]"]
        if finding.example:
            lines.append(f"  e.g. {printable(finding.example)}")
        lines.append(f"  {finding.effect}")
    return "\n".join(lines)


def _kernel_table(summary: Summary) -> list[str]:
    rows = [["kernel", "count", "sum µs"]]
    rows += [[short(k.kernel), f"{k.count:,}", microseconds(k.total_ns)] for k in summary.top_kernels]
    lines = aligned(rows, (False, True, True))
    if summary.kernels > len(summary.top_kernels):
        lines.append(f"  … and {summary.kernels - len(summary.top_kernels):,} more kernels")
    return lines


def _counter_table(summary: Summary) -> list[str]:
    rows = [["counter", "lane", "samples", "least", "mean", "most"]]
    for one in summary.counters[:MOST_COUNTERS]:
        levels = [f"{value:,.4g}" for value in (one.least, one.mean, one.most)]
        rows.append([short(one.name), short(one.lane, 24), f"{one.samples:,}", *levels])
    lines = aligned(rows, (False, False, True, True, True, True))
    if len(summary.counters) > MOST_COUNTERS:
        lines.append(f"  … and {len(summary.counters) - MOST_COUNTERS:,} more counters")
    return lines


def _counts(word: str, counts: Mapping[str, int]) -> list[str]:
    return [f"  {word:<15} {count:>9,}  {printable(reason)}" for reason, count in counts.items()]


def _range(steps: tuple[int, ...]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
