"""name_map_*.json: the names of a PyPTO program's functions, by function id."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from npuscope.base.errors import BadInput
from npuscope.trace import source
from npuscope.trace.json_file import decode_object, whole_number


class NameMap(msgspec.Struct):
    callable_id_to_name: dict[str, str]
    level: int | None = None
    orchestrator_name: str | None = None


def find_name_map(folder: Path, unknown: Counter[str]) -> dict[int, str] | None:
    """The name map in a folder, by function id; None if there is none, or more than one. Unknown keys are counted."""
    found = sorted(folder.glob("name_map*.json"))
    if len(found) != 1:
        return None
    text = source.read_all(found[0])
    names = decode_object(text, NameMap, "a name map", found[0], unknown, "key of a name map").callable_id_to_name
    wrong = next((key for key in names if whole_number(key) is None), None)
    if wrong is not None:
        raise BadInput(f"function id '{wrong}' is not a number", path=found[0])
    return {int(key): name for key, name in names.items()}
