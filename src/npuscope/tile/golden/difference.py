"""Which named tensor do two variants of a program disagree on first? Bit by bit, in the order the program wrote them.

The tensors are those of `Executed.named`: every GM tensor at the end of the run. Inputs come first, then a tensor by
the last task that wrote it; one that differs by the task that wrote its first differing element. So a wrong tensor
comes before those computed from it. NaNs are equal when their bits are; 0 and -0 differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from npuscope.tile.golden.runner import Executed, Executor, default_executor, make
from npuscope.tile.golden.spec import (
    Array,
    ScalarSpec,
    Seed,
    TensorSpec,
    array_of,
    chosen,
    copy_of,
    described,
    misuse,
    python_number,
)
from npuscope.tile.record.model import unique_names
from npuscope.tile.record.walk import earliest
from npuscope.tile.run.arguments import is_torch_tensor


@dataclass(frozen=True)
class TensorDifference:
    """One tensor that differs. Without `index` it cannot be compared element by element: `reason` says why."""

    name: str
    name_b: str
    shape: tuple[int, ...]
    dtype: str
    elements: int
    differing: int = 0
    index: tuple[int, ...] | None = None
    a: float | int | None = None
    b: float | int | None = None
    bits_a: str = ""
    bits_b: str = ""
    largest: float = 0.0  # |a - b| over the differing elements where both are finite
    written_a: str | None = None
    written_b: str | None = None
    identical_before: tuple[str, ...] = ()
    reason: str = ""

    def text(self) -> str:
        title = f"'{self.name}'" if self.name == self.name_b else f"'{self.name}' ('{self.name_b}' in B)"
        lines = [f"{title} {list(self.shape)} {self.dtype} differs"]
        if self.index is None:
            lines.append(f"  {self.reason}")
        else:
            lines += [
                f"  {self.differing:,} of {self.elements:,} elements, by at most {self.largest:.6g}",
                f"  first at {list(self.index)}: A {self.a:.9g} ({self.bits_a}), B {self.b:.9g} ({self.bits_b})",
                f"  last written in A by {self.written_a or 'nobody'}",
                f"  last written in B by {self.written_b or 'nobody'}",
            ]
        return "\n".join([*lines, f"  bitwise identical before it: {', '.join(self.identical_before) or 'none'}"])


@dataclass(frozen=True)
class Differences:
    """All tensors of two runs, in the order that run A wrote them."""

    differing: tuple[TensorDifference, ...]
    identical: tuple[str, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def first(self) -> TensorDifference | None:
        return self.differing[0] if self.differing else None

    def text(self) -> str:
        total = len(self.differing) + len(self.identical)
        lines = [f"{len(self.differing)} of {total} named tensors differ"]
        if not self.differing:
            lines = [f"all {total} named tensors are bitwise identical"]
        if self.first:
            lines.append("first: " + self.first.text())
        if len(self.differing) > 1:
            lines.append("then: " + ", ".join(f"{d.name} ({d.differing:,})" for d in self.differing[1:]))
        lines += [
            f"only in {run}: {', '.join(names)}" for run, names in (("A", self.only_a), ("B", self.only_b)) if names
        ]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def differences(
    run_a: Executed,
    run_b: Executed,
    *,
    only: Collection[str] | None = None,
    rename: Mapping[str, str] | None = None,
) -> Differences:
    """Compare the tensors of two runs by name. `only`: these names of A; `rename`: name in A → its name in B."""
    rename = rename or {}
    only = [only] if isinstance(only, str) else only
    position = last_tasks(run_a)
    names = sorted(position, key=position.__getitem__)
    for option, wanted in (("only", only or ()), ("rename", rename)):
        unknown = [name for name in wanted if name not in run_a.named]
        if unknown:
            raise misuse(f"{option}: run A has no tensor {', '.join(unknown)}", f"It has {', '.join(names)}.")
    pairs = {name: rename.get(name, name) for name in names if only is None or name in only}
    absent = [b for a, b in rename.items() if a in pairs and b not in run_b.named]
    if absent:
        raise misuse(f"rename: run B has no tensor {', '.join(absent)}")
    both = {a: b for a, b in pairs.items() if b in run_b.named}
    if not both:
        raise misuse("the two runs have no named tensor in common", "Say which belong together with rename=.")
    compared = [(name, _compare(run_a, run_b, name, other)) for name, other in both.items()]
    compared.sort(key=lambda entry: _position(run_a, entry[0], entry[1], position))
    identical: list[str] = []
    differing: list[TensorDifference] = []
    for name, difference in compared:
        if difference is None:
            identical.append(name)
        else:
            differing.append(replace(difference, identical_before=tuple(identical)))
    only_b = [] if only is not None else [name for name in run_b.named if name not in both.values()]
    return Differences(tuple(differing), tuple(identical), tuple(a for a in pairs if a not in both), tuple(only_b))


def diff_runs(
    fn_a: object,
    fn_b: object,
    *arguments: object,
    only: Collection[str] | None = None,
    rename: Mapping[str, str] | None = None,
    seed: int | None = None,
    executor: Executor | None = None,
) -> Differences:
    """Run two variants on copies of the same arguments (arrays, tensors, numbers, or specs) and compare."""
    for fn in (fn_a, fn_b):
        if not callable(fn):
            raise misuse(f"a run needs a @pl.jit function or a @pl.program class, not {described(fn)}")
    execute = executor or default_executor()
    made = [_argument(argument, chosen(seed)) for argument in arguments]
    run_a, run_b = (execute(fn, *map(copy_of, made), mode="values") for fn in (fn_a, fn_b))
    return differences(run_a, run_b, only=only, rename=rename)


def _argument(given: object, seed: Seed) -> object:
    if isinstance(given, TensorSpec | ScalarSpec):
        given = make(given, seed)
        return python_number(given) if given.ndim == 0 else array_of(given)
    return array_of(given) if is_torch_tensor(given) else given


def last_tasks(run: Executed) -> dict[str, int]:
    """The last task that wrote each named tensor, -1 where none did; in order of creation."""
    written: dict[int, int] = {}
    for task in run.recording.tasks:
        written |= {argument.buffer: task.id for argument in task.arguments if argument.writes}
    numbers = unique_names(run.recording.buffers)
    return {name: written.get(numbers[name], -1) for name in run.named}


def _position(run: Executed, name: str, difference: TensorDifference | None, last: Mapping[str, int]) -> int:
    """The task that made a tensor differ: a later one may have written other elements of it."""
    if difference is None or difference.index is None:
        return last[name]
    writer = run.last_writer(name, int(np.ravel_multi_index(difference.index, difference.shape)))
    return getattr(writer, "task", last[name])


def _compare(run_a: Executed, run_b: Executed, name_a: str, name_b: str) -> TensorDifference | None:
    a, b = run_a.named[name_a], run_b.named[name_b]
    whole = TensorDifference(name_a, name_b, a.shape, a.dtype.name, a.size)
    if a.dtype != b.dtype or a.size != b.size:
        return replace(whole, reason=f"A has {list(a.shape)} {a.dtype}, B has {list(b.shape)} {b.dtype}")
    bits_a, bits_b = _bits(a), _bits(b)
    where = np.flatnonzero(bits_a != bits_b)
    if not where.size:
        return None
    # the element that was written first: others may be wrong because it is
    recording = getattr(run_a, "recording", None)
    number = None if recording is None else unique_names(recording.buffers).get(name_a)
    i = int(where[0]) if recording is None or number is None else earliest(recording, number, where)
    wide_a, wide_b = (x.reshape(-1)[where].astype(np.float64) for x in (a, b))
    with np.errstate(invalid="ignore"):
        off = np.abs(wide_a - wide_b)
    return replace(
        whole,
        differing=int(where.size),
        index=tuple(int(x) for x in np.unravel_index(i, a.shape)),
        a=python_number(a.reshape(-1)[i]),
        b=python_number(b.reshape(-1)[i]),
        bits_a=f"{bits_a[i]:#0{2 + 2 * a.itemsize}x}",
        bits_b=f"{bits_b[i]:#0{2 + 2 * b.itemsize}x}",
        largest=float(np.max(off[np.isfinite(off)], initial=0.0)),
        written_a=_writer(run_a, name_a, i),
        written_b=_writer(run_b, name_b, i),
    )


def _bits(array: Array) -> Array:
    """The elements as unsigned integers, flat."""
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")


def _writer(run: Executed, name: str, flat_index: int) -> str | None:
    writer = run.last_writer(name, flat_index)
    return None if writer is None else str(writer)
