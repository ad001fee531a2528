"""Another version of a program: a file, or the same one as a git revision has it, with all that lies beside it."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from npuscope.base.errors import BadInput


@contextmanager
def other_version(file: str | Path, against: str) -> Iterator[Path]:
    """The file of another version, while inside."""
    given = Path(against)
    if given.is_file():
        yield given
        return
    mine = Path(file).resolve()
    top = _git(mine.parent, "rev-parse", "--show-toplevel")
    if top is None:
        raise BadInput("no such file, and the program lies in no git repository", path=against)
    commit = _git(mine.parent, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{against}^{{commit}}")
    if commit is None:
        raise BadInput("neither a file nor a revision of the program's repository", path=against)
    with TemporaryDirectory(prefix="npuscope_") as folder:
        unpack(Path(top), commit, Path(folder))
        there = Path(folder) / mine.relative_to(Path(top).resolve())
        if not there.is_file():
            raise BadInput(f"{against} has no such file", path=file)
        yield there


def unpack(repo: Path, revision: str, place: Path) -> None:
    """All files of a revision."""
    with TemporaryFile() as packed:
        command = ["git", "-C", str(repo), "archive", "--format=tar", revision]
        run = subprocess.run(command, stdout=packed, stderr=subprocess.PIPE, text=True)
        if run.returncode:
            raise BadInput(f"git cannot unpack {revision}: {run.stderr.strip() or 'it does not say why'}", path=repo)
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            archive.extractall(place, filter="data")


def _git(folder: Path, *words: str) -> str | None:
    try:
        run = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True)
    except FileNotFoundError:
        raise BadInput("git is not installed", path=folder) from None
    return run.stdout.strip() or None if run.returncode == 0 else None
