"""Reference pages that code tells: commands from their help, the API from docstrings, ops, rules, columns, spellings.

They are written when the site is built and kept out of the repository, so they cannot be out of date.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

API = {
    "npuscope": "Read a capture, and what a trace is",
    "npuscope.explain": "Questions about one trace, and two",
    "npuscope.explain.many": "Questions about many runs",
    "npuscope.models": "The programs that come with npuscope",
    "npuscope.answer": "Many candidates: judge, rank, sweep, tune",
    "npuscope.check.rule": "What a rule of check is",
    "npuscope.ops.spec": "What an op of the tile language is",
    "npuscope.base.errors": "What is raised",
}


def generate(folder: Path) -> None:
    """Writes every generated page; a page that has not changed is left alone, so that Sphinx builds only what did."""
    from reference_pages import columns_page, history_page, ops_page, producers_page, rules_page

    pages = {
        "commands.md": commands_page(),
        "api.md": api_page(),
        "ops.md": ops_page(),
        "rules.md": rules_page(),
        "spellings.md": history_page(),
        "columns.md": columns_page(),
        "producers.md": producers_page(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        file = folder / name
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


WAYS = {
    "The way of a capture": (
        "cli/report.py", "trace/formats.py", "trace/readers/kernel_details.py", "trace/build.py", "trace/core.py",
        "explain/explanation.py", "explain/work.py", "explain/waits.py", "explain/path.py",
        "explain/diagnosis/whole_run.py", "report/captures.py", "table/parts.py", "lab/runs.py",
    ),
    "The way of a program": (
        "cli/simulate.py", "answer/request.py", "answer/prediction.py", "tile/script/run.py",
        "tile/language/rewrite.py", "tile/run/execute.py", "tile/record/recorder.py", "tile/graph/task_graph.py",
        "lower/program.py",
        "lower/memory_plan.py", "check/run.py", "time/chip/prepare.py", "time/core/pipes.py", "time/chip/engine.py",
        "time/chip/trace.py", "time/priced.py", "time/diagnosis.py", "answer/answer.py", "report/simulate.py",
    ),
    "The way of a save": (
        "lab/server.py", "lab/session.py", "lab/messages.py", "base/pool.py", "base/fork_server.py", "base/jobs.py",
        "lab/job.py", "answer/prediction.py", "lab/program_runs.py", "lab/payload/timeline.py", "lab/versions.py",
    ),
}  # fmt: skip


def ways() -> str:
    """What happens to a capture, a program and a save, file by file, each with the first sentence of its header."""
    root = Path(__file__).resolve().parents[1] / "src" / "npuscope"
    parts = []
    for title, files in WAYS.items():
        parts.append(f"### {title}\n")
        for number, file in enumerate(files, 1):
            header = inspect.cleandoc(ast.get_docstring(ast.parse((root / file).read_text())) or "")
            sentence = re.split(r"(?<=[.?])\s", " ".join(header.split("\n\n")[0].split()))[0].rstrip(".")
            parts.append(f"{number}. `{file}`: {sentence}")
        parts.append("")
    return "\n".join(parts)


def fill_ways(page: Path) -> None:
    """Writes them into the page of the architecture, between its marks."""
    head, rest = page.read_text().split("<!-- ways -->\n", 1)
    page.write_text(f"{head}<!-- ways -->\n{ways()}<!-- end of ways -->{rest.split('<!-- end of ways -->', 1)[1]}")


def commands_page() -> str:
    """`npuscope COMMAND --help` of every command, in the order and the groups of `npuscope --help`."""
    from npuscope.cli import GROUPS

    parts = ["# Commands\n\nWhat `npuscope COMMAND --help` prints.\n"]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [f"### {name}\n\n```text\n{_help(name)}\n```\n" for name in names]
    return "\n".join(parts)


def _help(command: str) -> str:
    from npuscope.cli import app

    printed = io.StringIO()
    with redirect_stdout(printed):
        try:
            app([command, "--help"], prog_name="npuscope", standalone_mode=True)
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(f"npuscope {command} --help ended with {ended.code}") from ended
    return printed.getvalue().rstrip()


def api_page() -> str:
    """Public functions and classes with their docstrings."""
    parts = ["# Python API\n\nWhat is not listed here may change without notice.\n"]
    for name, told in API.items():
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        parts.append(f"## {name}\n\n{told}. {_first_paragraph(module)}\n")
        parts += _members(module)
    return "\n".join(parts)


def _members(module: ModuleType) -> Iterator[str]:
    names = getattr(module, "__all__", None) or [
        name for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == module.__name__
    ]  # fmt: skip
    for name in sorted(names):
        thing = getattr(module, name)
        if inspect.isclass(thing):
            yield _directive("class", module, name, thing, _methods(thing))
        elif inspect.isroutine(thing):
            yield _directive("function", module, name, thing)


def _methods(thing: type) -> Iterator[str]:
    for name, method in vars(thing).items():
        if name.startswith("_") or not (inspect.isroutine(method) or isinstance(method, property)):
            continue
        function = method.fget if isinstance(method, property) else inspect.unwrap(getattr(thing, name))
        kind = "property" if isinstance(method, property) else "method"
        if function is not None and inspect.getdoc(function):
            given = "" if kind == "property" else _signature(function)
            yield f":::{{py:{kind}}} {name}{given}\n\n{_doc(function)}\n:::\n"


def _directive(
    kind: str, module: ModuleType, name: str, thing: Callable[..., object], inner: Iterator[str] = iter(())
) -> str:
    body = "\n".join(inner)
    return f"::::{{py:{kind}}} {module.__name__}.{name}{_signature(thing)}\n\n{_doc(thing)}\n\n{body}\n::::\n"


def _signature(thing: Callable[..., object]) -> str:
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return "()"
    return re.sub(r"'([^']*)'", r"\1", re.sub(r"npuscope\.[\w.]*\.(\w+)", r"\1", text)).replace("*", "\\*")


def _doc(thing: object) -> str:
    return _as_markdown(inspect.getdoc(thing) or "")


def _first_paragraph(module: ModuleType) -> str:
    return _as_markdown((inspect.getdoc(module) or "").split("\n\n")[0])


def _as_markdown(text: str) -> str:
    """Docstrings are plain text with `code`; what Markdown would take for markup is escaped outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts)


if __name__ == "__main__":
    fill_ways(Path(__file__).parent / "understand" / "architecture.md")
