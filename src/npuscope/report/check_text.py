"""What `npuscope check` found, as plain text: errors first, then what does not fit, races, then findings by section."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from npuscope.check.columns import cost_text, saving_text
from npuscope.check.races.detect import ChangedOutput, Race
from npuscope.check.races.replay import Replayed
from npuscope.check.rule import SEVERITIES, Finding, Rule, Section
from npuscope.check.run import Checked
from npuscope.report.captures import together
from npuscope.table.formats import duration, many, printable, sentence_start
from npuscope.table.text import Paint, aligned, plain
from npuscope.tile.record.model import short_name

TOP = 5  # findings shown of a scope
ALONE = "What a finding saves is simulated without it, each alone: savings do not add up."


def check_text(
    file: str, device: str, checks: Sequence[Checked], everything: bool = False, paint: Paint = plain
) -> str:
    """The answer, then all programs of a file, one after the other."""
    lines: list[str] = [verdict(checks, paint)]
    for number, checked in enumerate(checks):
        name = f" program {number}," if len(checks) > 1 else ""
        lines += [f"{printable(file)}:{name} {printable(short_name(checked.program))} on {device}"]
        lines += diagnosis_lines(checked)
        lines += [line for part in _parts(checked, everything) for line in ("", *part)] + [""]
    return "\n".join(lines).rstrip()


def verdict(checks: Sequence[Checked], paint: Paint = plain) -> str:
    """Whether it can run as it is, in a line."""
    if any(checked.errors for checked in checks):
        return paint(f"Will not work as it is: {counts(checks)}", "error")
    if any(checked.races for checked in checks):
        return paint(f"Fits on chip, and is not safe: tasks race ({counts(checks)})", "error")
    return paint(f"Fits on chip and is safe to schedule: {counts(checks)}", "headline")


def counts(checks: Sequence[Checked]) -> str:
    """One line: how many of what."""
    found = [one.severity for checked in checks for one in checked.findings]
    found += ["error" for checked in checks for _ in (*checked.errors, *checked.races)]
    told = [many(found.count(severity), severity) for severity in SEVERITIES if severity in found]
    silenced = sum(checked.ignored for checked in checks)
    if silenced:
        told.append(f"{silenced} ignored by comments")
    return ", ".join(told) or "nothing found"


def diagnosis_lines(checked: Checked) -> list[str]:
    """How long the program takes, simulated, and what bounds it; or why findings have no price."""
    if checked.diagnosis is None:
        return [f"{sentence_start(checked.unpriced)}."] if checked.unpriced else []
    found = checked.diagnosis
    told = [f"Simulated: {duration(found.wall_ns)}. {found.verdict.sentence}", *([ALONE] if checked.findings else [])]
    return told if found.together is None else [*told, together(found.together)]


def by_section(found: Iterable[Finding]) -> dict[Section, list[Finding]]:
    """Findings of each scope; parts of a file under one title are one section."""
    titles: dict[tuple[str, str], list[Finding]] = {}
    lines: dict[tuple[str, str], tuple[int, int]] = {}
    for one in found:
        section = one.section
        place = section.file, section.title
        first, last = lines.get(place, (section.first, section.last))
        lines[place] = min(first, section.first), max(last, section.last)
        titles.setdefault(place, []).append(one)
    return {Section(*place, *lines[place]): ones for place, ones in titles.items()}


def _parts(checked: Checked, everything: bool) -> Iterable[list[str]]:
    if checked.errors:
        yield ["errors", *(line for finding in checked.errors for line in finding_lines(finding))]
    if checked.races:
        yield ["races", *(line for race in checked.races for line in race_lines(race))]
    if checked.replayed is not None:
        yield replay_lines(checked.replayed)
    for section, found in by_section(checked.findings).items():  # in the order of the first of each
        shown = found if everything else [one for n, one in enumerate(found) if n < TOP or _must_be_seen(one)]
        lines = [_heading(section, found)]
        lines += [line for one in shown for line in finding_lines(one)]
        if len(found) > len(shown):
            lines.append(f"  … and {len(found) - len(shown)} more here; --all shows them")
        yield lines


def _must_be_seen(one: Finding) -> bool:
    """Wrong numbers cost nothing that ranks them."""
    return one.severity == "error" or (one.severity == "warning" and not one.seconds)


def _heading(section: Section, found: Sequence[Finding]) -> str:
    place = f"{printable(shown_path(section.file))}{lines_of(section)}"
    return f"{printable(section.title)} ({place}): {many(len(found), 'finding')}"


def finding_lines(finding: Finding) -> list[str]:
    """A finding with its place, cost and fix."""
    place = f"{shown_path(finding.file)}:{finding.line}"
    lines = [f"  {printable(place)}: {finding.severity}: {printable(finding.message)} [{finding.id}]"]
    if cost := cost_text(finding.waste):
        times = f"; met {finding.count:,} times" if finding.count > 1 else ""
        lines.append(f"      costs {cost}{times}")
    if saving := saving_text(finding.saves_ns):
        lines.append(f"      {saving}")
    lines.append(f"      fix: {printable(finding.fix)}")
    if finding.change:
        lines.append(f"      + {printable(finding.change)}")
    return lines


def race_lines(race: Race) -> list[str]:
    """Both accesses, why nothing orders them, what would, and what another order changed."""
    first, second = (
        f"{side.region} {_DOES[race.hazard][n]} by {short_name(side.kernel)} ({shown_path(side.file)}:{side.line})"
        for n, side in enumerate(race.sides)
    )
    times = f", {race.count:,} times" if race.count > 1 else ""
    lines = [f"  error: {printable(second)} may come before {printable(first)}{times} [race]"]
    lines += [f"      {printable(race.why)}", f"      fix: {printable(race.fix)}"]
    if race.changes is not None:
        lines += [f"      replayed the other way: {told}" for told in _changes(race.changes)]
    return [*lines, f"      not replayed: {printable(race.unplayed)}"] if race.unplayed else lines


_DOES = {"raw": ("written", "read"), "waw": ("written", "written"), "war": ("read", "written")}


def replay_lines(replayed: Replayed) -> list[str]:
    if replayed.unplayed:
        return [f"not replayed: {printable(replayed.unplayed)}"]
    return [f"another legal order (seed {replayed.seed}): {told}" for told in _changes(replayed.seeded)]


def _changes(changes: Sequence[ChangedOutput]) -> list[str]:
    told = []
    for one in changes:
        by = "" if one.largest is None else f" by up to {one.largest:.3g}"
        where = f"{one.elements:,} of {one.of:,} elements, first at {list(one.first)}"
        told.append(f"{printable(one.output)} differs{by} in {where}")
    return told or ["every output stays the same"]


def lines_of(section: Section) -> str:
    return f", lines {section.first} to {section.last}" if section.first else ""


def shown_path(file: str) -> str:
    """A path as people would write it from here."""
    try:
        near = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if near.startswith("..") else near


def rules_text(rules: Iterable[Rule]) -> str:
    """What `--list-rules` prints."""
    return "\n".join(aligned([[rule.id, rule.severity, rule.title] for rule in rules], (False, False, False)))
