"""name_map_*.json: the names of a PyPTO program's functions, by function id."""

from __future__ import annotations

from pathlib import Path

import msgspec

from npuscope.errors import BadInput
from npuscope.trace.json_file import read_json, whole_number


class NameMap(msgspec.Struct):
    callable_id_to_name: dict[str, str]


def find_name_map(folder: Path) -> dict[int, str] | None:
    """The name map in a folder, by function id; None if there is none, or more than one."""
    found = sorted(folder.glob("name_map*.json"))
    if len(found) != 1:
        return None
    names = read_json(found[0], NameMap, "a name map").callable_id_to_name
    wrong = next((key for key in names if whole_number(key) is None), None)
    if wrong is not None:
        raise BadInput(f"function id '{wrong}' is not a number", path=found[0])
    return {int(key): name for key, name in names.items()}
