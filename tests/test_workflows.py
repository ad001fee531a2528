"""The workflow that runs elsewhere: pinned, of the Pythons that the package names, and of targets that exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from sessions import ROOT

yaml = pytest.importorskip("yaml", reason="no PyYAML: pip install -e '.[docs]'")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = ("ci", "nightly")
JOBS: dict[str, Any] = {
    name: job
    for file in WORKFLOWS
    for name, job in yaml.safe_load((ROOT / f".github/workflows/{file}.yml").read_text())["jobs"].items()
}
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40}")


def steps() -> Iterator[dict[str, Any]]:
    for job in JOBS.values():
        yield from job["steps"]


def test_actions_are_pinned_to_commits() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    assert [name for name in used if not PINNED.fullmatch(name)] == []


def test_all_pythons_of_the_package_are_tested() -> None:
    named = [name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if "Python :: 3." in name]
    assert JOBS["tests"]["strategy"]["matrix"]["python"] == named


def test_the_targets_that_it_makes_exist_and_every_target_is_described() -> None:
    makefile = (ROOT / "Makefile").read_text()
    described = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    made = {word for step in steps() for word in re.findall(r"make ([\w-]+)", step.get("run", ""))}
    assert made
    assert made <= described
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert set(phony.split()) == described
