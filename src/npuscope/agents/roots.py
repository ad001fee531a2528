"""The folders that a server may read: those that it was started with, and those that its client names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from npuscope.base.errors import NpuscopeError
from npuscope.models import PREFIX, file_of


def folder_of(uri: str) -> Path | None:
    """The folder of a client's root, which is a file:// address; None for any other."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" and parts.path else None


def check_allowed(paths: Iterable[str], roots: Sequence[Path]) -> None:
    """Refuses a path outside all roots, links resolved, before anything of it is read. Models and sources pass."""
    folders = [_resolved(root) for root in roots]
    for path in paths:
        if path.startswith(PREFIX) or "\n" in path or _is_model(path):
            continue
        for place in _places(Path(path)):
            if not any(place.is_relative_to(folder) for folder in folders):
                raise NpuscopeError(
                    "this path lies outside the folders that the server may read", path=path,
                    remedy="Start it with --root FOLDER, or use a path below its roots.",
                )  # fmt: skip


def _is_model(path: str) -> bool:
    """Whether it is a file of the models that come with npuscope."""
    return _resolved(Path(path)).is_relative_to(_models())


def _models() -> Path:
    return _resolved(Path(file_of(f"{PREFIX}basics/gemm"))).parents[1]


def _places(path: Path) -> Iterable[Path]:
    """Where a path leads to, and every link below it."""
    yield _resolved(path)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            if os.path.islink(os.path.join(folder, name)):
                yield _resolved(Path(folder, name))


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a link that leads to itself, a zero byte
        raise NpuscopeError("this is no path") from error
