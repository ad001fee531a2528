"""A candidate against the baseline: faster, slower or undecided, and which kernels changed."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.answer.answer import Answer, KernelTold, Versus
from npuscope.table.formats import duration, many
from npuscope.time.uncertainty import against

MOST = 4  # changes that are told
LEAST_RUN = 0.01  # of the baseline's time over all blocks: a kernel that changes by less is not told
LEAST_MEMORY = 0.05  # of a memory


def versus(base: Answer, other: Answer) -> Versus | None:
    """None where one of them has no time."""
    if base.time is None or other.time is None or not base.time.wall_ns or not other.time.wall_ns:
        return None
    found = against(base.time.wall_ns, other.time.wall_ns, base.bound, other.bound)
    ratio = found.ratio
    verdict = "undecided" if base.time.wall_ns == other.time.wall_ns else found.verdict
    why = tuple(_why(base, other))[:MOST]
    return Versus(base.candidate, verdict, ratio.value, ratio.low, ratio.high, found.faster, why)


def _why(base: Answer, other: Answer) -> Iterator[str]:
    """What changed, the kernel whose blocks changed most first."""
    old = {one.kernel: one for one in base.kernels}
    new = {one.kernel: one for one in other.kernels}
    whole = sum(one.run_ns for one in base.kernels) or 1
    names = sorted(old.keys() | new.keys(), key=lambda name: -abs(_run(new, name) - _run(old, name)))
    for name in names:
        a, b = old.get(name), new.get(name)
        if a is None and b is not None:
            yield f"{name} is new: {many(b.tasks, 'task')}, {duration(b.run_ns)} on cores"
        elif b is None and a is not None:
            yield f"{name} is gone: {many(a.tasks, 'task')}, {duration(a.run_ns)} on cores"
        elif a is not None and b is not None:
            parts = [f"{a.tasks:,} → {b.tasks:,} tasks"] if a.tasks != b.tasks else []
            parts += [f"{a.blocks:,} → {b.blocks:,} blocks"] if a.blocks != b.blocks else []
            if abs(a.run_ns - b.run_ns) >= LEAST_RUN * whole:
                parts.append(f"{duration(a.run_ns)} → {duration(b.run_ns)} on cores")
            parts += _memory(a, b)
            if parts:
                yield f"{name} {'; '.join(parts)}"
    if base.bound != other.bound:
        yield f"limited by {base.bound} → {other.bound}"


def _run(kernels: dict[str, KernelTold], name: str) -> int:
    return kernels[name].run_ns if name in kernels else 0


def _memory(a: KernelTold, b: KernelTold) -> Iterator[str]:
    for space in a.memory.keys() | b.memory.keys():
        before, after = a.memory.get(space, 0.0), b.memory.get(space, 0.0)
        if abs(before - after) >= LEAST_MEMORY:
            yield f"{space} {before:.0%} → {after:.0%}".replace("%", " %").replace(" % →", " →")
