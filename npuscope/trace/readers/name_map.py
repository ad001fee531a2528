"""name_map_*.json: the names of a PyPTO program's functions, by function id."""

from __future__ import annotations

from pathlib import Path

import msgspec

from npuscope.errors import BadInput
from npuscope.trace import source


class NameMap(msgspec.Struct):
    callable_id_to_name: dict[str, str]


def find_name_map(folder: Path) -> dict[int, str] | None:
    """The name map in a folder, by function id; None if there is none, or more than one."""
    found = sorted(folder.glob("name_map*.json"))
    if len(found) != 1:
        return None
    try:
        names = msgspec.json.decode(source.read_all(found[0]), type=NameMap).callable_id_to_name
        return {int(key): name for key, name in names.items()}
    except (msgspec.DecodeError, ValueError) as error:
        raise BadInput(f"not a name map ({error})", path=found[0]) from error
