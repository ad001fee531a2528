"""Serve npuscope's answers to agents (Model Context Protocol).

Examples:

  npuscope mcp   (over standard input and output; a client starts it)

  npuscope mcp --root kernels --root captures   (paths elsewhere are refused)

In a client's configuration: { "mcpServers": { "npuscope": { "command": "npuscope", "args": ["mcp"] } } }

Tools: judge, explain, compare, what_if, findings, sql, op, chip, rules, guide. Needs the extra `agents`.
"""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    root: Annotated[
        list[str] | None,
        typer.Option(
            help="A folder that tools may read; may be repeated. Without it the working directory.", metavar="FOLDER"
        ),
    ] = None,
) -> None:
    from npuscope.base.plugins import not_installed

    try:
        from npuscope.agents.server import server
    except ImportError as error:
        raise not_installed("the mcp package is", "agents") from error
    server(root or ()).run()
