"""What one run of a tile program left behind: plain data, no NumPy values of the program, no behaviour.

A `Recording` has two halves that are kept apart on purpose. What the *runtime* sees of a task: its arguments (whole
captured tensors), declared dependencies, opt-outs, the orchestration loops around it. And what the task *did*: per
block the ops in order with exactly the GM regions they touched. The graph is computed from the first, races and waste
from both.

Structure and positions are apart too: a `Body` says which ops ran with which shapes, a `BlockGroup` says at which
offsets. Iterations with equal structure are rolled up into one `Segment`, blocks with equal bodies share one `Body`,
so forty layers store what one does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from npuscope.ops.spec import OpSpec, Plane
from npuscope.ops.table import BY_NAME

Core = Literal["AIC", "AIV", "MIX", "none"]
Mode = Literal["values", "shapes"]
Direction = Literal["In", "Out", "InOut"]
Origin = Literal["parameter", "created", "promoted"]
LoopKind = Literal["range", "parallel", "unroll", "while", "spmd"]  # of the orchestration
RegionLoopKind = Literal["range", "pipeline", "unroll", "while", "split_aiv"]
Form = Literal["at", "spmd", "call", "dummy", "extern"]
Half = Literal["up_down", "left_right"]
AccessMode = Literal["read", "write", "add"]


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the user's source."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class TileType:
    """What a tile is: `valid` where less than the shape holds data, `space` where the program says it (else lowering
    places it).
    """

    shape: tuple[int, ...]
    dtype: str
    valid: tuple[int, ...] | None = None
    space: str | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """The op that made an operand, seen from the op that uses it.

    `up` loops outward, `back` iterations ago in that loop (2 = two or more), then `path`: the index of an item there,
    and where that item is a loop the index inside its last iteration, and so on. `up` = -1: the prologue (`path` =
    its index).
    """

    up: int
    back: int
    path: tuple[int, ...]


class Access(NamedTuple):
    """One strided box of GM that an op touches: elements `offset + sum(i[k] * strides[k])`, `i[k] < shape[k]`.

    `argument` counts the task's arguments; strides are in elements of the argument's buffer. The offsets are in the
    BlockGroup, one array per access.
    """

    argument: int
    mode: AccessMode
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Op:
    """One op as it ran: no positions, so equal work has equal records."""

    name: str
    plane: Plane
    site: int  # index into Recording.sites
    operands: tuple[Ref | TileType | float | int | str | None, ...] = ()
    result: TileType | None = None
    accesses: tuple[Access, ...] = ()
    attributes: tuple[tuple[str, object], ...] = ()
    flops: int = 0  # of one execution; of a vector op one per element, of a reduction one per element that it takes

    @property
    def spec(self) -> OpSpec:
        return BY_NAME[self.name]


@dataclass(frozen=True, slots=True)
class Segment:
    """`count` consecutive iterations of equal structure."""

    count: int
    items: tuple[Op | Loop, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop inside a region. `lanes` marks a split_aiv loop."""

    kind: RegionLoopKind
    stage: int
    site: int
    segments: tuple[Segment, ...]

    @property
    def turns(self) -> int:
        return sum(segment.count for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Body:
    """What a block did. The prologue loads captured tensors that ops used whole, once per block."""

    prologue: tuple[Op, ...]
    items: tuple[Op | Loop, ...]


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Blocks of one task with one body.

    `offsets` has one array per access of the body, in program order (prologue, then depth first through segments).
    Axis -1 runs over `blocks`, axis -2 over the iterations of the outermost enclosing segment, axis -3 over the next;
    an axis along which nothing changes may have length 1, leading axes may be missing.
    """

    body: int  # index into Recording.bodies
    blocks: npt.NDArray[np.int64]
    offsets: tuple[npt.NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor as the runtime sees it at submission: the whole captured tensor (a view of a buffer), not what was
    touched.
    """

    buffer: int  # index into Recording.buffers
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    reads: bool  # some op of some block read it
    writes: bool
    declared: Direction | None = None  # by an incore function's signature
    no_dep: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One iteration of an orchestration loop: which loop (a number unique to each time it is entered), its kind,
    which turn.
    """

    loop: int
    kind: LoopKind
    turn: int


@dataclass(frozen=True, slots=True)
class Scope:
    """A `pl.scope` or `pl.manual_scope` that the program opened; `turns`: how many loops were around it."""

    number: int
    manual: bool
    turns: int


@dataclass(frozen=True, slots=True)
class Task:
    """One dispatch: id = its index in Recording.tasks."""

    id: int
    kernel: str
    site: int
    core: Core
    blocks: int
    groups: tuple[BlockGroup, ...]
    arguments: tuple[Argument, ...]
    deps: tuple[int, ...]  # declared with deps=, task ids, in the order given, None left out
    turns: tuple[Turn, ...]  # the orchestration loops around it, outermost first
    form: Form
    manual_scope: bool = False
    early: bool = False
    sync_start: bool = False
    predicated: bool = False
    skipped: bool = False  # its predicate was false: nothing ran
    scopes: tuple[Scope, ...] = ()  # open around it, outermost first
    layer: str = ""  # the inline call it was made in, e.g. "decode_layer#3"
    graph: str = ""  # the call of a recorded graph it was made in, "decode_layer#3" being the third of that graph
    split: Half | Literal[""] = ""  # each vector core of a mixed task takes half of every tile
    ring_slots: int = 0  # depth of the ring between cube and vector cores; 0: the compiler's own
    ring_bytes: tuple[int, int] = (0, 0)  # that vector and cube core keep for it; 0: as many as it has slots


@dataclass(frozen=True, slots=True)
class Buffer:
    """One piece of GM. `origin`: a parameter of the entry, made by create_tensor, or a value that left its region."""

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    origin: Origin
    site: int
    direction: Direction | None = None  # of a parameter
    manual_dep: bool = False
    before_task: int = 0  # tasks submitted before it came to be
    turns: tuple[Turn, ...] = ()  # the orchestration loops around its creation, outermost first
    scopes: tuple[Scope, ...] = ()
    filled: bool = False  # created with an init_value


@dataclass(frozen=True, slots=True)
class Alias:
    """An orchestration-level assemble: from here on `part` is the named box of `whole` (no copy, no task)."""

    part: int
    whole: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    before_task: int
    site: int


@dataclass(frozen=True, slots=True)
class HostRead:
    """The orchestration read an element: it waits for the element's last writer."""

    buffer: int
    offset: int
    before_task: int
    site: int


PAST_THE_END = "past_the_end"  # the kind of notice about a write past a tensor's end
NO_EFFECT = "no_effect"  # about a setting that changed nothing


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the run noticed and the user should know; not an error."""

    kind: str
    site: int
    message: str
    count: int = 1
    bytes: int = 0  # that it is about, all times together


@dataclass(frozen=True)
class RingSizes:
    """Per ring; empty where nothing was asked for, 0 for the device's size."""

    heap: tuple[int, ...] = ()
    task_window: tuple[int, ...] = ()
    dep_pool: tuple[int, ...] = ()

    def of(self, name: str, ring: int, otherwise: int) -> int:
        """The size of a ring: of `heap` (bytes), `task_window` or `dep_pool`."""
        sizes: tuple[int, ...] = getattr(self, name)
        return (sizes[ring] if ring < len(sizes) else 0) or otherwise


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Which of several ranks a program ran on: `call` counts the calls of host functions, `rank` their devices."""

    call: int
    rank: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Recording:
    """One run of one program."""

    program: str
    mode: Mode
    sites: tuple[Site, ...]
    buffers: tuple[Buffer, ...]
    bodies: tuple[Body, ...]
    tasks: tuple[Task, ...]
    aliases: tuple[Alias, ...] = ()
    host_reads: tuple[HostRead, ...] = ()
    notices: tuple[Notice, ...] = ()
    notes: tuple[str, ...] = field(default=())
    auto_scope: bool = True  # the compiler puts a scope around the function and around each turn of a loop
    rings: RingSizes = field(default=RingSizes())  # what the run asked for
    runtime: str = ""  # that the run asked for; empty where it did not
    place: RankPlace | None = None  # where a host function ran it
    platform: str = ""  # that the run asked for, such as a5 or a2a3sim


def unique_names(buffers: Iterable[Buffer]) -> dict[str, int]:
    """Unique name → buffer id, in the order the buffers came to be."""
    seen: Counter[str] = Counter()
    found = {}
    for buffer in buffers:
        seen[buffer.name] += 1
        found[buffer.name if seen[buffer.name] == 1 else f"{buffer.name}#{seen[buffer.name]}"] = buffer.id
    return found


def short_name(name: str) -> str:
    """A kernel's or function's name without the factory it was made in."""
    return name.rpartition("<locals>.")[2]
