"""What a check found, as a review to post: each scope's performance and code quality, what spans scopes, the costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from npuscope.check.checked import Checked
from npuscope.check.findings import Finding
from npuscope.check.rules import all_rules
from npuscope.check.rules.race import race_finding
from npuscope.check.run import Found
from npuscope.check.source.sections import MODULE_LEVEL, Section
from npuscope.report.check_text import by_section, cost_text, counts, microseconds, shown_path
from npuscope.report.markdown import bullets, document, text
from npuscope.tile.record.names import short_name

QUALITY = frozenset(rule.id for rule in all_rules() if rule.about == "quality")
ROWS = 20  # of the closing table


def check_markdown(file: str, device: str, checks: Sequence[Checked], command: str) -> str:
    """A review of every program of a file; `command` is how to make it again."""
    parts = [f"# Check of {text(file)} on {text(device)}", f"{counts(checks)}."]
    for checked in checks:
        if len(checks) > 1:
            parts.append(f"## Program {text(short_name(checked.program))}")
        parts += _program(checked)
    return document(parts, command)


def _program(checked: Checked) -> Iterable[str]:
    if checked.errors:
        yield "## Errors"
        yield bullets(_bullet(finding, 0.0) for finding in checked.errors)
    if checked.races:
        yield "## Races"
        yield bullets(_bullet(race_finding(race), 0.0) for race in checked.races)
    inside = [one for one in checked.findings if not one.crosses]
    files = Counter(one.section.file for one in inside)

    def in_order(section: Section) -> tuple[int, str, bool, int]:
        """The file that most is said of first, each in its own order, with what is outside of functions last."""
        return -files[section.file], section.file, section.title == MODULE_LEVEL, section.first

    for section, found in sorted(by_section(inside).items(), key=lambda item: in_order(item[0])):
        lines = f", lines {section.first}–{section.last}" if section.first else ""
        yield f"## {text(section.title)} ({text(shown_path(section.file))}{lines})"
        for title, ones in (("Performance", _about(found, False)), ("Code quality", _about(found, True))):
            if ones:
                yield f"**{title}**"
                yield bullets(_bullet(one.finding, one.seconds) for one in ones)
    if across := [one for one in checked.findings if one.crosses]:
        yield "## Across scopes"
        yield bullets(_bullet(one.finding, one.seconds) for one in across)
    if costly := [one for one in checked.findings if one.seconds]:
        yield "## What it costs"
        yield _costs(costly)


def _about(found: Iterable[Found], quality: bool) -> list[Found]:
    return [one for one in found if (one.finding.id in QUALITY) is quality]


def _bullet(finding: Finding, seconds: float) -> str:
    cost = cost_text(finding.waste, seconds)
    lines = [
        f"**{finding.id}** ({finding.severity}, {_place(finding)}): {text(finding.message)}."
        + (f" Costs {cost}." if cost else "")
        + f" {text(finding.fix)}"
    ]
    if finding.also:
        others = sorted({line for file, line in finding.also if file == finding.file})
        elsewhere = sorted({f"{Path(f).name} {line}" for f, line in finding.also if f != finding.file})
        places = [*map(str, others), *map(text, elsewhere)]
        lines.append(f"  Also: {', '.join(places[:12])}{', …' if len(places) > 12 else ''}.")
    if finding.change:
        lines.append(f"\n  ```python\n  {_code(finding.change)}\n  ```")
    return "\n".join(lines)


def _place(finding: Finding) -> str:
    return f"{text(Path(finding.file).name)} line {finding.line}"


def _code(line: str) -> str:
    """A line of source inside a fence: one line, and nothing that ends the fence."""
    return "".join(c if c.isprintable() else " " for c in line).replace("```", "'''")


def _costs(found: Sequence[Found]) -> str:
    several = len({one.finding.file for one in found}) > 1
    rows = ["| finding | line | cost | estimate |", "|---|---:|---|---:|"]
    for one in found[:ROWS]:
        cost = cost_text(one.finding.waste, one.seconds).rpartition(", about ")[0]
        place = f"{text(Path(one.finding.file).name)} {one.finding.line}" if several else str(one.finding.line)
        rows.append(f"| {one.finding.id} | {place} | {cost} | {microseconds(one.seconds)} |")
    if len(found) > ROWS:
        rows.append(f"| … and {len(found) - ROWS} more | | | |")
    note = "Estimates rank findings by the chip's peak rates; they do not overlap costs as a run would."
    return "\n".join(rows) + f"\n\n{note}"
