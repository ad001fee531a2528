"""What `npuscope check --json` prints (docs/json.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from npuscope.check.checked import Checked
from npuscope.check.findings import Finding
from npuscope.check.run import Found


def check_dict(file: str, device: str, checks: Sequence[Checked]) -> dict[str, Any]:
    """Findings, memory, races and errors of all programs; `program` counts them where a file runs several."""
    return {
        "file": file,
        "device": device,
        "programs": [checked.program for checked in checks],
        "findings": [{"program": n, **_found(one)} for n, checked in enumerate(checks) for one in checked.findings],
        "memory": [{"program": n, **asdict(line)} for n, checked in enumerate(checks) for line in checked.memory],
        "races": [{"program": n, **race.as_dict()} for n, checked in enumerate(checks) for race in checked.races],
        "errors": [{"program": n, **finding_dict(one)} for n, checked in enumerate(checks) for one in checked.errors],
        "replays": [{"program": n, **c.replayed.as_dict()} for n, c in enumerate(checks) if c.replayed is not None],
        "ignored": sum(checked.ignored for checked in checks),
    }


def _found(one: Found) -> dict[str, Any]:
    told = finding_dict(one.finding)
    told["cost"]["microseconds_estimate"] = round(one.seconds * 1e6, 3)
    return {**told, "scope": one.section.title}


def finding_dict(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": finding.severity,
        "file": finding.file,
        "line": finding.line,
        "message": finding.message,
        "cost": asdict(finding.waste),
        "kernel": finding.kernel,
        "fix": finding.fix,
        "change": finding.change,
        "count": finding.count,
        "also": [{"file": file, "line": line} for file, line in finding.also],
    }
