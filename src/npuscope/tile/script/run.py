"""Runs a tile script as it is, with `pypto.language` and `golden` served, and gathers what its programs did."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import io
import os
import random
import runpy
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from npuscope.base import progress
from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.notebook import is_notebook, left_out
from npuscope.base.unsaved import is_unsaved, source_bytes
from npuscope.models import program_file
from npuscope.tile.fault import NeedsValues
from npuscope.tile.golden import RunResult, driven
from npuscope.tile.golden.spec import chosen
from npuscope.tile.record import sites
from npuscope.tile.record.model import NO_EFFECT, Mode, Notice, Recording, Site
from npuscope.tile.record.walk import same_work
from npuscope.tile.run.execute import Finished, collecting, mode_of_runs
from npuscope.tile.script.places import SettingPlace
from npuscope.tile.script.pytest_files import has_tests, modules, run_tests
from npuscope.tile.script.served import MissingModule, served
from npuscope.tile.script.settings import Settings, importing, package_of

SETTLED_S = 2.0  # a source that is older than this is edited in another second
WITHOUT = "did not change the program that ran: it takes another configuration"


@dataclass(frozen=True)
class ScriptRun:
    """What a script ran: a record per call of an entry, its golden results, what it printed where that was kept.

    The exit code is the script's own, and 1 where numbers are wrong, however the script then ends: that is a finding
    about a sound program. `failure` has its last words where it ended by raising.
    """

    runs: tuple[Finished, ...]
    results: tuple[RunResult, ...]
    exit_code: int
    output: str
    failure: str = ""
    unread: Mapping[str, SettingPlace] = field(
        default_factory=dict
    )  # settings of configurations that the run did not read

    @property
    def recordings(self) -> tuple[Recording, ...]:
        return tuple(run.recording for run in self.runs)

    @property
    def passed(self) -> bool | None:
        """Whether every golden held; None where nothing was compared."""
        if self.exit_code or any(not result.passed for result in self.results):
            return False
        return True if any(result.compared for result in self.results) else None


def run_script(
    path: str | Path,
    argv: Sequence[str] = (),
    mode: Mode = "values",
    echo: bool = False,
    settings: Mapping[str, str] | None = None,
    golden: bool = True,
) -> ScriptRun:
    """Runs a Python file as `python file args` would, with PyPTO's names served; `echo` lets its output through.

    `settings` reach it as options, constants and environment variables (npuscope.tile.script.settings). In `shapes`
    mode a program whose course depends on values is run again with values, and its record says so. Without `golden`
    nothing is compared.
    """
    try:
        ran = _with_notes(_run(path, argv, mode, echo, settings, golden), path)
        return ran if mode == "values" or not ran.unread else _without_effect(ran, path, argv, settings or {})
    except NeedsValues as needs:
        if mode != "shapes":
            raise
        ran = _run(path, argv, "values", echo, settings, golden)
        where = f"{Path(needs.path or path).name}, line {needs.line}"
        note = f"values decide what it does ({where}), so it was run with values and the record is of these values"
        recordings = [replace(one, notes=(*one.notes, note)) for one in ran.recordings]
        runs = zip(ran.runs, recordings, strict=True)
        return replace(ran, runs=tuple(replace(run, recording=recording) for run, recording in runs))


def _with_notes(ran: ScriptRun, path: str | Path) -> ScriptRun:
    """What of a notebook was left out."""
    if not is_notebook(path) or not (dropped := left_out(path)):
        return ran
    note = f"{dropped} line{'s' if dropped > 1 else ''} for the notebook's own shell (% and !) were left out"
    runs = (replace(run, recording=replace(run.recording, notes=(*run.recording.notes, note))) for run in ran.runs)
    return replace(ran, runs=tuple(runs))


def _without_effect(ran: ScriptRun, path: str | Path, argv: Sequence[str], settings: Mapping[str, str]) -> ScriptRun:
    """Notices which settings changed nothing, each at the line of what was set.

    What a class reads of itself while it is made counts for nothing until here, but may decide a field: so the program
    is run once more without them.
    """
    others = {name: text for name, text in settings.items() if name not in ran.unread}
    try:
        plain = _run(path, argv, "shapes", False, others, False)
    except (NpuscopeError, NeedsValues, SystemExit):
        return ran  # without them it does not even run
    if not same_work(ran.recordings, plain.recordings):
        return ran

    def noticed(before: Recording) -> Recording:
        new = [Notice(NO_EFFECT, n, f"{name} {WITHOUT}") for n, name in enumerate(ran.unread, len(before.sites))]
        places = [Site(place.file, place.line, "") for place in ran.unread.values()]
        return replace(before, sites=(*before.sites, *places), notices=(*before.notices, *new))

    return replace(ran, runs=tuple(replace(run, recording=noticed(run.recording)) for run in ran.runs))


def _run(
    path: str | Path, argv: Sequence[str], mode: Mode, echo: bool, settings: Mapping[str, str] | None, golden: bool
) -> ScriptRun:
    file = program_file(path)
    results: list[RunResult] = []
    printed = io.StringIO()
    code: int | None = None
    failure = ""
    given = Settings(settings or {}, file)
    progress.report(f"running {file.name}", 0, 0)
    with contextlib.ExitStack() as stack:
        if not echo:
            stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(served())
        stack.enter_context(_as_main(file, argv))
        stack.enter_context(importing(_never_old))
        stack.enter_context(_same_random_numbers())
        stack.enter_context(_torch_prepared(lazily=mode == "shapes"))
        stack.enter_context(mode_of_runs(mode))
        runs = stack.enter_context(collecting())
        stack.enter_context(driven(watch=results.append, shapes=mode == "shapes", golden=golden))
        seen = stack.enter_context(given.given())
        given.asked = stack.enter_context(_asked_variables())
        started = stack.enter_context(_started_scripts())
        try:
            if has_tests(file):
                failure = _tests(file, argv, mode, given, runs)
                code = 1 if failure else None
            elif given.rewrites or is_unsaved(file) or package_of(file):
                given.run()
            else:
                runpy.run_path(str(file), run_name="__main__")
        except SystemExit as stop:
            code = _code(stop.code, ran=bool(runs or results))
        except (NpuscopeError, KeyboardInterrupt):
            raise
        except BaseException as error:
            explained = _explained(error, file)
            if started and not runs:
                raise _runs_elsewhere(started[0], explained.path or file, explained.line) from error
            asserts = runs and isinstance(error, AssertionError)
            if asserts and mode == "shapes":  # what it expects of numbers cannot hold where there are none
                raise NeedsValues(explained.what, path=explained.path, line=explained.line) from error
            if not asserts and not _are_wrong(results):
                raise explained from error
            code, failure = 1, str(explained)
        unread = given.unread(seen)
    if runs or results or code is None:
        given.check()
    if not runs and not results:
        if code is None:
            raise _runs_elsewhere(started[0], file) if started else _ran_nothing(file)
        sys.stdout.write(printed.getvalue())
        raise SystemExit(code)  # it printed its usage, or refused its arguments
    code = 1 if _are_wrong(results) else code or 0
    return ScriptRun(tuple(runs), tuple(results), code, printed.getvalue(), failure, unread)


def _tests(file: Path, argv: Sequence[str], mode: Mode, given: Settings, runs: Sequence[Finished]) -> str:
    """Runs a file of tests; what failed. Where only shapes are recorded, numbers cannot be what a test expects."""
    if given.values:
        raise BadInput("a file of tests takes no settings", path=file, remedy="Choose tests: -- -k NAME.")
    sys.modules.update(modules(MissingModule))
    outcome = run_tests(file, argv)
    error = next(iter(outcome.failed.values()), None)
    if error is not None and not runs:
        raise error
    return outcome.text if outcome.failed and mode == "values" else ""


@contextlib.contextmanager
def _started_scripts() -> Iterator[list[str]]:
    """The Python files that a script starts as processes of their own, in which nothing is served."""
    started: list[str] = []
    begin = subprocess.Popen.__init__

    def noted(self: subprocess.Popen[bytes], args: Any, *rest: Any, **named: Any) -> None:
        words = [os.fspath(word) for word in ([args] if isinstance(args, str | Path) else args)]
        if Path(words[0]).name.startswith("python"):
            started.extend([word for word in words if word.endswith(".py")][:1])
        begin(self, args, *rest, **named)

    subprocess.Popen.__init__ = noted  # type: ignore[assignment,method-assign]
    try:
        yield started
    finally:
        subprocess.Popen.__init__ = begin  # type: ignore[method-assign]


def _runs_elsewhere(script: str, file: Path | str, line: int | None = None) -> BadInput:
    what = f"the script ran no tile program itself: it starts {Path(script).name}, a process with PyPTO itself"
    return BadInput(what, path=file, line=line, remedy="Give npuscope that script instead.")


def _ran_nothing(file: Path) -> BadInput:
    """What a script defines and which calls were looked for, none of which it made."""
    calls = "a call of it, golden.run or run_jit, pypto.runtime.run, pypto.ir.compile(…)(…), tests that pytest finds"
    try:
        tree = ast.parse(source_bytes(file))
    except SyntaxError:
        tree = ast.Module([], [])
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    own = [node for node in nodes if _decorated(node, ("jit", "jit.host", "jit.opaque", "program"))]
    if not own and (parts := [node for node in nodes if _decorated(node, ("jit.inline", "inline"))]):
        what = f"the script ran no tile program: it only defines parts of others ({_first_names(parts)})"
        return BadInput(what, path=file, line=parts[0].lineno, remedy="Give the script that calls them.")
    if not own:
        return BadInput("the script ran no tile program", path=file, remedy="It must call a @pl.jit function.")
    what = f"the script ran no tile program: it defines {_first_names(own)} and makes no call that npuscope looks for"
    return BadInput(what, path=file, line=own[0].lineno, remedy=f"It looks for {calls}.")


def _first_names(nodes: Sequence[ast.FunctionDef | ast.ClassDef]) -> str:
    return ", ".join(node.name for node in nodes[:4]) + (", …" if len(nodes) > 4 else "")


def _decorated(node: ast.FunctionDef | ast.ClassDef, names: Sequence[str]) -> bool:
    words = [ast.unparse(one).partition("(")[0].rpartition("pl.")[2] for one in node.decorator_list]
    return any(word in names for word in words)


def _are_wrong(results: Sequence[RunResult]) -> bool:
    """Whether a golden was compared and did not hold."""
    return any(result.compared and not result.passed for result in results)


def _code(value: object, ran: bool) -> int:
    """The exit code of a script as the shell would see it; a message before anything ran is about its input."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value if 0 <= value <= 255 else 1
    print(value, file=sys.stderr)
    return 1 if ran else 2


