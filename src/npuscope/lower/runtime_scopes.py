"""The runtime's scopes as a program opens them: ring, and what a scope holds until it closes.

The compiler puts a scope around the function and around each turn of a loop (not of `unroll`), unless the entry says
`auto_scope=False` or a manual scope is open; `pl.scope` and `pl.manual_scope` are scopes where they stand. The arms of
an `if` are scopes too, which a run does not show; they would only make scopes smaller.
"""

from __future__ import annotations

from collections.abc import Hashable

from npuscope.tile.record.model import Buffer, Recording, Task

ScopePath = tuple[Hashable, ...]  # scopes open around something, outermost first: never empty
FUNCTION: ScopePath = ("function",)  # without `auto_scope` the runtime's own scope, which is no scope of the program


def path_of(recording: Recording, made: Task | Buffer) -> ScopePath:
    """The scopes that a task was submitted in, or a tensor created in."""
    return _opened(recording, made) or FUNCTION


def depth_of(recording: Recording, made: Task | Buffer) -> int:
    """How many scopes the program has open there; the runtime has one more of its own around everything."""
    return len(_opened(recording, made))


def _opened(recording: Recording, made: Task | Buffer) -> ScopePath:
    found: list[Hashable] = list(FUNCTION) if recording.auto_scope else []
    manual, done = not recording.auto_scope, 0
    for scope in made.scopes:
        if not manual:
            found += [(turn.loop, turn.turn) for turn in made.turns[done : scope.turns] if turn.kind != "unroll"]
        found.append(scope.number)
        manual, done = manual or scope.manual, scope.turns
    if not manual:
        found += [(turn.loop, turn.turn) for turn in made.turns[done:] if turn.kind != "unroll"]
    return tuple(found)
