"""The comparator of paged pools (KV caches): rows that a mapping names are compared, others must be untouched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuscope.tile.golden.arrays import Array, array_of, is_float
from npuscope.tile.golden.closeness import ratio_allclose
from npuscope.tile.golden.comparator import Comparator, Situation, Verdict, named
from npuscope.tile.golden.misuse import misuse


def mapped_pool_ratio_allclose(
    mapping_name: str,
    *,
    mapping_shape: tuple[int, ...],
    block_size: int,
    leading_rank_axis: bool = False,
    pool_name: str = "pool",
    atol: float | None = None,
    rtol: float | None = None,
    max_error_ratio: float = 0.005,
) -> Comparator:
    """Rows that the input `mapping_name` names are compared as by `ratio_allclose`; all others must equal the golden's.

    The pool is [blocks, block_size, …], or [ranks, blocks, block_size, …] with `leading_rank_axis`; a mapping entry is
    block · block_size + row, or -1 for none. Entries out of range and, on one rank, twice the same row fail.
    """
    if not isinstance(mapping_shape, tuple | list) or not all(
        isinstance(size, int) for size in (*mapping_shape, block_size)
    ):
        raise misuse(f"mapping_shape and block_size must be whole numbers, got {mapping_shape} and {block_size}")
    if not mapping_shape or any(size <= 0 for size in mapping_shape):
        raise misuse(f"mapping_shape must contain positive dimensions, got {mapping_shape}")
    if block_size <= 0:
        raise misuse(f"block_size must be positive, got {block_size}")
    if leading_rank_axis and len(mapping_shape) < 2:
        raise misuse(
            f"leading_rank_axis requires mapping_shape with a rank axis and an axis of entries, got {mapping_shape}"
        )
    compare_mapped = ratio_allclose(atol, rtol, max_error_ratio)
    ranks = mapping_shape[0] if leading_rank_axis else 1
    block_axis = 2 if leading_rank_axis else 1

    def judge(actual: Array, expected: Array, situation: Situation) -> Verdict:
        if actual.shape != expected.shape:
            return False, f"    {pool_name} shape mismatch: actual={actual.shape} expected={expected.shape}"
        if actual.ndim <= block_axis or actual.shape[block_axis] != block_size:
            layout = f"[{'ranks, ' if leading_rank_axis else ''}blocks, {block_size}, ...]"
            return False, f"    expected block-major {pool_name} layout {layout}, got {actual.shape}"
        if leading_rank_axis and actual.shape[0] != ranks:
            return False, f"    leading rank count of {pool_name} must be {ranks}, got {actual.shape[0]}"
        if mapping_name not in situation.inputs:
            return False, f"    compare_fn misconfigured: missing input '{mapping_name}'"
        mapping = array_of(situation.inputs[mapping_name])
        if not np.issubdtype(mapping.dtype, np.integer):
            return False, f"    '{mapping_name}' must have an integer dtype, got {mapping.dtype}"
        if mapping.shape != tuple(mapping_shape):
            return False, f"    '{mapping_name}' must have shape {mapping_shape}, got {mapping.shape}"

        a, e = (x.reshape(ranks, actual.shape[block_axis - 1] * block_size, -1) for x in (actual, expected))
        entries = mapping.astype(np.int64).reshape(ranks, -1)
        wrong = _wrong_entry(entries, a.shape[1])
        if wrong:
            return False, f"    '{mapping_name}'{wrong}"
        mapped = np.zeros(a.shape[:2], bool)
        rank, entry = np.nonzero(entries >= 0)
        mapped[rank, entries[rank, entry]] = True

        equal = a == e
        stray = np.argwhere(~mapped & ~equal.all(axis=-1))
        if len(stray):
            where, row = map(int, stray[0])
            changed = np.flatnonzero(~equal[where, row])
            first = (where * a.shape[1] + row) * a.shape[2] + int(changed[0])
            rank_text = f" rank={where}" if leading_rank_axis else ""
            return False, (
                f"    unmapped physical {pool_name} row changed:{rank_text} row={row} "
                f"changed_values={changed.size} mapping='{mapping_name}'{situation.written_by(first)}"
            )
        if not mapped.any():
            return True, ""
        return _mapped_rows(a, e, mapped, situation)

    def _mapped_rows(a: Array, e: Array, mapped: Array, situation: Situation) -> Verdict:
        for side, rows in (("actual", a[mapped]), ("expected", e[mapped])):
            if is_float(rows) and (illegal := int(np.count_nonzero(~np.isfinite(rows.astype(np.float32))))):
                return False, (
                    f"    {side} mapped rows in {pool_name} from '{mapping_name}' contain {illegal} non-finite value(s)"
                )
        elements = np.flatnonzero(np.repeat(mapped.reshape(-1), a.shape[2]))
        inside = replace(situation, written_by=lambda i: situation.written_by(int(elements[i])))
        ok, detail = compare_mapped.judge(a[mapped], e[mapped], inside)
        return ok, "" if ok else f"    mapped rows in {pool_name} from '{mapping_name}':\n{detail}"

    return Comparator(
        named(
            "mapped_pool_ratio_allclose",
            mapping=mapping_name,
            shape=mapping_shape,
            block_size=block_size,
            leading_rank_axis=leading_rank_axis,
            atol=atol,
            rtol=rtol,
            max_error_ratio=max_error_ratio,
        ),
        judge,
    )


def _wrong_entry(entries: Array, rows: int) -> str:
    """The first entry that no allocator would make, if there is one."""
    for bad, reason in (
        (entries < -1, "is invalid; only -1 is a negative sentinel"),
        (entries >= rows, f"is outside physical row range [0, {rows})"),
    ):
        places = np.argwhere(bad)
        if len(places):
            rank, item = places[0]
            return f"[{f'{rank}, ' if len(entries) > 1 else ''}{item}]={entries[rank, item]} {reason}"
    for rank, line in enumerate(entries):
        found, counts = np.unique(line[line >= 0], return_counts=True)
        if np.any(counts > 1):
            on = f" on rank {rank}" if len(entries) > 1 else ""
            return f" contains duplicate physical row {found[counts > 1][0]}{on}"
    return ""
