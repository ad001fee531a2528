"""Sorting, gathering and scattering along the row of a tile.

A sorted list is an fp32 row of (value, index) pairs: values in the even lanes, in the odd ones the bits of a uint32 index.
The odd lanes are only ever moved or viewed, never computed with. Order is descending; equal values keep their order, in a
merge the earlier list's first (as pto-isa's own CPU model does). NaN goes last: what the chip does with it is not known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_F32, _U32, _U64 = np.float32, np.uint32, np.uint64
_RUN = 32
# Mask pattern -> the columns it names: (first, step).
_COLUMNS = {1: (0, 2), 2: (1, 2), 3: (0, 4), 4: (1, 4), 5: (2, 4), 6: (3, 4), 7: (0, 1)}


def sort32(values: Array, index: Array) -> Array:
    """Pairs [..., 2N] of [..., N] values: every run of 32 sorted by itself."""
    runs = values.reshape(-1, _RUN)
    order = np.argsort(-runs, axis=-1, kind="stable")
    pairs = np.empty((*runs.shape, 2), _F32)
    pairs[..., 0] = np.take_along_axis(runs, order, -1)
    indices = np.broadcast_to(index, values.shape).reshape(-1, _RUN)
    pairs.view(_U32)[..., 1] = np.take_along_axis(indices, order, -1)
    return pairs.reshape(*values.shape[:-1], 2 * values.shape[-1])


def mrgsort_blocks(pairs: Array, block_len: int) -> Array:
    """Merge each four neighbouring sorted runs of `block_len` lanes; a shorter rest at the end is merged by itself."""
    row = pairs.reshape(-1)
    group = 4 * block_len
    whole = row.size // group * group
    merged = np.empty_like(row)
    _merge(row[:whole].reshape(-1, 4, block_len), merged[:whole])
    rest = row[whole:]
    if rest.size:
        merged[whole:] = mrgsort_lists([rest[i : i + block_len] for i in range(0, rest.size, block_len)])[0]
    return merged.reshape(pairs.shape)


def mrgsort_lists(lists: list[Array]) -> Array:
    """One row [1, sum of lengths] of two to four sorted lists of pairs, of any lengths."""
    rows = [part.reshape(-1) for part in lists]
    heads = np.concatenate([np.minimum.accumulate(row[::2]) for row in rows])
    order = np.argsort(-heads, kind="stable")
    return np.concatenate(rows).view(_U64)[order].view(_F32).reshape(1, -1)


def _merge(runs: Array, out: Array) -> None:
    # Always taking the largest head is a stable sort by each element's smallest predecessor in its run. For sorted runs that
    # is the element itself; for unsorted ones (a wrong block length) it leaves the disorder that a real merge leaves.
    count, _, lanes = runs.shape
    heads = np.minimum.accumulate(runs[..., ::2], axis=-1).reshape(count, -1)
    order = np.argsort(-heads, axis=-1, kind="stable")
    wide = runs.reshape(count, -1).view(_U64)
    out.view(_U64).reshape(count, -1)[...] = np.take_along_axis(wide, order, -1)


def gather_mask(x: Array, pattern: int, compute: Any = None) -> Array:
    """The columns a pattern names, compacted; with `compute` their bits seen as that 4-byte type."""
    first, step = _COLUMNS[pattern]
    picked = np.ascontiguousarray(x[..., first::step])
    return picked if compute is None else picked.view(compute)


def scatter_mask(target: Array, x: Array, pattern: int) -> Array:
    """A copy of `target` with the columns of `x` in the columns a pattern names."""
    first, step = _COLUMNS[pattern]
    result = target.copy()
    result[..., first::step] = x
    return result


def gather(x: Array, index: Array) -> Array:
    """out[..., k] = x[..., index[..., k]] row by row."""
    return np.take_along_axis(x, index, -1)


def arange(start: Any, shape: tuple[int, ...], compute: Any) -> Array:
    """The ramp start, start + 1, ... along the last axis."""
    ramp = np.arange(int(start), int(start) + shape[-1]).astype(compute)
    return np.broadcast_to(ramp, shape) if ramp.shape != shape else ramp
