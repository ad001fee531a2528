"""What `npuscope check` found: a list by scope as text, a review to post as Markdown, SARIF for code review, JSON."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from npuscope import __version__
from npuscope.base.unsaved import lines_of
from npuscope.check.columns import ERRORS, FINDINGS, cost_text, error_row, found_row, saving_text, table_of
from npuscope.check.fixes.patch import Patch
from npuscope.check.races.conflicts import false_edges
from npuscope.check.races.detect import ChangedOutput, Race
from npuscope.check.races.replay import Replayed
from npuscope.check.rule import SEVERITIES, Finding, Rule, Section, Severity
from npuscope.check.rules import all_rules
from npuscope.check.rules.edges import implied_edges, needless_deps
from npuscope.check.rules.safety import race_finding
from npuscope.check.run import Checked
from npuscope.check.source_text import MODULE_LEVEL
from npuscope.lower.build_folder import is_build
from npuscope.lower.source import read
from npuscope.report.captures import together
from npuscope.table.formats import duration, figures, many, sentence_start
from npuscope.table.parts import Heading, In, Marked, Notes, Part, Rows, Say, marked_down
from npuscope.table.text import aligned
from npuscope.tile.record.model import short_name

if TYPE_CHECKING:
    from npuscope.answer.prediction import Prediction

TOP = 5  # findings shown of a scope
ROWS = 20  # of the review's closing table
PLACES = 12  # of one finding in a review
EACH_ONE = "What a finding saves is simulated without it, each alone: savings do not add up. `check --fix` tries fixes."
QUALITY = frozenset(rule.id for rule in all_rules() if rule.about == "quality")
ACCESSES = {"raw": ("written", "read"), "waw": ("written", "written"), "war": ("read", "written")}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "hint": "note"}


def first_answer(program: str, unfit: Sequence[Finding]) -> str:
    """What is known before races and times are looked for."""
    if not unfit:
        return f"{program} fits on chip. Races and times follow."
    return f"{program} will not work: {unfit[0].message}. The rest follows."


def check(file: str, checks: Sequence[Checked], everything: bool = False) -> Iterator[Part]:
    """The answer, then all programs of a file, one after the other; in text every finding where `everything`."""
    counted = counts(checks)
    yield Heading(f"Check of {file} on {checks[0].device}", 1, In.MARKDOWN)
    yield Say(f"{counted}.", where=In.MARKDOWN)
    if any(checked.errors for checked in checks):
        yield Say(f"Will not work as it is: {counted}", kind="error", where=In.TEXT)
    elif any(checked.races for checked in checks):
        yield Say(f"Fits on chip, and is not safe: tasks race ({counted})", kind="error", where=In.TEXT)
    elif any(checked.replayed is not None and checked.replayed.is_unsafe for checked in checks):
        fails = any(checked.replayed is not None and checked.replayed.fails for checked in checks)
        changed = f"in another legal order {'it does not end' if fails else 'an output changes'}"
        yield Say(f"Fits on chip, and is not safe: {changed} (else {counted})", kind="error", where=In.TEXT)
    else:
        safe = "no two live tiles share bytes" if is_build(file) else "is safe to schedule"
        yield Say(f"Fits on chip and {safe}: {counted}", strong=True, where=In.TEXT)
    for number, checked in enumerate(checks):
        name = f" program {number}," if len(checks) > 1 else ""
        yield Say(f"{file}:{name} {short_name(checked.program)} on {checked.device}", where=In.TEXT)
        if len(checks) > 1:
            yield Heading(f"Program {short_name(checked.program)}", where=In.MARKDOWN)
        yield from _diagnosis(checked, checks[number - 1] if number else None)
        yield Notes(checked.notes, "note: ")
        replayed = checked.replayed
        yield from _by_scope(checked, everything, None if number and replayed and replayed.ranks else replayed)
        yield from _review(checked)


def counts(checks: Sequence[Checked]) -> str:
    """One line: how many of what."""
    found = [one.severity for checked in checks for one in checked.findings]
    found += ["error" for checked in checks for _ in (*checked.errors, *checked.races)]
    parts = [many(found.count(severity), severity) for severity in SEVERITIES if severity in found]
    if silenced := sum(checked.ignored for checked in checks):
        parts.append(f"{silenced} ignored by comments")
    if costly := sum(checked.costly for checked in checks):
        parts.append(f"{costly} left out that would cost time if mended")
    return ", ".join(parts) or "nothing found"


def _diagnosis(checked: Checked, before: Checked | None) -> Iterator[Part]:
    """How long the program takes, simulated, and what bounds it; or why findings have no price. All programs of ranks
    were simulated in one run, which is told of once."""
    found = checked.diagnosis
    if found is None:
        if checked.unpriced:
            yield Say(f"{sentence_start(checked.unpriced)}.")
        return
    how = f"Simulated, {checked.ranks} ranks together" if checked.ranks else "Simulated"
    if not checked.ranks or before is None:
        yield Say(f"{how}: {duration(found.wall_ns)}. {found.verdict.sentence}")
    if checked.findings:
        yield Say(EACH_ONE)
    if found.together is not None:
        yield Say(together(found.together))


def by_section(found: Iterable[Finding]) -> dict[Section, list[Finding]]:
    """Findings of each scope; parts of a file under one title are one section."""
    titles: dict[tuple[str, str], list[Finding]] = {}
    for one in found:
        titles.setdefault((one.section.file, one.section.title), []).append(one)
    return {
        Section(*place, min(one.section.first for one in ones), max(one.section.last for one in ones)): ones
        for place, ones in titles.items()
    }


def _by_scope(checked: Checked, everything: bool, replayed: Replayed | None) -> Iterator[Part]:
    """Errors first, then races, what another order changes, and the costliest findings of each scope."""
    if checked.errors:
        yield Heading("errors", where=In.TEXT)
        yield Notes([line for finding in checked.errors for line in finding_lines(finding)], where=In.TEXT)
    if checked.races:
        yield Heading("races", where=In.TEXT)
        yield Notes([line for race in checked.races for line in _race_lines(race)], where=In.TEXT)
    if replayed is not None:
        yield Heading("\n".join(_replay_lines(replayed)), where=In.TEXT)
    for section, found in by_section(checked.findings).items():  # in the order of the first of each
        shown = found if everything else [one for n, one in enumerate(found) if n < TOP or _must_be_seen(one)]
        where = f", lines {section.first} to {section.last}" if section.first else ""
        place = f"{section.title} ({shown_path(section.file)}{where})"
        yield Heading(f"{place}: {many(len(found), 'finding')}", where=In.TEXT)
        more = len(found) - len(shown)
        left_out = [f"… and {more} more here; --all shows them"] if more else []
        yield Notes([*(line for one in shown for line in finding_lines(one)), *left_out], where=In.TEXT)


def audit(prediction: Prediction) -> Iterator[Part]:
    """What `npuscope graph --audit` prints."""
    found, counted = prediction.audit, _audited(prediction)
    where = f"{prediction.request.file}: {short_name(prediction.recording.program)}"
    yield Heading(f"{where}: {many(counted['tasks'], 'task')}, {many(counted['edges'], 'edge')}")
    yield Notes(
        [
            f"{counted['implied']:,} implied by others",
            f"{counted['needless']:,} declared by deps= that no data need",
            f"{counted['false']:,} inferred between tasks that touch different elements",
        ]
    )
    if not found.findings:
        yield Say("No edge that could go, no chain that could be one task, no consumer that could be staged early.")
        return
    yield Say(f"Simulated: {duration(found.wall_ns)}. {EACH_ONE}")
    yield Notes([line for one in found.findings for line in finding_lines(one)])


def audit_data(prediction: Prediction) -> dict[str, object]:
    """The contract of `npuscope graph --audit --json` (docs/reference/json.md)."""
    found = prediction.audit
    return {
        "file": prediction.request.file,
        "program": prediction.recording.program,
        "device": prediction.chip.name,
        "wall_ns": found.wall_ns,
        **_audited(prediction),
        "findings": table_of(FINDINGS, [found_row(one) for one in found.findings]).rows(),
    }


def _audited(prediction: Prediction) -> dict[str, int]:
    program = prediction.program
    return {
        "tasks": len(program.recording.tasks),
        "edges": sum(src >= 0 for src, _ in program.graph.pairs),
        "implied": len(implied_edges(program)),
        "needless": len(needless_deps(program)),
        "false": len(false_edges(program)),
    }


def _must_be_seen(one: Finding) -> bool:
    """Wrong numbers cost nothing that ranks them."""
    return one.severity == "error" or (one.severity == "warning" and not one.seconds)


def finding_lines(finding: Finding) -> list[str]:
    """A finding with its place, cost and fix."""
    lines = [f"{shown_path(finding.file)}:{finding.line}: {finding.severity}: {finding.message} [{finding.id}]"]
    if cost := cost_text(finding.waste):
        lines.append(f"    costs {cost}" + (f"; met {finding.count:,} times" if finding.count > 1 else ""))
    if saving := saving_text(finding):
        lines.append(f"    {saving}")
    return [*lines, f"    remedy: {finding.remedy}", *([f"    + {finding.change}"] if finding.change else [])]


def _race_lines(race: Race) -> list[str]:
    """Both accesses, why nothing orders them, what would, and what another order changed."""
    first, second = (
        f"{side.region} {done} by {short_name(side.kernel)} ({shown_path(side.file)}:{side.line})"
        for side, done in zip(race.sides, ACCESSES[race.hazard], strict=True)
    )
    often = f", {race.count:,} times" if race.count > 1 else ""
    lines = [f"error: {second} may come before {first}{often} [race]", f"    {race.why}", f"    remedy: {race.remedy}"]
    if race.changes is not None:
        lines += _changes("    replayed the other way", race.changes)
    return [*lines, f"    not replayed: {race.unplayed}"] if race.unplayed else lines


def _replay_lines(other: Replayed) -> list[str]:
    order = f"another {'order of ranks' if other.ranks else 'legal order'} (seed {other.seed})"
    if other.unplayed or other.fails:
        return [f"not replayed: {other.unplayed}" if other.unplayed else f"{order}: {other.fails}"]
    return [*_changes(order, other.seeded), *(f"  {one}" for one in other.reads)]


def _changes(order: str, changes: Sequence[ChangedOutput]) -> list[str]:
    lines = []
    for one in changes:
        by = "" if one.largest is None else f" by up to {figures(one.largest)}"
        where = f"{one.elements:,} of {one.of:,} elements, first at {list(one.first)}"
        lines.append(f"{order}: {one.output} differs{by} in {where}")
    return lines or [f"{order}: every output stays the same"]


def shown_path(file: str) -> str:
    """A path as people would write it from here."""
    try:
        near = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if near.startswith("..") else near


def rules_text(rules: Iterable[Rule]) -> str:
    """What `--list-rules` prints."""
    titles = ((rule, f"{rule.title} (on request)" if rule.on_request else rule.title) for rule in rules)
    return "\n".join(aligned([[rule.id, rule.severity, title] for rule, title in titles], (False, False, False)))


def _review(checked: Checked) -> Iterator[Part]:
    """Each scope's performance and code quality, what spans scopes, the costs; only Markdown has it."""
    if checked.errors:
        yield Marked(f"## Errors\n\n{_bullets(checked.errors)}")
    if checked.races:
        yield Marked(f"## Races\n\n{_bullets(map(race_finding, checked.races))}")
    inside = [one for one in checked.findings if not one.crosses]
    files = Counter(one.section.file for one in inside)

    def in_order(section: Section) -> tuple[int, str, bool, int]:
        """The file that most is said of first, each in its own order, with what is outside of functions last."""
        return -files[section.file], section.file, section.title == MODULE_LEVEL, section.first

    for section, found in sorted(by_section(inside).items(), key=lambda item: in_order(item[0])):
        lines = f", lines {section.first}–{section.last}" if section.first else ""
        yield Heading(f"{section.title} ({shown_path(section.file)}{lines})", where=In.MARKDOWN)
        for title, is_quality in (("Performance", False), ("Code quality", True)):
            if ones := [one for one in found if (one.id in QUALITY) is is_quality]:
                yield Marked(f"**{title}**\n\n{_bullets(ones)}")
    if across := [one for one in checked.findings if one.crosses]:
        yield Marked(f"## Across scopes\n\n{_bullets(across)}")
    if costly := [one for one in checked.findings if one.seconds]:
        yield Heading("What it costs", where=In.MARKDOWN)
        yield Rows(table_of(FINDINGS, map(found_row, costly)), markdown=ROWS, where=In.MARKDOWN)
        unpriced = "Not priced: they are ranked by bytes, FLOPs and tasks."
        yield Say(EACH_ONE if checked.diagnosis is not None else unpriced, where=In.MARKDOWN)


