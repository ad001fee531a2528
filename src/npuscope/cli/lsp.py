"""The language server for editors: findings, times, fixes.

Speaks the Language Server Protocol on standard input and output, so an editor starts it. docs/howto/editor.md has the
lines for VS Code, Neovim, Emacs and JetBrains. Needs the extra `editor`.

Examples:

  npuscope lsp   (what an editor runs)

The client's initializationOptions: `device`, `arguments` (a program's, by the end of its path: {"layer.py":
["--small"]}, or {"*": […]}), `seconds` (of a run), `run` (false: a save runs nothing), `fixes` (false:
none is tried).
"""

from __future__ import annotations

from importlib.util import find_spec

from npuscope.base.plugins import not_installed


def command() -> None:
    if find_spec("pygls") is None:
        raise not_installed("pygls is", "editor")
    from npuscope.editor.server import make_server

    make_server().start_io()
