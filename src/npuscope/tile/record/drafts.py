"""Tasks and blocks under recording, and the keys that ops and loops are interned by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from npuscope.ops.spec import Plane
from npuscope.tile.record.frames import Frame, Offset, Rolled
from npuscope.tile.record.model import AccessMode, Core, Direction, Form, Half, RegionLoopKind, Scope, Turn

Shape = tuple[int, ...]
TensorKey = tuple[int, int, Shape, Shape]  # buffer, offset, shape, strides: what a task knows an argument by
AccessKey = tuple[int, AccessMode, Shape, Shape]  # argument, mode, box, strides
TileKey = tuple[Shape, str, Shape | None, str | None]  # shape, type, valid part, space
OperandKey = tuple[int, ...] | str | None  # up, back, path of record.model.Ref; "scalar"; nothing
Attributes = tuple[tuple[str, object], ...]
# What an op is recorded by: name, plane, site, operands, result, accesses, attributes, FLOPs.
OpKey = tuple[
    Literal["op"],
    str,
    Plane,
    int,
    tuple[OperandKey, ...],
    TileKey | None,
    tuple[AccessKey, ...],
    Attributes,
    int,
]
Items = tuple[int, ...]  # numbers of interned ops and loops
LoopKey = tuple[Literal["loop"], RegionLoopKind, int, int, tuple[tuple[int, Items], ...]]  # kind, stage, site, segments
BodyKey = tuple[Items, Items]  # prologue, the rest


class ArgumentDraft:
    """What is known so far of one captured tensor of a task."""

    __slots__ = ("declared", "key", "no_dep", "read_first", "reads", "writes")

    def __init__(self, key: TensorKey) -> None:
        self.key = key
        self.reads = self.writes = self.read_first = self.no_dep = False
        self.declared: Direction | None = None

    def like(self, key: TensorKey) -> ArgumentDraft:
        """The same of another tensor."""
        new = ArgumentDraft(key)
        new.reads, new.writes, new.read_first = self.reads, self.writes, self.read_first
        new.no_dep, new.declared = self.no_dep, self.declared
        return new


@dataclass(slots=True)
class Launch:
    """What the program says of a task where it launches it; see record.model.Task."""

    deps: tuple[int, ...] = ()
    manual_scope: bool = False
    early: bool = False
    sync_start: bool = False
    predicated: bool = False
    skipped: bool = False
    split: Half | Literal[""] = ""
    ring_slots: int = 0
    core: Core | None = None  # None: what it does decides
    turns: tuple[Turn, ...] = ()
    scopes: tuple[Scope, ...] = ()
    layer: str = ""


class TaskDraft:
    """A task under recording."""

    def __init__(self, id: int, kernel: str, site: int, blocks: int, form: Form, launch: Launch) -> None:
        self.id, self.kernel, self.site, self.blocks, self.form, self.launch = id, kernel, site, blocks, form, launch
        self.arguments: list[ArgumentDraft] = []
        self.groups: dict[BodyKey, tuple[list[int], Rolled]] = {}
        self.declared: dict[int, Direction] = {}  # buffer -> direction in an incore function's signature
        self._by_tensor: dict[TensorKey, int] = {}

    def called(self, kernel: str) -> None:
        """A launch without a name is called after the kernel it dispatches."""
        if "_incore_" in self.kernel:
            self.kernel = kernel

    def argument(self, key: TensorKey) -> int:
        number = self._by_tensor.get(key)
        if number is None:
            number = self._by_tensor[key] = len(self.arguments)
            draft = ArgumentDraft(key)
            draft.declared = self.declared.get(key[0])
            self.arguments.append(draft)
        return number


class BlockDraft:
    """A block (or several of equal behaviour) under recording."""

    def __init__(self, task: TaskDraft, first: int) -> None:
        self.task, self.first = task, first
        self.root = self.frame = Frame(None)
        self.prologue: list[int] = []
        self.prologue_offsets: list[Offset] = []
        self.written: set[int] = set()  # arguments

    def written_buffer(self, buffer: int) -> bool:
        return any(self.task.arguments[number].key[0] == buffer for number in self.written)
