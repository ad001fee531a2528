"""Answers kept in a file of JSON lines that only ever grows (`--results`), so that interrupted work is resumed.

An answer is found again by its request (`Request.key`). What else a program reads nobody can know, so one of the kept
answers is made again, and a file is refused where that comes out otherwise. One command at a time writes to a file.
What is not such a file is refused and left as it is; only a last line of ours that an interrupt cut off is taken out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import msgspec

from npuscope.answer.answer import Answer
from npuscope.answer.request import Request
from npuscope.base.errors import BadInput, CannotWrite, NpuscopeError
from npuscope.base.files import take

BEGINS = b'{"candidate":"'
LASTING = frozenset({"good", "wrong", "race", "unfit", "fails", "exited"})  # the rest chance or a limit decided
WRITERS = "judge, rank, sweep or tune"


class Results:
    """Answers so far by key; `add` keeps another. `kind` tells answers of different commands apart."""

    def __init__(self, kind: str, path: Path | None = None, file: BinaryIO | None = None) -> None:
        self._kind, self._path, self._file = kind, path, file
        self._known = {} if path is None or file is None else _read(file, path)
        self._tried = False

    def key(self, request: Request) -> str:
        return f"{self._kind}-{request.key}"

    def known(self, requests: Sequence[Request]) -> list[Answer | None]:
        """Of each request what is kept; of the first that is found nothing, so that it is made again."""
        found = [self._known.get(self.key(one)) if self._known else None for one in requests]
        first = next((n for n, one in enumerate(found) if one is not None), None)
        if first is not None and not self._tried:
            found[first], self._tried = None, True
        return found

    def add(self, request: Request, answer: Answer) -> Answer:
        """The answer with its key, kept from now on; refuses the file where it kept another one."""
        answer = replace(answer, key=self.key(request))
        known = self._known.get(answer.key)
        if known is not None and _lasting(known) != _lasting(answer):
            raise NpuscopeError(
                f"{answer.candidate} was tried again and comes out otherwise than it stands in {self._path}",
                remedy="Something that the programs read has changed. Name another file for --results.",
            )
        if known is None and self._file is not None and self._path is not None and answer.verdict in LASTING:
            with _refusing(self._path):
                self._file.write(msgspec.json.encode(answer) + b"\n")
                self._file.flush()
            self._known[answer.key] = answer
        return answer


def _lasting(answer: Answer) -> Answer:
    """What does not depend on who asks and on how busy the machine is."""
    return replace(answer, candidate="", cpu_seconds=None, versus=None)


@contextmanager
def results_in(path: Path | None, kind: str) -> Iterator[Results]:
    """The answers of a file; without a path nothing is kept."""
    if path is None:
        yield Results(kind)
        return
    if path.exists() and not path.is_file():
        raise CannotWrite("is a folder" if path.is_dir() else "is no regular file", path=path)
    with _refusing(path):
        file = path.open("a+b")
    try:
        with _refusing(path):
            if not take(file):
                remedy = "Wait for it, or name another file."
                raise CannotWrite("another command is writing to it", path=path, remedy=remedy)
            results = Results(kind, path, file)
        yield results
    finally:
        with _refusing(path):  # what could not be written is tried once more
            file.close()


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(error.strerror or str(error), path=path, remedy="Name another file for --results.") from error


def _read(file: BinaryIO, path: Path) -> dict[str, Answer]:
    file.seek(0)
    *lines, last = file.read().split(b"\n")
    found = {}
    for number, line in enumerate(lines, 1):
        try:
            one = msgspec.json.decode(line, type=Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _not_ours(path, number) from error
        if not one.key or (one.time is not None and one.time.value < 0):
            raise _not_ours(path, number)
        time = one.time and replace(one.time, value=round(one.time.value))  # JSON has one kind of numbers
        found[one.key] = replace(one, time=time)
    if last:
        if not (last.startswith(BEGINS) or BEGINS.startswith(last)):
            raise _not_ours(path, len(lines) + 1)
        file.truncate(sum(map(len, lines)) + len(lines))
    return found


def _not_ours(path: Path, line: int) -> BadInput:
    remedy = f"Name the file that an earlier {WRITERS} wrote, or a new one."
    return BadInput(f"not a result of {WRITERS}", path=path, line=line, remedy=remedy)
