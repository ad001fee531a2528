"""Elements of GM that the scalar unit reads: through the data cache of its core, line by line.

The first element of a line waits for GM, the others of the same line do not. The cache begins empty with every block
and is taken to hold all lines of a block: lists of sequence lengths and pages are short.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npuscope.lower.model import Instruction, Items, Lowered, instructions


def only_scalars(items: Items) -> bool:
    """Whether a loop gives the pipes nothing to do: its turns are a few instructions of the scalar unit."""
    return all(one.pipe in ("S", None) and one.plane != "sync" for one in instructions(items))


def fresh_lines(
    lowered: Lowered, offsets: Sequence[npt.NDArray[np.int64]], sizes: Sequence[int], line: int
) -> dict[int, int]:
    """Of each access of a scalar read, how many lines it is the first to touch in the first block of a group.

    `sizes`: bytes of an element of each argument.
    """
    seen: dict[int, set[int]] = {}
    found: dict[int, int] = {}
    for one in lowered.instructions:
        if not _reads(one):
            continue
        (access, *_) = one.accesses
        lines = np.unique(offsets[one.first_access][..., 0] * sizes[access.argument] // line).tolist()
        known = seen.setdefault(access.argument, set())
        found[one.first_access] = len(set(lines) - known)
        known.update(lines)
    return found


def _reads(one: Instruction) -> bool:
    return one.pipe == "S" and one.first_access >= 0 and any(access.mode == "read" for access in one.accesses)
