"""How commands print: text for people, JSON for programs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text (docs/json.md).")]
CapturePath = Annotated[str, typer.Argument(help="A capture: a file, or a folder where the format is one.")]


def print_json(data: Any) -> None:
    """One JSON document on stdout."""
    import json

    print(json.dumps(data, indent=2, ensure_ascii=False, default=str))
