"""Ops that sort, gather and scatter along the rows of a tile.

A sorted list is an fp32 row of (value, index) pairs: values in the even lanes, in the odd ones the bits of a uint32
index. The odd lanes are only moved or viewed, never computed with. Order is descending; equal values keep their
order, in a merge the earlier list's first (as in pto-isa's CPU model). NaN goes last: what the chip does with it is
not known. Pairs of fp16, which are laid out otherwise, are not here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npuscope.ops.dtypes import Array, Element
from npuscope.ops.spec import VECTOR, OpRole, OpSpec

_F32, _U32, _PAIR = np.float32, np.uint32, np.uint64
_RUN = 32
# Mask pattern (P0101, P1010, P0001, P0010, P0100, P1000, P1111; column 0 rightmost) -> its columns: first and step.
_COLUMNS = {1: (0, 2), 2: (1, 2), 3: (0, 4), 4: (1, 4), 5: (2, 4), 6: (3, 4), 7: (0, 1)}


def sort32(values: Array, index: Array) -> Array:
    """Pairs [..., 2N] of N values and indices a row: every run of 32 sorted by itself."""
    pairs = np.empty((*values.shape, 2), _F32)
    pairs[..., 0] = values
    pairs.view(_U32)[..., 1] = index
    ordered = _descending(values.reshape(-1, _RUN), pairs.reshape(-1).view(_PAIR))
    return ordered.reshape(*values.shape[:-1], -1)


def mrgsort_blocks(pairs: Array, block_len: int) -> Array:
    """Merge each four neighbouring sorted runs of `block_len` lanes; what is left at the end is merged among itself."""
    row = np.ascontiguousarray(pairs).reshape(-1)
    group = 4 * block_len
    whole = row.size // group * group
    heads = np.minimum.accumulate(row[:whole:2].reshape(-1, block_len // 2), axis=-1)
    merged = _descending(heads.reshape(-1, group // 2), row[:whole].view(_PAIR))
    if whole < row.size:
        rest = [row[start : start + block_len] for start in range(whole, row.size, block_len)]
        merged = np.concatenate((merged, mrgsort_lists(rest)[0]))
    return merged.reshape(pairs.shape)


def mrgsort_lists(lists: list[Array], exhausted: bool = False) -> Array:
    """One row [1, sum of lengths] of up to four sorted lists of pairs, of any lengths.

    With `exhausted` the merge stops when one list has run out; the lanes behind hold NaN, as memory never written does.
    """
    rows = [part.reshape(-1) for part in lists]
    heads = np.concatenate([np.minimum.accumulate(row[::2]) for row in rows])
    merged = _descending(heads.reshape(1, -1), np.concatenate(rows).view(_PAIR))
    if exhausted:
        place = np.argsort(np.argsort(-heads, kind="stable"))  # of each pair in the merged row
        last = np.cumsum([row.size // 2 for row in rows]) - 1
        merged[2 * (int(np.min(place[last])) + 1) :] = np.nan
    return merged.reshape(1, -1)


# Taking the largest head again and again is a stable sort by the smallest value up to each pair in its run. In a
# sorted run that is the pair's own; where a program names a wrong block length the runs are not sorted, and the
# disorder a real merge leaves is left here too. Hence the running minimum above.
def _descending(keys: Array, pairs: Array) -> Array:
    """The pairs of each row of keys in descending order of the keys, as one flat fp32 array."""
    count, length = keys.shape
    order = np.argsort(np.negative(keys), axis=-1, kind="stable")
    if count > 1:
        order += np.arange(0, count * length, length)[:, None]
    return pairs.take(order.reshape(-1)).view(_F32)


def gather_mask(x: Array, pattern: int, compute: np.dtype[Element] | None = None) -> Array:
    """The columns a pattern names, compacted; with `compute` their bits seen as that type of 4 bytes."""
    first, step = _COLUMNS[pattern]
    picked = x[..., first::step].copy()
    return picked if compute is None else picked.view(compute)


def scatter_mask(target: Array, x: Array, pattern: int) -> Array:
    """A copy of `target` with the columns of `x` in the columns a pattern names."""
    first, step = _COLUMNS[pattern]
    result = target.copy()
    result[..., first::step] = x
    return result


def gather(x: Array, index: npt.NDArray[np.integer]) -> Array:
    """out[i, k] = x[i, index[i, k]], for as many rows as `index` has."""
    rows, columns = index.shape[0], x.shape[-1]
    return x.reshape(-1).take(index + np.arange(0, rows * columns, columns)[:, None])


def gather_blocks(x: Array, offsets: npt.NDArray[np.integer]) -> Array:
    """The 32 bytes at each byte offset of a tile in its storage type, side by side."""
    per = 32 // x.dtype.itemsize
    first = offsets[..., None] // x.dtype.itemsize + np.arange(per)
    return x.reshape(-1).take(first).reshape(*offsets.shape[:-1], -1)


# fmt: off

SORT32 = OpSpec(
    "sort32", VECTOR, "custom", "Runs of 32 sorted descending, as (value, index) pairs side by side.",
    cost="op.vbitsort", types="FP32, whole indices",
)
MRGSORT = OpSpec(
    "mrgsort", VECTOR, "custom", "Sorted runs of pairs merged, four at a time.", cost="op.vmrgsort4", types="FP32",
    storage="separate",
)
GATHER = OpSpec(
    "gather", VECTOR, "custom", "The columns that a mask or an index names, side by side.", cost="op.vgather",
    storage="separate", scratch_rows=2,  # row by row, each from its own row of scratch
    alone="op.vreducev2", spellings=("gather", "gather_mask", "tile.gather", "gather_compare"),
)
SCATTER = OpSpec(
    "scatter", ("vector", "store"), "custom", "Columns of x into those of dst that a mask or an index names.",
    cost="op.scatter", roles=(OpRole.NO_NEW_VALUE,), spellings=("scatter", "tile.scatter", "scatter_mask"),
)

GATHERB = OpSpec(
    "gatherb", VECTOR, "custom", "32 bytes of a tile for each byte offset, side by side.", cost="op.vgather",
    like="no cost of it is public", types="offsets UINT32",
)

PART_ARG = OpSpec(
    "part_arg", VECTOR, "custom", "The larger or smaller of two values with the index that belongs to it.",
    cost="op.vsel", like="a comparison that chooses twice", spellings=("part_argmax", "part_argmin"),
)
HISTOGRAM = OpSpec(
    "histogram", VECTOR, "custom", "Of each row how many values have a byte of at most 0, 1, … 255.", cost="op.vgather",
    like="no cost of it is public", types="UINT16, UINT32", storage="separate",
)

# --- loops of other ops (tile/calls/by_index.py), which are what is recorded

MGATHER = OpSpec("mgather", (), "custom", "Rows or elements of GM that an index names; a loop of loads.")
MSCATTER = OpSpec("mscatter", (), "custom", "Each element of a tile to its index in GM; a loop of stores.")
PAGED_GATHER = OpSpec("paged_gather", (), "custom", "Rows of a paged cache, by index and page table; a loop of loads.")
SCATTER_UPDATE = OpSpec("scatter_update", (), "custom", "Rows of src over the rows that an index names; a loop.")

ALL = (
    SORT32, MRGSORT, GATHER, SCATTER, GATHERB, PART_ARG, HISTOGRAM, MGATHER, MSCATTER, PAGED_GATHER, SCATTER_UPDATE,
)
