"""A document: what a page of the app holds, or the server gives it. docs/howto/lab.md has its format.

What came from a capture or a program reaches the page as JSON and is only ever shown as text. A page fetches nothing,
and a content security policy forbids it.

A page is one file, from which a browser lets nothing be imported, and nothing is built when npuscope is. So `script`
puts the modules of page/ into one text, each in a scope of its own: `import { a } from "./b.js"` takes `a` from what
the function of `b.js` returned. What a module may export is therefore a function, a class or a constant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from graphlib import TopologicalSorter
from html import escape
from importlib.resources import files
from posixpath import dirname, join, normpath
from typing import TypeAlias

import orjson

FORMAT = 2  # pages before the app were files of their own kind
Payload: TypeAlias = Mapping[str, object]
Run: TypeAlias = dict[str, object]


def document(
    title: str,
    runs: Sequence[Run],
    shared: Mapping[str, Payload] | None = None,
    live: Payload | None = None,
    panel: str = "timeline",
    run: str | None = None,
    beside: str | None = None,
) -> dict[str, object]:
    """`shared` has the panels that belong to no single run, `live` what a page needs to talk to its server; `panel`,
    `run` and the run `beside` it are those that a page opens with."""
    return {
        "format": FORMAT,
        "title": title,
        "runs": list(runs),
        "shared": dict(shared or {}),
        "live": live,
        "panel": panel,
        "run": run,
        "beside": beside,
    }


def as_json(data: object) -> bytes:
    """As the page reads it."""
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def page(data: Mapping[str, object], without: str = "`npuscope report --md` makes one without.") -> str:
    """The app with a document inside; `without` says what to do where scripts are switched off."""
    # inside a script element only "<" could end it or open a comment
    safe = as_json(data).decode().replace("<", "\\u003c")
    frame = asset("frame.html")
    for mark, text in {"/*STYLE*/": style(), "/*SCRIPT*/": script(), "/*WITHOUT*/": escape(without)}.items():
        frame = frame.replace(mark, text)
    head, tail = frame.split("/*DOCUMENT*/")
    return f"{head}{safe}{tail}"


FIRST = "main.js"
IMPORT = re.compile(r'^import (?:\{([^}]*)\} from )?"([^"]+)";[^\n]*$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function\*?|class|const) (\w+)", re.MULTILINE)


@cache
def asset(path: str) -> str:
    """The text of a file of `page/`."""
    return files("npuscope.lab").joinpath("page", *path.split("/")).read_text(encoding="utf-8")


@cache
def style() -> str:
    """The app's style, and those of panels, each beside its module (`panels/x.js`, `panels/x.css`)."""
    folder = files("npuscope.lab").joinpath("page", "panels")
    beside = sorted(file.name for file in folder.iterdir() if file.name.endswith(".css"))
    return "\n".join([asset("style.css"), *(asset(f"panels/{name}") for name in beside)])


@cache
def modules(first: str = FIRST) -> tuple[str, ...]:
    """The paths of a module and of all that it imports, each after its imports."""
    found: dict[str, set[str]] = {}
    todo = [first]
    while todo:
        path = todo.pop()
        if path not in found:
            found[path] = {_beside(path, name) for _, name in IMPORT.findall(asset(path))}
            todo.extend(found[path])
    return tuple(TopologicalSorter({path: sorted(found[path]) for path in sorted(found)}).static_order())


@cache
def script() -> str:
    """All modules as one script."""
    parts = [f'"use strict";\nconst modules = {{}};\n{"".join(_wrapped(path) for path in modules())}']
    return "(() => {\n" + "".join(parts) + "})();\n"


def _wrapped(path: str) -> str:
    text = asset(path)
    names = EXPORT.findall(text)

    def taken(found: re.Match[str]) -> str:
        lines = "\n" * found[0].count("\n")  # so that a mistake has its line
        if found[1] is None:
            return lines
        wanted = re.sub(r"\s+", " ", found[1].replace(" as ", ": ")).strip()
        return f'const {{ {wanted} }} = modules["{_beside(path, found[2])}"];{lines}'

    body = re.sub(r"^export ", "", IMPORT.sub(taken, text), flags=re.MULTILINE)
    return f'// ---- {path}\nmodules["{path}"] = (() => {{\n{body}\nreturn {{ {", ".join(names)} }};\n}})();\n'


def _beside(path: str, name: str) -> str:
    """The path of a module that another one imports."""
    return normpath(join(dirname(path), name))