_imported: ContextVar[set[str] | None] = ContextVar("npuscope_imported", default=None)


@contextlib.contextmanager
def imported() -> Iterator[set[str]]:
    """The files of the user's modules that scripts inside the block import, also where one fails."""
    files: set[str] = set()
    token = _imported.set(files)
    try:
        yield files
    finally:
        _imported.reset(token)


def _own_modules(before: set[str]) -> dict[str, str]:
    """Modules of the user's own that came since, with their file; their folder where they have no file.

    A package with a compiled module is nobody's helper, wherever it lies: such a one cannot be loaded twice (torch).
    """
    places = {
        name: str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), ""))
        for name, module in list(sys.modules.items())
        if name not in before
    }
    compiled = {name.partition(".")[0] for name, place in places.items() if place.endswith(tuple(EXTENSION_SUFFIXES))}
    return {name: p for name, p in places.items() if sites.is_users(p) and name.partition(".")[0] not in compiled}


@contextlib.contextmanager
def _asked_variables() -> Iterator[set[str]]:
    """The names that anybody asks the environment for: everything that it offers goes through this."""
    kind: Any = type(os.environ)
    ask = kind.__getitem__
    asked: set[str] = set()

    def asked_for(environment: object, name: object) -> object:
        asked.add(str(name))
        return ask(environment, name)

    kind.__getitem__ = asked_for
    try:
        yield asked
    finally:
        kind.__getitem__ = ask


