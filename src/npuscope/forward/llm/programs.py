"""The decode programs that come with npuscope, by short names, and where a program's own areas are."""

from __future__ import annotations

from pathlib import Path

from npuscope.base.errors import BadInput
from npuscope.models import FOLDER, file_of

OURS = {"qwen3-14b": "qwen3_14b/decode.py", "qwen3-14b-a8w8": "qwen3_14b/decode_a8w8.py"}
AREAS = "groups.toml"


def program_file(model: str) -> str:
    """The file of a short name, or the file itself."""
    if model in OURS:
        return str(FOLDER / OURS[model])
    file = file_of(model)
    if not Path(file).is_file():
        raise BadInput("no such file", path=model, remedy=f"Name a tile program, or one of {', '.join(OURS)}.")
    return file


def areas_beside(file: str) -> str | None:
    """The rules for areas that lie beside a program."""
    rules = Path(file).resolve().parent / AREAS
    return str(rules) if rules.is_file() else None
