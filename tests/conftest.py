"""Shared fixtures: the real captures, where this machine has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"

settings.register_profile("npuscope", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("npuscope")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real captures beside the project; tests that need it skip elsewhere."""
    if not DATA.is_dir():
        pytest.skip(f"the real captures are not on this machine ({DATA})")
    return DATA


def captures() -> list[Path]:
    """Every capture on this machine, files and folders."""
    if not DATA.is_dir():
        return []
    found = [p.parent for p in DATA.rglob("proc.*")]
    found += [p.parent for name in ("chip_swimlane_records.json",) for p in DATA.rglob(name)]
    found += [p for p in DATA.rglob("*") if p.suffix in (".json", ".gz", ".csv", ".db")]
    usual = ("kernel_details.csv", "trace_view.json", ".json.gz", ".db")
    kept = [p for p in found if p.is_dir() or p.name.endswith(usual) or p.parent.name == "pypto"]
    return sorted({p for p in kept if "edge_cases" not in p.parts})