class _JustWritten(SourceFileLoader):
    """A module of the user's. Byte code knows its source by size and second, so a further edit in the same second is
    lost on it: of a source that has just been written none is taken or left behind. Nor of a text that stands in."""

    def get_data(self, path: str) -> bytes:
        return source_bytes(path) if is_unsaved(path) else super().get_data(path)

    def path_stats(self, path: str) -> Mapping[str, Any]:
        if is_unsaved(path):
            raise OSError("a text stands in for it")
        stats = super().path_stats(path)
        if time.time() - stats["mtime"] < SETTLED_S:
            raise OSError("just written")  # byte code is then left out
        return stats


def _never_old(spec: ModuleSpec) -> None:
    if type(spec.loader) is SourceFileLoader and sites.is_users(spec.origin or ""):
        spec.loader = _JustWritten(spec.name, str(spec.origin))


TORCH_SEED = 67280421310721  # of a torch that nobody seeded, until it began to draw one


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    """What a script draws without a seed is the same in every run: numbers that steer it decide its time."""
    plain, numbers, seed = random.getstate(), np.random.get_state(), chosen().value
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(numbers)


@contextlib.contextmanager
def _torch_prepared(lazily: bool) -> Iterator[None]:
    """From when the script imports torch: it draws the same numbers in every run, and `lazily` its large tensors are
    made when somebody asks for their elements.
    """
    with contextlib.ExitStack() as entered:

        def enter() -> None:
            sys.modules["torch"].manual_seed(TORCH_SEED + chosen().value)
            if lazily:
                lazy_torch = importlib.import_module("npuscope.tile.script.lazy_torch")
                entered.enter_context(lazy_torch.lazily())

        if "torch" in sys.modules:
            enter()
            yield
            return

        def prepare(spec: ModuleSpec) -> None:
            if spec.name == "torch" and spec.loader is not None:
                execute = spec.loader.exec_module

                def then_enter(module: ModuleType) -> None:
                    execute(module)
                    enter()

                spec.loader.exec_module = then_enter  # type: ignore[method-assign]

        with importing(prepare):
            yield


