"""How fast sequences of kernel calls are aligned, and how many calls find their partner, beside difflib.

    python benchmarks/align.py          5,000 and 100,000 calls; difflib only where it ends within minutes

Passes are layers of forty calls, one after the other; on the other side some calls are left out and as many others put
in, at random places. CPU seconds of one process, without imports.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from measure import table

from npuscope.forward.align.pairing import Calls, align_calls

LAYER, KERNELS = 40, 12
CASES = [
    (5_000, 0),
    (5_000, 50),
    (5_000, 500),
    (5_000, 2_500),
    (100_000, 0),
    (100_000, 20),
    (100_000, 200),
    (100_000, 2_000),
    (100_000, 8_000),
    (100_000, 30_000),
]
DIFFLIB_UP_TO = 5_000


def passes(calls: int, changed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    one = np.tile(random.integers(0, KERNELS, LAYER), calls // LAYER)
    kept = np.sort(random.permutation(len(one))[changed:])
    added = random.integers(0, KERNELS, changed)
    return one, np.insert(one[kept], random.integers(0, len(kept), changed), added)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    found = work()
    return found, time.process_time() - begin


def main() -> None:
    rows = []
    for calls, changed in CASES:
        one, other = passes(calls, changed)
        result, seconds = timed(lambda one=one, other=other: align_calls(Calls(one), Calls(other)))
        row = [
            f"{calls:,}",
            f"{changed:,}",
            f"{len(result.a):,}",
            "yes" if result.exact else f"no, at least {result.of_best:.0%} of it",
            f"{seconds:.2f}",
        ]
        if calls <= DIFFLIB_UP_TO:
            matcher = SequenceMatcher(None, one.tolist(), other.tolist(), autojunk=False)
            theirs, slow = timed(lambda matcher=matcher: sum(block.size for block in matcher.get_matching_blocks()))
            row += [f"{theirs:,}", f"{slow:.2f}"]
        rows.append([*row, *["–"] * (7 - len(row))])
    header = ("calls", "changed", "matched", "proven best", "CPU s", "difflib matched", "difflib CPU s")
    table("two passes aligned", header, rows)


if __name__ == "__main__":
    main()
