"""The files of a program: the script and every module of the user's own that it imports, as the text tells."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from npuscope.tile.record import sites

MOST = 400  # files: a program of more is not one


@dataclass(frozen=True, eq=False)
class OwnFile:
    """One of them. `module` is the name that it is imported by, "" for the script. Its tree is not to be changed."""

    path: Path
    module: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # of the tree, outer before inner


def own_files(script: Path) -> tuple[OwnFile, ...]:
    """The script first, then what it imports. A file that is no Python is left out: running it will say so."""
    roots = _roots(script)
    found: dict[Path, OwnFile] = {}
    waiting = [(script.resolve(), "")]
    while waiting and len(found) < MOST:
        path, module = waiting.pop(0)
        if path in found:
            continue
        try:
            text = path.read_bytes()
            tree, nodes = _parsed(text, str(path))
        except (OSError, SyntaxError, ValueError):
            continue
        found[path] = OwnFile(path, module, tree, nodes)
        for name in _imported(nodes, path, module):
            waiting += [(file, name) for file in _files(name, roots) if file not in found]
    return tuple(found.values())


@lru_cache(maxsize=64)
def _parsed(text: bytes, name: str) -> tuple[ast.Module, tuple[ast.AST, ...]]:
    """A file's tree and its nodes: the lab asks for them several times at every save."""
    tree = ast.parse(text, name)
    return tree, tuple(ast.walk(tree))


def _roots(script: Path) -> tuple[Path, ...]:
    """Where its modules lie: beside it, above it (scripts of a package put that on their path), and on Python's."""
    folder = script.resolve().parent
    users = [Path(place).resolve() for place in sys.path if place and not sites.is_installed(place)]
    return tuple(dict.fromkeys([folder, *folder.parents[:2], *users]))


def _imported(nodes: Iterable[ast.AST], path: Path, module: str) -> Iterator[str]:
    """The names of modules that a file may import, wherever in it."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if package else []
                base = ".".join([*above, base] if base else above)
            if base:
                yield base
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _files(name: str, roots: tuple[Path, ...]) -> Iterator[Path]:
    """The file of a module and those of the packages that it lies in; none where it is not the user's."""
    parts = name.split(".")
    if not all(parts):
        return
    for root in roots:
        place = root.joinpath(*parts)
        file = next((f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()), None)
        if file is None:
            continue
        if sites.is_users(str(file)):
            yield file.resolve()
        return