def _bullets(found: Iterable[Finding]) -> str:
    return "\n".join(f"- {_bullet(finding)}" for finding in found)


def _bullet(finding: Finding) -> str:
    cost, saving = cost_text(finding.waste), saving_text(finding)
    place = f"{finding.severity}, {marked_down(Path(finding.file).name)} line {finding.line}"
    text = f"**{finding.id}** ({place}): {marked_down(finding.message)}."
    text += f" Costs {cost}." if cost else ""
    text += f" {sentence_start(saving)}." if saving else ""
    lines = [f"{text} {marked_down(finding.remedy)}"]
    if finding.also:
        here = sorted({line for file, line in finding.also if file == finding.file})
        elsewhere = sorted({f"{Path(f).name} {line}" for f, line in finding.also if f != finding.file})
        places = [*map(str, here), *map(marked_down, elsewhere)]
        lines.append(f"  Also: {', '.join(places[:PLACES])}{', …' if len(places) > PLACES else ''}.")
    if finding.change:  # one line, and nothing that ends the fence
        code = "".join(c if c.isprintable() else " " for c in finding.change).replace("```", "'''")
        lines.append(f"\n  ```python\n  {code}\n  ```")
    return "\n".join(lines)


def check_data(file: str, checks: Sequence[Checked]) -> dict[str, object]:
    """Findings, memory, races and errors of all programs; `program` counts them where a file runs several."""
    each = list(enumerate(checks))
    return {
        "file": file,
        "device": checks[0].device,
        "programs": [checked.program for checked in checks],
        "diagnoses": [None if one.diagnosis is None else one.diagnosis.as_dict() for one in checks],
        "unpriced": [one.unpriced for one in checks],
        "findings": table_of(FINDINGS, (found_row(one, n) for n, checked in each for one in checked.findings)).rows(),
        "memory": [{"program": n, **line._asdict()} for n, checked in each for line in checked.memory],
        "races": [{"program": n, **race.as_dict()} for n, checked in each for race in checked.races],
        "errors": table_of(ERRORS, (error_row(one, n) for n, checked in each for one in checked.errors)).rows(),
        "replays": [{"program": n, **c.replayed.as_dict()} for n, c in each if c.replayed is not None],
        "ignored": sum(checked.ignored for checked in checks),
    }


