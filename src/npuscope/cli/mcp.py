"""Serve npuscope's answers to agents (Model Context Protocol).

Examples:

  npuscope mcp   (over standard input and output; a client starts it)

  npuscope mcp --root kernels --root captures   (paths elsewhere are refused)

In a client's configuration: { "mcpServers": { "npuscope": { "command": "npuscope", "args": ["mcp"] } } }

Tools: judge, explain, compare, what_if, findings, op, chip, rules, guide. Needs pip install 'npuscope[agents]'.
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
    from npuscope.base.errors import NpuscopeError

    try:
        from npuscope.agents.server import server
    except ImportError as error:
        raise NpuscopeError("the mcp package is not installed", remedy="pip install 'npuscope[agents]'.") from error
    server(root or ()).run()
