"""A document: what a page of the app holds, or the server gives it. docs/howto/lab.md has its format.

What came from a capture or a program reaches the page as JSON and is only ever shown as text. A page fetches nothing,
and a content security policy forbids it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TypeAlias

import orjson

from npuscope.lab.modules import asset, script, style

FORMAT = 2  # pages before the app were files of their own kind
Payload: TypeAlias = Mapping[str, object]
Run: TypeAlias = dict[str, object]


def document(
    title: str,
    runs: Sequence[Run],
    shared: Mapping[str, Payload] | None = None,
    live: Payload | None = None,
    panel: str = "timeline",
) -> dict[str, object]:
    """`shared` has the panels that belong to no single run, `live` what a page needs to talk to its server; `panel` is
    the one that a page opens with."""
    return {
        "format": FORMAT,
        "title": title,
        "runs": list(runs),
        "shared": dict(shared or {}),
        "live": live,
        "panel": panel,
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
