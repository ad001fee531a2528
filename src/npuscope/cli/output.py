"""What commands share: options, how their values are read, files to write, progress, and how a result is shown.

`show` is how most commands end. Imports nothing heavy: `npuscope --help` is instant.
"""

from __future__ import annotations

import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any  # a context: typer's own or click's, by its version

import typer

from npuscope.base.errors import CannotWrite, NpuscopeError
from npuscope.cli import Plain
from npuscope.table.formats import printable, short
from npuscope.table.text import paint_for, width_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from npuscope.table.parts import Part
    from npuscope.trace import Trace

AFTER = "npuscope.after"
PATIENCE_S = 1.0  # before a progress bar is drawn


class Command(Plain):
    """Keeps what stands after -- apart: both the files and the programs' arguments may be many."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[AFTER] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS OF THE PROGRAMS]"]


def after_dashes(context: typer.Context) -> tuple[str, ...]:
    """The words after -- of a command that is parsed by `Command`."""
    return tuple(context.meta[AFTER])


def show(
    parts: Callable[..., Iterable[Part]],
    data: object | Callable[[], object],
    *,
    json: bool,
    indent: int | None = 2,
    wide: bool | None = None,
    md: str | None = None,
    pages: Mapping[str | None, Callable[[], str]] | None = None,
    written: Iterable[str | None] = (),
) -> None:
    """Writes Markdown and the pages that were asked for, then prints: JSON of `data`, or the parts as text.

    `parts` gets `wide` from a command that has it. `written` names files that are there already.
    """
    from npuscope.table.parts import as_markdown

    with progress_bar():
        posted = write_reports({**(pages or {}), md: lambda: as_markdown(parts(), reproduce())})
    if json:
        print_json(data() if callable(data) else data, indent)
    else:
        print_report(parts() if wide is None else parts(wide=wide), [*filter(None, written), *posted])


def print_json(data: object, indent: int | None = 2) -> None:
    """One JSON document on stdout."""
    from npuscope.table.columns import as_json

    print(as_json(data, indent))


def print_report(parts: Iterable[Part], written: Iterable[str] = ()) -> None:
    """A report as text on stdout, then the files that were written."""
    from npuscope.table.parts import as_text

    print_text(as_text(parts, paint_for(sys.stdout), width_of(sys.stdout)), written)


def print_text(text: str, written: Iterable[str] = ()) -> None:
    """Text on stdout, then the files that were written."""
    print(text)
    for path in written:
        print(f"wrote {printable(path)}")


def check_outputs(inputs: list[str], *outputs: str | None) -> None:
    """Refuse outputs that would overwrite an input or one another, or have no place, before any work is done."""

    def resolved(path: str) -> Path:
        try:
            return Path(path).resolve()
        except (OSError, RuntimeError) as error:
            raise CannotWrite("a link that leads to itself", path=path) from error

    taken = {resolved(path): "is an input" for path in inputs}
    for path in filter(None, outputs):
        place = resolved(path)
        if place in taken:
            raise CannotWrite(taken[place], path=path, remedy="Name another file.")
        if any(place in other.parents or _is_same(place, other) for other in taken):
            raise CannotWrite("holds an input", path=path, remedy="Name another file.")
        if not place.parent.is_dir():
            raise CannotWrite("no such folder", path=place.parent, remedy="Make it first.")
        taken[place] = "is another output of this command"


def _is_same(a: Path, b: Path) -> bool:
    """One file under two names."""
    return a.is_file() and b.is_file() and a.samefile(b)


def sources(trace: Trace, path: str) -> list[str]:
    """The files that were read for a trace; npuscope's own folder names those it was once made from."""
    from npuscope.trace.readers.parquet import is_folder

    return [] if is_folder(Path(path)) else list(trace.meta.files)


def write_reports(reports: Mapping[str | None, Callable[[], str]]) -> list[str]:
    """Make and write the reports whose files were asked for; their names."""
    texts = {path: make() for path, make in reports.items() if path is not None}
    if texts:
        write_texts(texts)
    return list(texts)


def write_texts(texts: dict[str, str]) -> None:
    """Files, all of them or none."""
    from npuscope.trace.writers.atomic import whole_file

    with ExitStack() as stack:
        files = {path: stack.enter_context(whole_file(Path(path))) for path in texts}
        for path, text in texts.items():
            files[path].write(text.encode())


def reproduce() -> str:
    """The command line that makes a report again."""
    return shlex.join(["npuscope", *sys.argv[1:]])


