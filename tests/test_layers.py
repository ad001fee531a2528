"""Folders import only from those above them in docs/architecture.md, so that each can be read alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "npuscope"
ORDER = [
    "errors",
    "engine",
    "progress",
    "garbage",
    "toml_file",
    "kernels",
    "trace",
    "device",
    "analysis",
    "forward",
    "ops",
    "tile",
    "lower",
    "check",
    "simulate",
    "llm",
    "report",
    "view",
    "cli",
]
MODULES = sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The top-level parts of npuscope that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = [f"npuscope.{a.name}" for a in node.names]
            names = parts if node.module == "npuscope" else [node.module]
        found |= {name.split(".")[1] for name in names if name.startswith("npuscope.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_folder_imports_only_from_above(path: Path) -> None:
    place = path.relative_to(ROOT).with_suffix("").parts[0]
    if place in ("__init__", "__main__"):
        return
    above = {*ORDER[: ORDER.index(place) + 1], "__version__"}
    assert imported(path) <= above


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_stays_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
