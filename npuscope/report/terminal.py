"""Results as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from npuscope.analysis.doctor import Diagnosis
from npuscope.analysis.summary import Summary

_ACCOUNT = (
    ("merged", "became part of"),
    ("marked", "marked"),
    ("repaired", "repaired"),
    ("dropped", "left out"),
)


def info_text(summary: Summary, diagnosis: Diagnosis) -> str:
    """What `npuscope info` prints."""
    lines = [f"{_place(summary.files)}: {summary.format}"]
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
    ]
    lines += [f"  {name:<8} {value}" for name, value in rows if value]
    if summary.top_kernels:
        lines.append("")
        lines += _kernel_table(summary)
    account = [line for field, word in _ACCOUNT for line in _counts(word, getattr(summary, field))]
    if account:
        lines += ["", *account]
    lines += ["", f"doctor: {diagnosis.verdict}"]
    return "\n".join(lines)


def doctor_text(summary: Summary, diagnosis: Diagnosis) -> str:
    """What `npuscope doctor` prints."""
    lines = [f"{_place(summary.files)}: {summary.format}, {summary.slices:,} slices", diagnosis.verdict]
    for finding in diagnosis.findings:
        lines += ["", f"{finding.severity}: {finding.count:,} × {finding.what}  [{finding.id}]"]
        if finding.example:
            lines.append(f"  e.g. {printable(finding.example)}")
        lines.append(f"  {finding.effect}")
    return "\n".join(lines)


def _kernel_table(summary: Summary) -> list[str]:
    width = max(len("kernel"), *(min(len(k.kernel), 56) for k in summary.top_kernels))
    lines = [f"  {'kernel':<{width}}  {'count':>9}  {'sum µs':>14}"]
    for total in summary.top_kernels:
        name = total.kernel if len(total.kernel) <= 56 else total.kernel[:55] + "…"
        lines.append(f"  {printable(name):<{width}}  {total.count:>9,}  {total.total_ns / 1000:>14,.3f}")
    if summary.kernels > len(summary.top_kernels):
        lines.append(f"  … and {summary.kernels - len(summary.top_kernels):,} more kernels")
    return lines


def _counts(word: str, counts: Mapping[str, int]) -> list[str]:
    return [f"  {word:<15} {count:>9,}  {printable(reason)}" for reason, count in counts.items()]


def _place(files: tuple[str, ...]) -> str:
    if not files:
        return "trace"
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _range(steps: tuple[int, ...]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"


def printable(text: str) -> str:
    """Names come from captures: what would move a terminal's cursor is shown, not obeyed."""
    return "".join(c if c.isprintable() else "�" for c in text)
