"""Shared fixtures: the real captures, where this machine has them. And which test files are slow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from real_data import DATA
from small import SMALL
from tiers import ALL_TESTS, examples

os.environ.setdefault("NPUSCOPE_ENGINE", "compiled")  # no compiler in the background of a test

SLOW = [
    line.split("\t")[1] for line in Path(__file__).with_name("slow.tsv").read_text().splitlines()
]  # the slowest first

settings.register_profile("npuscope", examples(40, deadline=None, derandomize=True))
settings.load_profile("npuscope")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only `make test-all` runs. Slow files first: at the end one would leave a core without work."""
    if not ALL_TESTS:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("full")])
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    place = {path: number for number, path in enumerate(SLOW)}
    items.sort(key=lambda item: place.get(str(item.path.relative_to(config.rootpath)), len(place)))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real captures beside the project; tests that need it skip elsewhere."""
    if not DATA.is_dir():
        pytest.skip(f"the real captures are not on this machine ({DATA})")
    return DATA


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small capture of every format, of our own making (tests/small.py)."""
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in SMALL.items()}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of `any_capture` is of each: ours everywhere, and the real ones where this machine has them."""
    if "any_capture" in metafunc.fixturenames:
        real = [str(path.relative_to(DATA)) for path in captures()]
        metafunc.parametrize("any_capture", [*SMALL, *real], indirect=True)


@pytest.fixture
def any_capture(request: pytest.FixtureRequest, small: dict[str, Path]) -> Path:
    return small[request.param] if request.param in small else DATA / request.param


def captures() -> list[Path]:
    """Every real capture on this machine, files and folders."""
    if not DATA.is_dir():
        return []
    found = [p.parent for p in DATA.rglob("proc.*")]
    found += [p.parent for name in ("chip_swimlane_records.json",) for p in DATA.rglob(name)]
    found += [p for p in DATA.rglob("*") if p.suffix in (".json", ".gz", ".csv", ".db")]
    usual = ("kernel_details.csv", "trace_view.json", ".json.gz", ".db")
    kept = [p for p in found if p.is_dir() or p.name.endswith(usual) or p.parent.name == "pypto"]
    return sorted({p for p in kept if "edge_cases" not in p.parts})
