"""Pages that draw themselves: one offline file with its style, its script and its data inside.

The script is a handful of small modules in `page/`, joined here; nothing is fetched, and a content security policy
forbids it. What came from a capture or a program reaches the page as JSON and is only ever shown as text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

import orjson


def scripted_page(modules: Sequence[str], data: object, without: str) -> str:
    """A page of modules, each after its imports; `without` says what to do where scripts are switched off."""
    text = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS).decode()
    # inside a script element only "<" could end it or open a comment
    safe = text.replace("<", "\\u003c")
    page = _asset("page.html").replace("/*STYLE*/", _asset("page.css")).replace("/*SCRIPT*/", _script(tuple(modules)))
    return page.replace("/*WITHOUT*/", escape(without)).replace("/*DATA*/", safe)


@cache
def _script(modules: tuple[str, ...]) -> str:
    """The modules as one: in order, without the words that tie them together."""
    joined = "\n".join(_asset(f"{name}.js") for name in modules)
    return re.sub(r"^import .*$\n|^export ", "", joined, flags=re.MULTILINE)


@cache
def _asset(name: str) -> str:
    return files("npuscope.report").joinpath("page", name).read_text(encoding="utf-8")