def check_sarif(checks: Sequence[Checked], rules: Sequence[Rule]) -> str:
    """One run with all programs; paths are relative to the folder the command runs in."""
    found = [one for checked in checks for one in checked.findings]
    found += [one for checked in checks for one in (*checked.errors, *map(race_finding, checked.races))]
    return sarif(found, [sarif_rule(rule) for rule in rules])


def sarif(
    findings: Sequence[Finding], described: Sequence[dict[str, object]], fixes: Sequence[tuple[Patch, str]] = ()
) -> str:
    """SARIF 2.1.0, which code review shows beside the lines: rules with their help, a result per finding, with what
    mends it: patches, each with what it gives. Two findings have one fingerprint nowhere: a reviewer would see one.
    """
    index = {rule["id"]: number for number, rule in enumerate(described)}
    results, known = [], Counter[str]()
    for finding in findings:
        mark = _fingerprint(finding)
        known[mark] += 1
        again = f"-{known[mark]}" if known[mark] > 1 else ""
        results.append(_result(finding, index[finding.id], mark + again, fixes))
    run = {
        "tool": {"driver": {"name": "npuscope", "version": __version__, "rules": described}},
        "originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri() + "/"}},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def sarif_rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.id.split("-")),
        "shortDescription": {"text": _sentence(rule.title)},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{_sentence(rule.title)} {rule.why}"},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": [rule.about]},
    }


