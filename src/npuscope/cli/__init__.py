"""The command line: one small file per command, which parses arguments and nothing else.

Commands import what they need when they run, so that `npuscope --help` stays instant.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from npuscope import __version__
from npuscope.base.errors import NpuscopeError
from npuscope.cli import device, models
from npuscope.cli.grouped import GROUPS, Grouped, name_of, summary_of
from npuscope.table.text import paint_for

app = typer.Typer(
    name="npuscope",
    help="A performance lab for LLM kernels on NPUs: explain any trace, try a change without the chip.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=Grouped,
)
for module in (module for modules in GROUPS.values() for module in modules if module not in (device, models)):
    kind = getattr(module, "Command", None)  # a parser of its own
    app.command(name=name_of(module), help=module.__doc__, short_help=summary_of(module), cls=kind)(module.command)

for module in (device, models):  # with commands of their own
    app.add_typer(module.app, name=name_of(module), short_help=summary_of(module))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"npuscope {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of npuscope itself."""


def main() -> None:
    """Run a command. Anything a user can mend is one paragraph on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 still shows the numbers
    # an ordinary exit, so that half-written files are cleared away
    signal.signal(signal.SIGTERM, _leave)
    try:
        app(_with_files(sys.argv[1:]))
    except NpuscopeError as error:
        _tell(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # what readers and writers did not foresee about files
        _tell(f"{error.filename or 'a file'}: {error.strerror or error}.")
        sys.exit(2)
    except MemoryError:
        _tell("not enough memory for this capture. Read a part of it, or convert it in parts.")
        sys.exit(2)
    except Exception as error:
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


def _tell(what: str) -> None:
    """Why a command ends, on stderr."""
    print(f"{paint_for(sys.stderr)('npuscope:', 'error')} {what}", file=sys.stderr)


def _leave(*_: object) -> None:
    """Leaves once: `timeout` signals a process and then its group."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def _admit(error: BaseException) -> None:
    """What reaches this point is our fault: say so in one paragraph."""
    if os.environ.get("NPUSCOPE_DEBUG"):
        raise error
    told = " ".join(str(error).split())[:300]
    _tell(
        f"a bug in npuscope, not in your capture ({type(error).__name__}: {told}). "
        "Set NPUSCOPE_DEBUG=1 for the traceback and please report it."
    )
    sys.exit(1)
