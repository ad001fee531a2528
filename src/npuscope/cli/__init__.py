"""The command line: one small file per command, with its arguments and what it calls; `report/` has what is shown.

`npuscope --help` has the commands by the question they answer: a command's summary is the first line of its module's
docstring, and a new command goes into GROUPS. A command's module is imported only when it is asked for.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import signal
import sys
import threading
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from npuscope import __version__
from npuscope.base.errors import NpuscopeError
from npuscope.base.process_memory import on_one_stack
from npuscope.table.text import paint_for, width_of, wrapped

GROUPS = {
    "Explain a trace": (
        "report", "lab", "view", "compare", "gate", "history", "forward", "step", "roofline", "align", "sql",
    ),
    "Try a change without the chip": (
        "judge", "whatif", "run", "check", "memory", "graph", "simulate", "rank", "sweep", "tune", "improve", "tpot",
        "predict", "collective", "calibrate",
    ),
    "Captures and tools": (
        "demo", "info", "doctor", "convert", "formats", "models", "device", "ops", "guide", "mcp", "lsp",
    ),
}  # fmt: skip
EXAMPLES = (
    ("npuscope demo --keep demo_out", "captures to try"),
    ("npuscope report demo_out/run", "where the time went"),
    ("npuscope compare demo_out/run demo_out/slow_scheduler", "what got slower"),
    ("npuscope simulate model:qwen3_14b/decode_layer", "the time on a chip"),
    ("npuscope COMMAND --help", "its options, examples"),
)


def summary_of(name: str) -> str:
    """One line that says what a command does, without importing it."""
    with (Path(__file__).with_name(f"{name}.py")).open(encoding="utf-8") as file:
        return file.readline().strip().strip('"')


class _AsGiven:
    """Takes absent values, defaults and text as they are. Newer typer makes a validator of pydantic's for every
    parameter, and loading that takes as long as the rest of the command line twice; others still get it."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several, wanted = param.multiple or param.nargs == -1, param.type_descriptor.annotation
        if value is None:
            return () if several else None
        if several and (not value or (wanted == list[str] and all(isinstance(word, str) for word in value))):
            return list(value)
        if type(value) is wanted and wanted in (str, int, float):  # numbers are defaults: words are text
            return value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _as_given(params: list[Any]) -> list[Any]:
    """The parameters, which load no validators where nothing is to be converted."""
    for param in params:
        if getattr(param, "_runtime_param", param) is None and param.type_descriptor.parameter_info.parser is None:
            param._runtime_param = _AsGiven()
    return params


class Plain(TyperCommand):
    """A command whose parameters are taken as they are given where they can be."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _as_given(super().get_params(ctx))


class Commands(TyperGroup):
    """Imports a command when it is asked for; shows all of them in groups, with summaries that are never cut off."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in GROUPS.values() for name in names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"npuscope.cli.{cmd_name}")
        commands = getattr(module, "app", None)  # where it has several
        if commands is None:
            commands = typer.Typer(**PLAIN)
            commands.command(help=module.__doc__, cls=getattr(module, "Command", Plain))(module.command)
        found = typer.main.get_command(commands)
        found.name = cmd_name
        return found

    def get_params(self, ctx: Any) -> list[Any]:
        return _as_given(super().get_params(ctx))

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Commands by their first lines: completing a word imports none of them."""
        click = TyperGroup.__mro__[1].__module__.rpartition(".")[0]  # typer's own or click, by its version
        item = import_module(f"{click}.shell_completion").CompletionItem
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [item(name, help=summary_of(name)) for name in names] or super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # the names of all groups are as wide as the widest, so that summaries stand below one another
        width = max(map(len, self.list_commands(ctx)))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary_of(name)) for name in names])
        with formatter.section("Examples"):
            formatter.write_dl(EXAMPLES, col_max=60)


PLAIN: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
app = typer.Typer(
    name="npuscope",
    help="A performance lab for LLM kernels on NPUs: explain any trace, try a change without the chip.",
    no_args_is_help=True,
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    **{**PLAIN, "add_completion": True},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"npuscope {__version__}")
        raise typer.Exit


@app.callback()
def top_level(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of npuscope itself."""


