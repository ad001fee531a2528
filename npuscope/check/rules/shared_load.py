"""Two kernels that load the same tiles, turn by turn or block by block, and could share them; see also loaded_again.

Side by side they must not wait for one another; one after the other they must be tasks that could be one, and the
tile must fit on chip until the second needs it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from npuscope.check.findings import Cost, Finding
from npuscope.check.program import Launch, Program
from npuscope.check.rule import Rule
from npuscope.check.shared.fusable import fusable, nothing_between, room
from npuscope.check.shared.loaded_again import SHARE, least, loaded_again
from npuscope.check.shared.told import kernel_name, listed, size, tensor_name
from npuscope.check.traffic import Use
from npuscope.tile.graph.aliases import Offsets
from npuscope.tile.graph.exact import exact_accesses

Kind = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides of a tile


def shared_loads(program: Program) -> Iterator[Finding]:
    joined = {frozenset(pair) for found in fusable(program) for pair in combinations(found.launches, 2)}
    told: set[Use] = set()
    ours = [launch for launch in program.launches if program.first_task(launch).form not in ("extern", "dummy")]
    for a, b in combinations(ours, 2):
        if (a.blocks, len(a.tasks)) != (b.blocks, len(b.tasks)):
            continue
        uses = [use for use in _read_by_both(program, a, b) if use not in told]
        if not uses or not _turn_by_turn(program, a, b):
            continue
        apart = _apart(program, a.tasks[0], b.tasks[0])
        if not apart:
            fits = room(program, "Vec") * b.blocks
            uses = [use for use in uses if frozenset((a, b)) in joined and use.read <= fits]
        uses = [use for use in uses if all(_same_tiles(program, use.buffer, *pair) for pair in _ends(a, b))]
        if uses:
            told.update(uses)
            yield _told(program, a, b, uses, apart)
    yield from loaded_again(program)


def _read_by_both(program: Program, a: Launch, b: Launch) -> list[Use]:
    """Arguments of the second by which it loads much of a tensor that the first only loads as well."""
    ours, theirs = (program.traffic.uses(launch.tasks[0]) for launch in (a, b))
    loaded = {use.buffer for use in ours if use.read and not use.written}
    much = max(SHARE * sum(use.read for use in theirs), least(program) * b.blocks)
    return [use for use in theirs if use.buffer in loaded and not use.written and use.read >= much]


def _turn_by_turn(program: Program, a: Launch, b: Launch) -> bool:
    """Whether the n-th tasks of both stand in equal turns of equal or neighbouring loops, for all n."""
    tasks = program.recording.tasks
    return all(
        [(t.kind, t.turn) for t in tasks[i].turns] == [(t.kind, t.turn) for t in tasks[j].turns]
        for i, j in zip(a.tasks, b.tasks, strict=True)
    )


def _ends(a: Launch, b: Launch) -> set[tuple[int, int]]:
    return {(a.tasks[0], b.tasks[0]), (a.tasks[-1], b.tasks[-1])}


def _same_tiles(program: Program, buffer: int, a: int, b: int) -> bool:
    """Whether two tasks read the same tiles of a tensor, block by block."""
    return _tiles(program, buffer, a) == _tiles(program, buffer, b)


def _tiles(program: Program, buffer: int, task: int) -> dict[Kind, bytes]:
    found: dict[Kind, list[Offsets]] = defaultdict(list)
    for touched in exact_accesses(program.recording, program.recording.tasks[task]):
        if touched.mode == "read" and touched.buffer == buffer:
            found[touched.shape, touched.strides].append(np.stack([touched.blocks, touched.offsets]))
    return {kind: np.unique(np.concatenate(places, axis=1), axis=1).tobytes() for kind, places in found.items()}


def _apart(program: Program, a: int, b: int) -> bool:
    """Whether neither task waits for the other, directly or through others."""
    wrote = {use.buffer for use in program.traffic.uses(a) if use.written}
    reads = any(use.read and use.buffer in wrote for use in program.traffic.uses(b))
    return not reads and a not in program.recording.tasks[b].deps and nothing_between(program, {a, b})


def _told(program: Program, a: Launch, b: Launch, uses: list[Use], apart: bool) -> Finding:
    read = sum(use.read for use in uses)
    share = read / sum(use.read for use in program.traffic.uses(uses[0].task))
    names = listed(tensor_name(program, use.buffer) for use in uses)
    first, second = kernel_name(a), kernel_name(b)
    site, other = program.site(b.site), program.site(a.site)
    cost = Cost(bytes=read * len(b.tasks))
    part = f"{size(cost.bytes)} for the second time, {share:.0%} of what {second} reads"
    if apart:
        message = f"{first} (line {other.line}) and {second} load the same tiles of {names}: {part}"
        fix = f"Compute both in one region, so that one load of each tile of {names} serves both."
    else:
        message = f"{second} loads the tiles of {names} again that {first} (line {other.line}) had: {part}"
        fix = f"Make {first} and {second} one region and keep the tile of {names} on chip."
    return Finding(
        id="shared-load",
        severity="hint",
        file=site.file,
        line=site.line,
        function=site.function,
        kernel=b.kernel,
        message=message,
        fix=fix,
        cost=cost,
        count=len(b.tasks),
        also=((other.file, other.line),),
    )


RULE = Rule(
    "shared-load",
    "hint",
    "the same memory loaded again",
    "A tile that two products need can be loaded once for both, one that a loop needs every turn before the loop.",
    shared_loads,
)
