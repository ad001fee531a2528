"""A program simulated at every commit since one: a history without hardware.

Each commit is unpacked into a folder of its own that goes away; the user's checkout is never touched. What stands in
the history already, of the same arguments, chip and npuscope, is not simulated again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from npuscope.answer.judge import WARM
from npuscope.answer.prediction import Prediction, refusals
from npuscope.answer.request import Request
from npuscope.base import progress
from npuscope.base.errors import BadInput, CannotWrite, NpuscopeError
from npuscope.base.files import source_digest
from npuscope.base.frozen import dataclass
from npuscope.base.jobs import Failed
from npuscope.base.pool import Workers, run
from npuscope.explain.many.files import append_line, git
from npuscope.explain.many.history import ORDER, HistoryLine, read_runs_of
from npuscope.explain.many.runs import run_of
from npuscope.explain.work import Work
from npuscope.tile.script.versions import unpack

KEPT = "simulated.jsonl"


@dataclass(frozen=True)
class Piece:
    """One commit to simulate."""

    repo: str
    revision: str
    subject: str
    file: str
    argv: tuple[str, ...]
    device: str
    settings: str
    place: str = ""  # a folder that goes away, for the files of all commits


def simulate_commits(
    repo: str,
    file: str,
    since: str,
    folder: Path,
    argv: Sequence[str] = (),
    device: str = "",
    jobs: int | None = None,
) -> int:
    """Fills a folder; how many commits were simulated now. `file` is its place in the repository."""
    commits = revisions(repo, since)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ORDER).write_text("".join(f"{rev} {subject}\n" for rev, subject in commits), encoding="utf-8")
    except OSError as error:
        raise CannotWrite(error.strerror or str(error), path=folder) from error
    settings = hashlib.sha256(repr((file, tuple(argv), device, source_digest())).encode()).hexdigest()[:16]
    kept = folder / KEPT
    known = {line.commit for line in read_runs_of(kept) if line.settings == settings} if kept.exists() else set()
    inside = _inside(repo, file)
    pieces = [
        Piece(repo, revision, subject, inside, tuple(argv), device, settings)
        for revision, subject in commits
        if revision not in known
    ]
    what, done = "simulating commits", len(commits) - len(pieces)
    progress.report(what, done, len(commits))
    if not pieces:
        return 0
    with TemporaryDirectory(prefix="npuscope-commits-") as place:
        pieces = [replace(piece, place=place) for piece in pieces]
        for piece, line in zip(pieces, run(line_of, pieces, Workers(jobs=jobs, modules=WARM)), strict=True):
            append_line(kept, _ended(piece, line).as_dict())
            done += 1
            progress.report(what, done, len(commits))
    return len(pieces)


def line_of(piece: Piece) -> HistoryLine:
    """What a commit comes to; one that does not run says why."""
    with TemporaryDirectory(dir=piece.place) as place:
        try:
            unpack(Path(piece.repo), piece.revision, Path(place))
            program = Path(place) / piece.file
            if not program.is_file():
                raise NpuscopeError(f"{piece.file} is not in this commit")
            one = Prediction(Request(str(program), piece.argv, device=piece.device))
            with refusals(str(program), piece.argv):
                _ = one.ran
            found = run_of(piece.revision, Work.of(one.simulated.trace))
        except NpuscopeError as error:
            return _without_run(piece, str(error).replace(f"{place}/", ""))
    return HistoryLine(piece.revision, found, True, "", piece.subject, piece.settings, one.simulated.bound.regime)


def _ended(piece: Piece, line: HistoryLine | Failed) -> HistoryLine:
    """A program that ends its process is a fact of its commit; all else may go better the next time."""
    if not isinstance(line, Failed):
        return line
    if line.kind in ("exited", "crashed") and "SIGKILL" not in line.message:
        return _without_run(piece, line.message)
    raise NpuscopeError(f"{piece.revision}: {line.message}")


def _without_run(piece: Piece, why: str) -> HistoryLine:
    return HistoryLine(piece.revision, None, True, why, piece.subject, piece.settings)


def revisions(repo: str, since: str) -> list[tuple[str, str]]:
    """The commits from one up to where the repository is, oldest first, along first parents; with their subjects."""
    if not Path(repo).is_dir():
        raise BadInput("no such folder", path=repo)
    start = git(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{since}^{{commit}}")
    if start is None:
        what = f"no commit '{since}'" if git(repo, "rev-parse", "--git-dir") else "not a git repository"
        raise BadInput(what, path=repo)
    shown = "--format=%h %s"
    first = git(repo, "log", "-1", "--abbrev=10", shown, start)
    rest = git(repo, "log", "--reverse", "--first-parent", "--abbrev=10", shown, f"{start}..HEAD")
    lines = [*(first or "").splitlines(), *(rest or "").splitlines()]
    return [(revision, subject) for revision, _, subject in (line.partition(" ") for line in lines)]


def _inside(repo: str, file: str) -> str:
    """A file's place in the repository, whether it is told from there or from here."""
    top = git(repo, "rev-parse", "--show-toplevel")
    for path in (Path(repo) / file, Path(file)):
        if top and path.is_file() and path.resolve().is_relative_to(Path(top).resolve()):
            return str(path.resolve().relative_to(Path(top).resolve()))
    return file  # gone by now, or the repository is bare
