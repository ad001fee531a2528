"""Every spelling of the language with the function it calls: made from the op's spec, or written by hand."""

from __future__ import annotations

from collections.abc import Callable

from npuscope.ops.table import BY_SPELLING
from npuscope.tile.calls import cube, elements, filling, shaping, slicing, sort, system, transfer, vector
from npuscope.tile.calls.own import FUNCTIONS
from npuscope.tile.calls.regular import made

# importing them binds their functions
WRITTEN = (
    cube,
    elements,
    filling,
    shaping,
    slicing,
    sort,
    system,
    transfer,
    vector,
)


def function_of(spelling: str) -> Callable[..., object]:
    """What a spelling of an op calls."""
    function = FUNCTIONS.get(spelling)
    if function is None:
        spec = BY_SPELLING[spelling]
        function = made(spec)
        FUNCTIONS.update(dict.fromkeys(spec.names, function))
    return function


def members(place: str) -> dict[str, Callable[..., object]]:
    """The ops of a namespace: `pl`, `tile` and `tensor` share every plain spelling, the rest is said with a dot."""
    shared = place in ("pl", "tile", "tensor")
    found = {name: function_of(name) for name in BY_SPELLING if shared and "." not in name}
    dotted = [name for name in BY_SPELLING if name.rpartition(".")[0] == place]
    return found | {name.rpartition(".")[2]: function_of(name) for name in dotted}
