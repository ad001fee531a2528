"""Findings as SARIF 2.1.0, which code review shows beside the lines: rules with their help, a result per finding."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from json import dumps
from pathlib import Path

from npuscope import __version__
from npuscope.check.columns import cost_text, saving_text
from npuscope.check.rule import Finding, Rule, Severity
from npuscope.check.rules.safety import race_finding
from npuscope.check.run import Checked
from npuscope.lower.source import read
from npuscope.report.check_text import shown_path

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "hint": "note"}


def check_sarif(checks: Sequence[Checked], rules: Sequence[Rule]) -> str:
    """One run with all programs; paths are relative to the folder the command runs in."""
    found = [one for checked in checks for one in checked.findings]
    found += [one for checked in checks for one in (*checked.errors, *map(race_finding, checked.races))]
    return sarif(found, [sarif_rule(rule) for rule in rules])


def sarif(findings: Sequence[Finding], described: Sequence[dict[str, object]]) -> str:
    """Findings and their rules."""
    index = {rule["id"]: number for number, rule in enumerate(described)}
    tool = {"name": "npuscope", "version": __version__, "rules": described}
    run = {
        "tool": {"driver": tool},
        "originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri() + "/"}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, index[finding.id]) for finding in findings],
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


def _result(finding: Finding, index: int) -> dict[str, object]:
    cost, saving = cost_text(finding.waste), saving_text(finding.saves_ns)
    parts = [_sentence(finding.message), f"Costs {cost}." if cost else "", _sentence(saving) if saving else ""]
    parts.append(finding.fix)
    parts.append(f"Changed: {finding.change}" if finding.change else "")
    result: dict[str, object] = {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": " ".join(filter(None, parts))},
        "locations": [_location(finding.file, finding.line)],
        "partialFingerprints": {"npuscopeFinding/v1": _fingerprint(finding)},
    }
    if finding.saves_ns is not None:
        result["properties"] = {"saves_ns": finding.saves_ns}
    if finding.also:
        result["relatedLocations"] = [
            {"id": number, **_location(file, line)} for number, (file, line) in enumerate(finding.also)
        ]
    return result


def _location(file: str, line: int) -> dict[str, object]:
    near = shown_path(file)
    place = {"uri": Path(file).as_uri()} if os.path.isabs(near) else {"uri": _uri(near), "uriBaseId": "SRCROOT"}
    return {"physicalLocation": {"artifactLocation": place, "region": {"startLine": max(line, 1)}}}


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path.replace(os.sep, "/"))


def _fingerprint(finding: Finding) -> str:
    """The same for the same fault when lines above it move: rule, kernel and the text of the line."""
    source = read(finding.file)
    text = "" if source is None else " ".join(source.line(finding.line).split())
    name = os.path.basename(finding.file)
    return hashlib.sha256("\0".join((finding.id, name, finding.kernel, text)).encode()).hexdigest()[:32]


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
