"""What `npuscope check --json` prints (docs/reference/json.md)."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.check.columns import ERRORS, FINDINGS, error_row, found_row, table_of
from npuscope.check.run import Checked


def check_dict(file: str, device: str, checks: Sequence[Checked]) -> dict[str, object]:
    """Findings, memory, races and errors of all programs; `program` counts them where a file runs several."""
    told = list(enumerate(checks))
    return {
        "file": file,
        "device": device,
        "programs": [checked.program for checked in checks],
        "diagnoses": [None if one.diagnosis is None else one.diagnosis.as_dict() for one in checks],
        "unpriced": [one.unpriced for one in checks],
        "findings": table_of(FINDINGS, (found_row(one, n) for n, checked in told for one in checked.findings)).rows(),
        "memory": [{"program": n, **line._asdict()} for n, checked in told for line in checked.memory],
        "races": [{"program": n, **race.as_dict()} for n, checked in told for race in checked.races],
        "errors": table_of(ERRORS, (error_row(one, n) for n, checked in told for one in checked.errors)).rows(),
        "replays": [{"program": n, **c.replayed.as_dict()} for n, c in told if c.replayed is not None],
        "ignored": sum(checked.ignored for checked in checks),
    }