@contextlib.contextmanager
def _as_main(file: Path, argv: Sequence[str]) -> Iterator[None]:
    before, path, folder, environment = sys.argv, list(sys.path), os.getcwd(), dict(os.environ)
    modules = set(sys.modules)
    sys.argv = [str(file), *argv]
    sys.path.insert(0, str(file.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path = before, path
        os.chdir(folder)
        for name in os.environ.keys() - environment.keys():  # settings of its run (`PTO2_RING_HEAP`) are its own
            del os.environ[name]
        os.environ.update(environment)
        found = _own_modules(modules)
        for name in found:  # a script's helpers (`import config`) must not be found by the next one
            del sys.modules[name]
        files = _imported.get()
        if files is not None:
            files |= {place for place in found.values() if Path(place).is_file()}


def _explained(error: BaseException, file: Path) -> BadInput:
    """The user's own mistake: its last line in the user's code, in one sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if sites.is_users(f.filename) and Path(f.filename).exists()]
    inside = [f for f in mine if f.filename == str(file) or str(file.resolve().parent) in f.filename]
    frame = next(reversed(inside or mine), None)
    try:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except Exception:  # an exception that cannot say itself
        what = type(error).__name__
    if isinstance(error, SyntaxError):
        return BadInput(f"SyntaxError: {error.msg}", path=error.filename or file, line=error.lineno)
    if frame is None:
        return BadInput(what, path=file)
    return BadInput(what, path=frame.filename, line=frame.lineno)
