"""The rules of `pl.split_aiv`: once a task opens such a region, the regions own its vector work.

No cube op inside one, no vector op outside; a reduction may not run along the axis that the lanes share; a value
crosses the edge only through `pl.aiv_shard` (cube to vector) and `pl.aic_gather` (vector to cube).
"""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.ops.spec import OpSpec, Role
from npuscope.tile.fault import TileError, fault
from npuscope.tile.record import sites
from npuscope.tile.record.recorder import BlockDraft, Frame, Recorder
from npuscope.tile.run.block import VectorCores
from npuscope.tile.values.checks import describe
from npuscope.tile.values.tensors import Tile

_SHARED = {"up_down": "columns", "left_right": "rows"}  # reductions of these collapse the axis that the lanes share


def check_op(spec: OpSpec, plane: str, operands: Sequence[object], vector: VectorCores) -> None:
    """One op of a task that has opened a region."""
    name, half = spec.name, vector.half
    tiles = [x for x in operands if type(x) is Tile]
    if not vector.inside:
        if plane == "cube":
            for tile in tiles:
                if _made_in_region(tile.frame) and tile.space != "Mat":
                    raise fault(
                        f"pl.{name} reads a value of a pl.split_aiv region, {describe(tile)}, on the cube core",
                        "Gather it inside the region with pl.aic_gather.",
                    )
        return
    if plane == "cube":
        shapes = " and ".join(describe(tile) for tile in tiles)
        raise fault(f"pl.{name} of {shapes} inside a pl.split_aiv region", "Move the product out of the region.")
    if half is not None and spec.is_a(Role.REDUCTION) and spec.axis == _SHARED[half]:
        raise fault(
            f"pl.{name} of {describe(tiles[0])} reduces the axis that pl.split_aiv halves: each lane has a part",
            "Reduce the other axis, or pl.aic_gather the lanes first.",
        )
    if plane == "vector":
        for tile in tiles:
            if tile.space == "Acc":
                raise fault(
                    f"pl.{name} reads a cube value, {describe(tile)}, inside a pl.split_aiv region",
                    "Let it in with pl.aiv_shard.",
                )


def _made_in_region(frame: Frame | None) -> bool:
    while frame is not None:
        if frame.loop is not None and frame.loop[0] == "split_aiv":
            return True
        frame = frame.parent
    return False


def check_block(recorder: Recorder, block: BlockDraft) -> None:
    """A finished block of a task with regions: no vector op may stand outside them."""
    _outside(recorder, block.root.items)


def _outside(recorder: Recorder, items: Sequence[int]) -> None:
    for number in items:
        key = recorder.key(number)
        if key[0] == "loop":
            if key[1] != "split_aiv":
                for _, inner in key[4]:
                    _outside(recorder, inner)
        elif key[2] == "vector":
            place = sites.site(key[3])
            shape = "" if key[5] is None else f" (its result is {list(key[5][0])} {key[5][1]})"
            raise TileError(
                f"pl.{key[1]}{shape} stands outside every pl.split_aiv region of its task",
                path=place.file,
                line=place.line,
                remedy="Wrap it in `for _ in pl.split_aiv(2, mode=pl.SplitMode.NONE):`.",
            )
