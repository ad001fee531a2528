"""What a check found, as a review to post: each scope's performance and code quality, what spans scopes, the costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from npuscope.check.columns import FINDINGS, cost_text, found_row, saving_text, table_of
from npuscope.check.rule import Finding, Section
from npuscope.check.rules import all_rules
from npuscope.check.rules.safety import race_finding
from npuscope.check.run import Checked
from npuscope.check.source_text import MODULE_LEVEL
from npuscope.report.check_text import ALONE, by_section, counts, diagnosis_lines, shown_path
from npuscope.table.formats import sentence_start
from npuscope.table.parts import Heading, Marked, Part, Rows, Say, as_markdown, marked_down
from npuscope.tile.record.model import short_name

QUALITY = frozenset(rule.id for rule in all_rules() if rule.about == "quality")
ROWS = 20  # of the closing table


def check_markdown(file: str, device: str, checks: Sequence[Checked], command: str) -> str:
    """A review of every program of a file; `command` is how to make it again."""
    parts: list[Part] = [Heading(f"Check of {file} on {device}", 1), Say(f"{counts(checks)}.")]
    for checked in checks:
        if len(checks) > 1:
            parts.append(Heading(f"Program {short_name(checked.program)}"))
        parts += _program(checked)
    return as_markdown(parts, command)


def _program(checked: Checked) -> Iterator[Part]:
    for line in diagnosis_lines(checked):
        yield Say(line)
    if checked.errors:
        yield Heading("Errors")
        yield _bullets(checked.errors)
    if checked.races:
        yield Heading("Races")
        yield _bullets(map(race_finding, checked.races))
    inside = [one for one in checked.findings if not one.crosses]
    files = Counter(one.section.file for one in inside)

    def in_order(section: Section) -> tuple[int, str, bool, int]:
        """The file that most is said of first, each in its own order, with what is outside of functions last."""
        return -files[section.file], section.file, section.title == MODULE_LEVEL, section.first

    for section, found in sorted(by_section(inside).items(), key=lambda item: in_order(item[0])):
        lines = f", lines {section.first}–{section.last}" if section.first else ""
        yield Heading(f"{section.title} ({shown_path(section.file)}{lines})")
        for title, ones in (("Performance", _about(found, False)), ("Code quality", _about(found, True))):
            if ones:
                yield Say(title, strong=True)
                yield _bullets(ones)
    if across := [one for one in checked.findings if one.crosses]:
        yield Heading("Across scopes")
        yield _bullets(across)
    if costly := [one for one in checked.findings if one.seconds]:
        yield Heading("What it costs")
        yield Rows(table_of(FINDINGS, map(found_row, costly)), markdown=ROWS)
        yield Say(ALONE if checked.diagnosis is not None else "Not priced: they are ranked by bytes, FLOPs and tasks.")


def _about(found: Iterable[Finding], quality: bool) -> list[Finding]:
    return [one for one in found if (one.id in QUALITY) is quality]


def _bullets(found: Iterable[Finding]) -> Part:
    return Marked("\n".join(f"- {_bullet(finding)}" for finding in found))


def _bullet(finding: Finding) -> str:
    cost, saving = cost_text(finding.waste), saving_text(finding.saves_ns)
    lines = [
        f"**{finding.id}** ({finding.severity}, {_place(finding)}): {marked_down(finding.message)}."
        + (f" Costs {cost}." if cost else "")
        + (f" {sentence_start(saving)}." if saving else "")
        + f" {marked_down(finding.fix)}"
    ]
    if finding.also:
        others = sorted({line for file, line in finding.also if file == finding.file})
        elsewhere = sorted({f"{Path(f).name} {line}" for f, line in finding.also if f != finding.file})
        places = [*map(str, others), *map(marked_down, elsewhere)]
        lines.append(f"  Also: {', '.join(places[:12])}{', …' if len(places) > 12 else ''}.")
    if finding.change:
        lines.append(f"\n  ```python\n  {_code(finding.change)}\n  ```")
    return "\n".join(lines)


def _place(finding: Finding) -> str:
    return f"{marked_down(Path(finding.file).name)} line {finding.line}"


def _code(line: str) -> str:
    """A line of source inside a fence: one line, and nothing that ends the fence."""
    return "".join(c if c.isprintable() else " " for c in line).replace("```", "'''")
