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