def _result(finding: Finding, index: int, fingerprint: str, fixes: Sequence[tuple[Patch, str]]) -> dict[str, object]:
    cost, saving = cost_text(finding.waste), saving_text(finding)
    parts = [_sentence(finding.message), f"Costs {cost}." if cost else "", _sentence(saving) if saving else ""]
    parts += [finding.remedy, f"Changed: {finding.change}" if finding.change else ""]
    result: dict[str, object] = {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": " ".join(filter(None, parts))},
        "locations": [_location(finding.file, finding.line)],
        "partialFingerprints": {"npuscopeFinding/v1": fingerprint},
    }
    place = (finding.id, finding.file, finding.line)
    if ours := [_fix(patch, gain) for patch, gain in fixes if place in patch.mends]:
        result["fixes"] = ours
    if finding.saves_ns is not None:
        result["properties"] = {"saves_ns": finding.saves_ns}
    if finding.also:
        result["relatedLocations"] = [
            {"id": number, **_location(file, line)} for number, (file, line) in enumerate(finding.also)
        ]
    return result


def _fix(patch: Patch, gain: str) -> dict[str, object]:
    """Lines to take out and what to put there; the last line of a file may have no end."""
    lines = lines_of(patch.before)
    replacements = []
    for edit in patch.edits:
        end = {"endLine": edit.last + 1, "endColumn": 1}
        if edit.last == len(lines) and not patch.before.endswith("\n"):
            end = {"endLine": edit.last, "endColumn": len(lines[-1]) + 1}
        region = {"startLine": edit.first + 1, "startColumn": 1, **end}
        replacements.append({"deletedRegion": region, "insertedContent": {"text": edit.text}})
    change = {"artifactLocation": _artifact(patch.file), "replacements": replacements}
    return {"description": {"text": f"{_sentence(patch.title)} {gain}"}, "artifactChanges": [change]}


def _location(file: str, line: int) -> dict[str, object]:
    return {"physicalLocation": {"artifactLocation": _artifact(file), "region": {"startLine": max(line, 1)}}}


def _artifact(file: str) -> dict[str, str]:
    near = shown_path(file)
    if os.path.isabs(near):
        return {"uri": Path(file).as_uri()}
    return {"uri": quote(near.replace(os.sep, "/")), "uriBaseId": "SRCROOT"}


def _fingerprint(finding: Finding) -> str:
    """The same for the same fault when lines above it move: rule, kernel and the text of the line."""
    source = read(finding.file)
    text = "" if source is None else " ".join(source.line(finding.line).split())
    words = finding.id, os.path.basename(finding.file), finding.kernel, text
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _sentence(text: str) -> str:
    return sentence_start(text) if text.endswith((".", "!", "?")) else f"{sentence_start(text)}."
