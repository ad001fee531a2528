"""Folders import only from those above them in docs/understand/architecture.md, so that each can be read alone.

The same inside a folder: its sub-folders have an order, and no modules import one another in a circle. What is not so
yet stands here with its reason, and the lists can only shrink: an entry that is no longer needed fails, too.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src" / "npuscope"
PAGE = ROOT.parents[1] / "docs" / "understand" / "architecture.md"
ORDER = ["base", "models", "table", "chip", "trace", "explain", "ops", "tile", "lower", "check", "time", "answer"]
ORDER += ["forward", "report", "lab", "editor", "agents", "cli"]
ROOMS = {
    "chip": ["devices", "runtimes", "kernels"],
    "trace": ["readers", "writers"],
    "explain": ["diagnosis", "passes", "many"],
    "tile": ["record", "graph", "values", "shapes", "run", "calls", "language", "golden", "distributed", "script"],
    "check": ["races", "rules", "fixes"],
    "time": ["core", "chip", "ranks", "measured"],
    "forward": ["align", "llm"],
    "lab": ["payload"],
}
MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    """npuscope.check.rules of src/npuscope/check/rules/__init__.py."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}


@cache
def imported(module: str) -> frozenset[str]:
    """The modules of npuscope that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(NAMES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & NAMES.keys() or {node.module}
            found |= {node.module} if names - NAMES.keys() else set()
    return frozenset(found & NAMES.keys())


def folder_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def room_of(module: str) -> str:
    """The sub-folder of its folder that a module lies in, "" for none."""
    parts = module.split(".")
    return parts[2] if len(parts) > 2 and (ROOT / parts[1] / parts[2]).is_dir() else ""


def inside(folder: str) -> dict[str, set[str]]:
    """What the modules of a folder import of it."""
    modules = [module for module in NAMES if folder_of(module) == folder]
    return {module: {other for other in imported(module) if folder_of(other) == folder} for module in modules}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Modules that import one another, directly or not."""

    @cache
    def reached(module: str) -> frozenset[str]:
        seen: set[str] = set()
        waiting = [module]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        return frozenset(seen)

    groups = {frozenset(m for m in reached(module) if module in reached(m)) for module in graph}
    return [set(group) for group in groups if group]


@pytest.mark.parametrize("module", NAMES)
def test_a_folder_imports_only_from_above(module: str) -> None:
    place = folder_of(module)
    if place in ("", "__main__"):
        return
    above = {*ORDER[: ORDER.index(place) + 1], ""}
    assert {folder_of(other) for other in imported(module)} <= above


def test_every_sub_folder_that_imports_another_has_its_place() -> None:
    met: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for folder in ORDER:
        for module, others in inside(folder).items():
            met[folder] |= {(room_of(module), room_of(other)) for other in others}
    for folder, pairs in met.items():
        rooms = {room for one, other in pairs if one and other and one != other for room in (one, other)}
        assert rooms <= set(ROOMS.get(folder, ())), folder


@pytest.mark.parametrize("folder", ROOMS)
def test_a_sub_folder_imports_only_from_those_above_it(folder: str) -> None:
    order = ROOMS[folder]
    for module, others in inside(folder).items():
        here = room_of(module)
        for other in others if here else ():
            there = room_of(other)
            if there and order.index(there) > order.index(here):
                pytest.fail(f"{module} imports {other}")


@pytest.mark.parametrize("folder", ORDER)
def test_no_modules_import_one_another_in_a_circle(folder: str) -> None:
    assert circles(inside(folder)) == []


@pytest.mark.parametrize("folder", ORDER)
def test_a_sub_folder_as_a_whole_is_above_or_below_each_module_beside_it(folder: str) -> None:
    parts: dict[str, set[str]] = defaultdict(set)
    for module, others in inside(folder).items():
        if module != f"npuscope.{folder}":  # the folder itself may show what is in it
            parts[room_of(module) or module] |= {room_of(other) or other for other in others}
    try:
        TopologicalSorter({part: others - {part} for part, others in parts.items()}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("folder", ROOMS)
def test_the_page_says_the_order(folder: str) -> None:
    assert f"| `{folder}/` | {', '.join(f'`{room}`' for room in ROOMS[folder])} |" in PAGE.read_text()


def test_a_class_name_is_defined_once() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name, path in NAMES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


FEW_LINES = 40
KEPT_SMALL = {  # found by their place, not by an import
    "npuscope.__main__": "python -m npuscope",
    "npuscope.time.warm_up": "a process that compiles is started with its name",
}


def test_no_small_file_has_one_importer() -> None:
    """A file below FEW_LINES that one other imports is a function that lost its home."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for module in NAMES:
        for other in imported(module):
            importers[other].add(module)
    small = [
        name
        for name, path in NAMES.items()
        if path.name != "__init__.py"
        and folder_of(name) != "cli"  # a command is a file
        and room_of(name) not in ("readers", "writers")  # so is a format
        and len(importers[name]) <= 1
        and len(path.read_text().splitlines()) < FEW_LINES
        and name not in KEPT_SMALL
    ]
    assert small == []