def read_steps(path: str, steps: list[int] | None, number: int | None = None, rank: int | None = None) -> Trace:
    """A capture, or the rank, the steps or the forward pass of it that were asked for.

    Host threads of steps stay, since they tell launches.
    """
    import polars as pl

    from npuscope.explain.choosing import choose_rank
    from npuscope.trace import read

    if steps and number is not None:
        raise NpuscopeError("--step and --pass name a part each", remedy="Give one of them.")
    trace = choose_rank(read(path), rank)
    if not steps and number is None:
        return trace
    from npuscope.explain.passes.export import check_steps, numbered_pass

    if number is not None:
        return numbered_pass(trace, number, path)
    check_steps(trace, steps or [], path)
    return trace.select(pl.col("step").is_in(steps or []) | (pl.col("kind") == "host"))


def pairs_of(options: list[str], option: str) -> dict[str, str]:
    """`a=b` options as a mapping."""
    pairs = {}
    for text in options:
        left, sign, right = text.rpartition("=")
        if not sign or not left or not right:
            raise NpuscopeError(f"{option} takes name=value, not '{text}'")
        if left in pairs:
            raise NpuscopeError(f"{option} names {left} twice")
        pairs[left] = right
    return pairs


def _is_name(text: str) -> bool:
    """Whether it names something of a program: `TILE`, or a field such as `MODEL.tiles.tk`."""
    return all(word.isidentifier() for word in text.split("."))


def settings_of(options: list[str]) -> dict[str, str]:
    """`--set NAME=value` as a mapping."""
    values: dict[str, str] = {}
    for text in options:
        name, _, value = text.partition("=")
        if not _is_name(name) or not value:
            raise NpuscopeError(f"--set takes NAME=value, not '{text}'")
        if name in values:
            raise NpuscopeError(f"--set names {name} twice")
        values[name] = value
    return values


def values_of(options: list[str], option: str) -> dict[str, list[str]]:
    """`name=a,b,c` options as lists of values; commas inside brackets belong to a value."""
    found: dict[str, list[str]] = {}
    for text in options:
        name, _, values = text.partition("=")
        listed = [value.strip() for value in re.split(r",(?![^(\[]*[)\]])", values)]
        if not _is_name(name) or not all(listed):
            raise NpuscopeError(f"{option} takes NAME=value,value, not '{text}'")
        if name in found or len(set(listed)) < len(listed):
            raise NpuscopeError(f"{option} names {name if name in found else 'a value of ' + name} twice")
        found[name] = listed
    return found


def numbers_of(options: list[str], option: str) -> dict[str, float]:
    """`name=number` options as a mapping."""
    numbers = {}
    for name, text in pairs_of(options, option).items():
        try:
            numbers[name] = float(text)
        except ValueError:
            raise NpuscopeError(f"{option} takes name=number, and '{text}' is no number") from None
    return numbers


def counts_of(options: list[str], option: str) -> dict[str, int]:
    """`name=whole number` options as a mapping."""
    numbers = numbers_of(options, option)
    for name, number in numbers.items():
        if not number.is_integer():
            raise NpuscopeError(f"{option} takes a whole number, not {number} of {name}")
    return {name: int(number) for name, number in numbers.items()}


def names_of(paths: list[str]) -> list[str]:
    """Short names of captures that still differ."""
    parts = [path.rstrip("/").split("/") for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return [short(name, 60) for name in names]
    return [short(path, 60) for path in paths]


@contextmanager
def progress_bar() -> Iterator[Callable[[str], None] | None]:
    """Draw on stderr, where it is a terminal, what the block's readers and writers report; there the block gets what
    says a line at once.
    """
    from npuscope.base import progress

    if not sys.stderr.isatty():
        yield None
        return
    bar = _Bar()
    try:
        with progress.listen(bar.update):
            yield bar.say
    finally:
        bar.close()


class _Bar:
    """Drawn once work takes longer than PATIENCE_S."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._later: threading.Timer | None = None

    def update(self, what: str, done: int, total: int) -> None:
        self._forget()
        left = PATIENCE_S - (time.monotonic() - self._begin)
        if left > 0:  # shown then, if nothing is reported before: the work may be long and silent
            self._later = threading.Timer(left, self._draw, (what, done, total))
            self._later.daemon = True
            self._later.start()
            return
        self._draw(what, done, total)

    def say(self, line: str) -> None:
        """A line that stays, above the bar."""
        if self._progress is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._progress.console.print(line, markup=False, highlight=False)

    def _forget(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later.join()
            self._later = None

    def _draw(self, what: str, done: int, total: int) -> None:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._progress.start()
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total or None)
        self._progress.update(self._tasks[what], completed=done, total=total or None)

    def close(self) -> None:
        self._forget()
        if self._progress is not None:
            self._progress.stop()