RARELY = 100_000  # new objects until the next look for garbage
SMALL = 16 << 20  # bytes of a file that one thread of Polars reads as quickly as several


def run() -> NoReturn:
    """The command as a process of its own, which ends with it.

    Almost everything that it makes stays until then: looking for garbage while modules load takes a tenth of a report,
    taking all of it down at the end a twentieth. The threads of NumPy's BLAS spin for 30 ms each when NumPy is loaded,
    a seventh of a small report, before they sleep. Waking Polars' threads costs a report of 216 k events 4% where there
    are two, 30% where there are 64, and they have nothing to do in it.
    """
    gc.set_threshold(RARELY)
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # the least it takes
    named = [word for word in sys.argv[1:] if os.path.exists(word)]
    if named and all(os.path.isfile(word) and os.path.getsize(word) < SMALL for word in named):
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
    code: str | int | None = 0
    try:
        on_one_stack(main)
    except SystemExit as end:
        code = end.code
    if sys.getprofile() or sys.gettrace():  # somebody measures us, and has not said yet what he found
        sys.exit(code)
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):  # main has said what is wrong with them
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def main() -> None:
    """Run a command. Anything a user can mend is one paragraph on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 still shows the numbers
    # an ordinary exit, so that half-written files are cleared away
    signal.signal(signal.SIGTERM, _leave)
    try:
        code = app(_with_files(sys.argv[1:]), standalone_mode=False)
        sys.stdout.flush()
        if isinstance(code, int):
            sys.exit(code)
    except NpuscopeError as error:
        _complain(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # what readers and writers did not foresee about files
        _complain(f"{error.filename or 'a file'}: {error.strerror or error}.")
        sys.exit(2)
    except MemoryError:
        _complain("not enough memory for this capture. Read a part of it, or convert it in parts.")
        sys.exit(2)
    except Exception as error:
        if hasattr(error, "format_message"):  # of typer's parser: a word that no command understands
            _refuse_words(error)
        _admit(error)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how Polars fails; it is no Exception
            raise
        _admit(error)


def _with_files(words: list[str]) -> list[str]:
    """The command line with the files of models in place of their names; what follows -- is a program's own."""
    if not any(word.startswith("model:") for word in words):
        return words
    from npuscope.models import file_of

    def file(word: str) -> str:
        """As seen from here where it lies below: what is printed is then short."""
        path, here = file_of(word), os.getcwd()
        return os.path.relpath(path, here) if word != path and path.startswith(here + os.sep) else path

    end = words.index("--") if "--" in words else len(words)
    return [file(word) for word in words[:end]] + words[end:]


def _complain(what: str) -> None:
    """Why a command ends, on stderr."""
    first, *more = wrapped(f"npuscope: {what}", width_of(sys.stderr))
    painted = first.replace("npuscope:", paint_for(sys.stderr)("npuscope:", "error"), 1)
    print("\n".join([painted, *more]), file=sys.stderr)


def _refuse_words(error: Any) -> NoReturn:
    """A command line that cannot be understood: what is wrong with it, and where its options are listed."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(2)
    said = error.format_message().rstrip(".")
    asked = re.fullmatch(r"No such command '(.*)'", said)
    near = get_close_matches(asked[1], [name for names in GROUPS.values() for name in names], 1) if asked else []
    meant = f" Did you mean `npuscope {near[0]}`?" if near else ""
    _complain(f"{said}.{meant} `{context.command_path if context else 'npuscope'} --help` lists what there is.")
    sys.exit(2)


def _leave(*_: object) -> None:
    """Leaves once: `timeout` signals a process and then its group."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def _admit(error: BaseException) -> None:
    """What reaches this point is our fault: say so in one paragraph."""
    if os.environ.get("NPUSCOPE_DEBUG"):
        raise error
    message = " ".join(str(error).split())[:300]
    _complain(
        f"a bug in npuscope, not in your capture ({type(error).__name__}: {message}). "
        "Set NPUSCOPE_DEBUG=1 for the traceback and please report it."
    )
    sys.exit(1)
