"""What must hold after every pass; a broken rule is a fault of ours, not of the program."""

from __future__ import annotations

from npuscope.lower.model import Instruction, Items, Lowered, Repeat


class BrokenPass(AssertionError):
    """A pass left a body that cannot be right."""


def verify(name: str, lowered: Lowered) -> None:
    """Every value is made once and before it is read; after placement everything has a space, after split a core."""
    made: set[int] = set()
    _items(name, lowered.items, made, lowered)
    if name in ("recorded", "carries", "casts"):
        return
    for value in lowered.values:
        if not value.space and value.id in made:
            raise BrokenPass(f"{lowered.kernel} after {name}: {value.name} has no memory space")


def _items(name: str, items: Items, made: set[int], lowered: Lowered) -> None:
    for item in items:
        if isinstance(item, Repeat):
            for carry in item.carries:
                made.add(carry.value)
            _items(name, item.items, made, lowered)
        else:
            _instruction(name, item, made, lowered)


def _instruction(name: str, one: Instruction, made: set[int], lowered: Lowered) -> None:
    for number in one.reads:
        if number not in made:
            value = lowered.values[number].name
            raise BrokenPass(f"{lowered.kernel} after {name}: {one.name} reads {value} before it is made")
    if one.result is not None:
        made.add(one.result)
    if name in ("split", "stages", "sizes") and one.plane not in ("view", "sync") and one.unit is None:
        raise BrokenPass(f"{lowered.kernel} after {name}: {one.name} has no core")
