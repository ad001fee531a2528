"""The functions of a kernel's assembly, executed as far as their numbers are known: scalars, loops, branches, ops.

The block's number and the arguments that are given are known. A loop whose turns all do the same is one Repeat; where
its variable decides something, turns are gone through one by one and equal ones are put together again. What only
run-time data decides is noted: a loop counts one turn, of two branches the longer.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from npuscope.base.errors import BadInput
from npuscope.chip.devices import Device
from npuscope.lower.assembly_bytes import SPACES, TileName, Tiles, bytes_of, size_of
from npuscope.lower.assembly_text import AssemblyFile, AssemblyFunction, AssemblyOp
from npuscope.lower.model import CoreKind, Instruction, Items, Pipe, Repeat, Ring, RingWay, instructions
from npuscope.ops.cube import MATMUL, MATMUL_ACC, MATMUL_BIAS
from npuscope.ops.elementwise import CAST, MAXIMUM, MINIMUM
from npuscope.ops.shaping import ARANGE, FULL, TRANSPOSE
from npuscope.ops.spec import OpSpec
from npuscope.ops.table import BY_NAME
from npuscope.ops.transfers import LOAD, MOVE, NOTIFY, POP, PUSH, PUT, READ, STORE, SYNCALL, WAIT, WRITE
from npuscope.tile.record.model import Access, AccessMode

MOST = 200_000  # instructions of one kernel that are laid out one by one


def _vector_ops() -> dict[str, OpSpec]:
    """`tadd`, `trowsum`; with a number `tadds`."""
    named = {f"t{spec.name.replace('_', '')}": spec for spec in BY_NAME.values() if "vector" in spec.planes}
    named |= {"tmax": MAXIMUM, "tmin": MINIMUM, "tcvt": CAST, "ttrans": TRANSPOSE, "texpands": FULL, "tci": ARANGE}
    return {f"{name}s": spec for name, spec in named.items() if spec.form == "binary"} | named


VECTOR = _vector_ops()
PRODUCTS = {
    "tmatmul": MATMUL, "tmatmul.acc": MATMUL_ACC, "tmatmul.bias": MATMUL_BIAS,
    "tgemv": MATMUL, "tgemv.acc": MATMUL_ACC, "tgemv.bias": MATMUL_BIAS,
}  # fmt: skip
MOVES = ("tmov", "textract", "tinsert")
FREE = {  # names, views, counters of the scalar unit: no instruction of a pipe
    "set_validshape", "reserve_buffer", "import_reserved_buffer", "aic_initialize_pipe", "aiv_initialize_pipe",
    "tfree_from_aic", "tfree_from_aiv", "declare_local_array", "local_array_set", "set_flag", "wait_flag",
    "record_event", "wait_event", "get_buf", "rls_buf", "fence.barrier_all", "cmo.cacheinvalid", "barrier",
}  # fmt: skip
PUSHES: dict[str, tuple[RingWay, CoreKind]] = {"tpush_to_aiv": ("C2V", "AIC"), "tpush_to_aic": ("V2C", "AIV")}
POPS: dict[str, tuple[RingWay, CoreKind]] = {"tpop_from_aic": ("C2V", "AIV"), "tpop_from_aiv": ("V2C", "AIC")}


@dataclass(frozen=True, slots=True)
class _Turning:
    """A number that depends on the turn of loops whose turns are taken as one."""

    loops: frozenset[int]


class _Unequal(Exception):
    """The turns of one of these loops do not do the same."""

    def __init__(self, loops: frozenset[int]) -> None:
        self.loops = loops


Scalar = int | float | _Turning | None  # None: known at run time only
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "slt": operator.lt, "sle": operator.le, "sgt": operator.gt,
    "sge": operator.ge, "ult": operator.lt, "ule": operator.le, "ugt": operator.gt, "uge": operator.ge,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "addi": operator.add, "subi": operator.sub, "muli": operator.mul, "maxsi": max, "minsi": min, "maxui": max,
    "minui": min, "divsi": lambda a, b: int(a / b) if b else 0, "divui": lambda a, b: a // b if b else 0,
    "remsi": lambda a, b: a - b * int(a / b) if b else 0, "remui": lambda a, b: a % b if b else 0,
    "ceildivsi": lambda a, b: -(-a // b) if b else 0, "floordivsi": lambda a, b: a // b if b else 0,
    "andi": operator.and_, "ori": operator.or_, "xori": operator.xor,
}  # fmt: skip


class _TensorBox(NamedTuple):
    """A tensor in GM, or a box of it."""

    argument: int
    shape: tuple[Scalar, ...]
    strides: tuple[Scalar, ...]


class KernelRun:
    """Gathers the values, lines and notes of all functions of a file."""

    def __init__(self, file: AssemblyFile, device: Device) -> None:
        self.file, self.device = file, device
        self.tiles = Tiles()
        self.lines: dict[tuple[str, int], int] = {}
        self.unknown: Counter[str] = Counter()
        self.first: dict[str, int] = {}
        self.assumed: dict[int, str] = {}
        self.bounded: dict[int, str] = {}
        self.rings: dict[RingWay, Ring] = {}
        self.made = 0

    def function(self, function: AssemblyFunction, known: Mapping[str, int]) -> tuple[CoreKind, Items] | None:
        unit = function.unit or _unit_of(function)
        if unit is None:
            return None
        self._count_unknown(function.body)
        self._allocated(function, unit)
        return unit, _FunctionRun(self, function, unit, known).items

    def _count_unknown(self, ops: Sequence[AssemblyOp]) -> None:
        for op in ops:
            if not known_op(op.name):
                self.unknown[op.name] += 1
                self.first.setdefault(op.name, op.line)
            for block in op.blocks:
                self._count_unknown(block)

    def _allocated(self, function: AssemblyFunction, unit: CoreKind) -> None:
        """What all tiles of a function take, those of branches that are not taken, too: the highest end of each space.

        Without addresses all of them lie side by side.
        """
        constants = {
            op.results[0]: int(text)
            for op in _all(function.body)
            if op.name == "arith.constant" and re.fullmatch(r"-?\d+", text := op.text.partition(":")[0].strip())
        }
        for op in _all(function.body):
            buffer = op.tile if op.name == "pto.alloc_tile" else None
            if buffer is None:
                continue
            key = SPACES.get(buffer.space, buffer.space), unit
            size = bytes_of(buffer)
            address = constants.get(op.value_of("addr") or "")
            before = self.tiles.ends.get(key, 0)
            self.tiles.ends[key] = before + size if address is None else max(before, address + size)

    def place(self, op: AssemblyOp | TileName) -> int:
        where = op.source or (str(self.file.path), op.line)
        return self.lines.setdefault(where, len(self.lines))

    def count(self) -> None:
        self.made += 1
        if self.made > MOST:
            raise BadInput(
                f"has more than {MOST} instructions where its loops are laid out", path=self.file.path,
                remedy="Please report it.",
            )  # fmt: skip


def known_op(name: str) -> bool:
    """Whether npuscope knows what an op does."""
    head, _, rest = name.partition(".")
    if head != "pto":
        return head in ("arith", "func", "return", "builtin") or name in ("scf.for", "scf.if", "scf.yield")
    return (
        rest in VECTOR or rest in PRODUCTS or rest in MOVES or rest in FREE or rest in PUSHES or rest in POPS
        or name in _FunctionRun.HANDLED
    )  # fmt: skip


def _unit_of(function: AssemblyFunction) -> CoreKind | None:
    """Of a function that does not say it: by its work; None for one that only calls others."""
    text = {op.name.partition(".")[2] for op in _all(function.body)}
    if any(name in PRODUCTS for name in text):
        return "AIC"
    return "AIV" if any(name.startswith(("t", "load_scalar", "store_scalar")) for name in text) else None


def _all(ops: Sequence[AssemblyOp]) -> Iterator[AssemblyOp]:
    for op in ops:
        yield op
        for block in op.blocks:
            yield from _all(block)


class _FunctionRun:
    """One function, executed as far as its numbers are known."""

    # fmt: off
    HANDLED = frozenset({
        "pto.alloc_tile", "pto.make_tensor_view", "pto.partition_view", "pto.subview", "pto.treshape", "pto.addptr",
        "pto.tload", "pto.tstore", "pto.load_scalar", "pto.store_scalar", "pto.tgetval", "pto.tsetval",
        "pto.local_array_get", "pto.syncall", "pto.comm.tput", "pto.comm.tnotify", "pto.comm.twait",
        "pto.get_block_idx", "pto.get_subblock_idx", "pto.get_block_num", "pto.get_subblock_num", "pto.section.cube",
        "pto.section.vector",
    })
    # fmt: on

    def __init__(self, body: KernelRun, function: AssemblyFunction, unit: CoreKind, known: Mapping[str, int]) -> None:
        self.body, self.unit = body, unit
        self.env: dict[str, Scalar] = {}
        self.tiles: dict[str, TileName] = {}
        self.tensors: dict[str, _TensorBox] = {}
        self.pointers: dict[str, int] = {}
        self.loops: dict[int, int] = {}  # line of a loop -> its number
        self.above: dict[str, tuple[str, int]] = {}  # number known at run time only -> which one it is how far above
        for n, (name, kind) in enumerate(function.arguments):
            if kind.startswith("!pto.ptr"):
                self.pointers[name] = n
            else:
                self.env[name] = known.get(name.lstrip("%"))
        self.items = self._items(function.body)

    # --- structure

    def _items(self, ops: Sequence[AssemblyOp]) -> Items:
        made: list[Instruction | Repeat] = []
        for op in ops:
            names = {"scf.for": 4, "scf.if": 1}.get(op.name)  # a variable and three bounds; a condition
            if names is not None and (not op.blocks or len(re.findall(r"%[\w#]+", op.text)) < names):
                what = f"{op.name} without a body or its bounds"
                raise BadInput(what, path=self.body.file.path, line=op.line)
            if op.name == "scf.for":
                made += self._loop(op)
            elif op.name == "scf.if":
                made += self._branch(op)
            elif op.blocks:  # a section, or a loop of a kind that is not known: once
                if not op.name.startswith("pto.section"):
                    self.body.assumed[op.line] = f"{op.name}: its turns are known at run time only, one is counted"
                for block in op.blocks:
                    made += self._items(block)
            else:
                try:
                    made += self._op(op)
                except (LookupError, ValueError, OverflowError):  # an operand too few, a word where a number belongs
                    what = f"is no {op.name} that can be read: {op.text[:60]}"
                    raise BadInput(what, path=self.body.file.path, line=op.line) from None
        return tuple(made)

    def _branch(self, op: AssemblyOp) -> Items:
        condition = self._number(op.operands[0], decides=True)
        if condition is None:
            trials = [self._trial(block) for block in op.blocks]
            longest = max(range(len(trials)), key=lambda n: sum(1 for _ in instructions(trials[n])))
            self.body.assumed[op.line] = "a branch that run-time data decides: the longer side is counted"
            return self._taken(op, op.blocks[longest])
        if condition:
            return self._taken(op, op.blocks[0])
        return self._taken(op, op.blocks[1]) if len(op.blocks) > 1 else ()

    def _trial(self, block: Sequence[AssemblyOp]) -> Items:
        env, tiles, made = dict(self.env), dict(self.tiles), self.body.made
        items = self._items(block)
        self.env, self.tiles, self.body.made = env, tiles, made
        return items

    def _taken(self, op: AssemblyOp, block: Sequence[AssemblyOp]) -> Items:
        items = self._items(block)
        self._yielded(op.results, block)
        return items

    def _yielded(self, names: Sequence[str], block: Sequence[AssemblyOp]) -> list[Scalar]:
        values: list[Scalar] = []
        if block and block[-1].name == "scf.yield":
            values = [self.env.get(name) for name in block[-1].operands]
        for name, value in zip(names, values, strict=False):
            self.env[name] = value
        return values

    def _loop(self, op: AssemblyOp) -> Iterator[Repeat]:
        head, _, carried = op.text.partition("iter_args")
        variable, *bounds = re.findall(r"%[\w#]+", head)[:4]
        first, _, step = (self._number(name, decides=True) for name in bounds)
        span = self._distance(*bounds[:2])
        number = self.loops.setdefault(op.line, len(self.loops) + 1 + 1000 * (self.unit == "AIV"))
        pairs = re.findall(r"(%[\w#]+)\s*=\s*(%[\w#]+)", carried)
        for name, start in pairs:
            self.env[name] = self.env.get(start)
        turns = 1
        if span is None or not step:
            self.body.assumed[op.line] = "a loop whose turns are known at run time only: one is counted"
            first = None
        else:
            turns = max(0, -(-span // int(step)))
        site, block = self.body.place(op), op.blocks[0]
        if not turns:
            return
        if not pairs and (first is None or turns > 1):
            env = dict(self.env)
            self.env[variable] = None if first is None else _Turning(frozenset({number}))
            try:
                items = self._items(block)
            except _Unequal as unequal:
                if number not in unequal.loops:
                    raise
                self.env = env
            else:
                yield Repeat("range", number, 1, site, turns, items)
                return
        each = []
        for turn in range(turns):
            self.env[variable] = None if first is None else int(first) + turn * int(step or 1)
            each.append(self._items(block))
            for (name, _), value in zip(pairs, self._yielded((), block), strict=False):
                self.env[name] = value
        for result, (name, _) in zip(op.results, pairs, strict=False):
            self.env[result] = self.env[name]
        for items, equal in groupby(each):
            yield Repeat("range", number, 1, site, len(list(equal)), items)

    # --- scalars

    def _distance(self, first: str, last: str) -> int | None:
        """How far apart two numbers are, of which only that may be known: `%n` and `%n + 2`."""
        ends = []
        for name in (first, last):
            number = self._number(name, decides=True)
            ends.append(self.above.get(name, (name, 0)) if number is None else ("", int(number)))
        (one, start), (other, end) = ends
        return end - start if one == other else None

    def _number(self, name: str, decides: bool = False) -> int | float | None:
        """A number; where it `decides` something, loops that it turns with must go turn by turn."""
        if name.lstrip("-").isdecimal():
            return int(name)
        value = self.env.get(name)
        if isinstance(value, _Turning):
            if decides:
                raise _Unequal(value.loops)
            return None
        return value

    def _scalar(self, op: AssemblyOp) -> Scalar:
        kind = op.name.partition(".")[2]
        if kind == "constant":
            text = op.text.partition(":")[0].strip()
            if text in ("true", "false"):
                return int(text == "true")
            try:
                return int(text)
            except ValueError:
                return None
        given = [self.env.get(name) for name in op.operands]
        turning = frozenset(loop for one in given if isinstance(one, _Turning) for loop in one.loops)
        if any(one is None for one in given):
            if kind == "addi" and isinstance(given[1], int):
                base, more = self.above.get(op.operands[0], (op.operands[0], 0))
                self.above[op.results[0]] = base, more + given[1]
            return None
        if turning:
            return _Turning(turning)
        numbers = [one for one in given if isinstance(one, int | float)]
        if kind == "cmpi":
            return int(_COMPARE[op.text.partition(",")[0].strip()](*numbers[:2]))
        if kind == "select":
            return numbers[1] if numbers[0] else numbers[2]
        if kind in _ARITHMETIC:
            return _ARITHMETIC[kind](int(numbers[0]), int(numbers[1]))
        return numbers[0] if len(numbers) == 1 else None  # a cast

    # --- ops

    def _op(self, op: AssemblyOp) -> Iterator[Instruction]:
        name = op.name.partition(".")[2]
        if not op.name.startswith("pto."):
            if op.results:
                self.env[op.results[0]] = self._scalar(op) if op.name.startswith("arith.") else None
            return
        if self._names(op, name):
            return
        for one in self._instructions(op, name):
            self.body.count()
            yield one._replace(unit=self.unit)

    def _names(self, op: AssemblyOp, name: str) -> bool:
        """Ops that only name something."""
        if name == "alloc_tile":
            self._allocate(op)
        elif name == "make_tensor_view":
            self.tensors[op.results[0]] = _TensorBox(
                self.pointers.get(op.operands[0], -1),
                tuple(self.env.get(one) for one in op.values_of("shape")),
                tuple(self.env.get(one) for one in op.values_of("strides")),
            )
        elif name == "partition_view":
            whole = self.tensors.get(op.operands[0], _TensorBox(-1, (), ()))
            self.tensors[op.results[0]] = whole._replace(shape=self._box(op))
        elif name == "addptr":
            self.pointers[op.results[0]] = self.pointers.get(op.operands[0], -1)
        elif name in ("subview", "treshape"):
            self._window(op)
        elif op.name == "pto.set_validshape":
            tile = self.tiles.get(op.operands[0])
            if tile is not None:
                rows, columns = (self._number(one) for one in op.operands[1:3])
                valid = (
                    tile.valid[0] if rows is None else int(rows),
                    tile.valid[1] if columns is None else int(columns),
                )
                self.tiles[op.operands[0]] = replace(tile, valid=valid)
        elif name == "reserve_buffer":
            self._reserve(op)
        elif name.endswith("_initialize_pipe"):
            self._ring(op)
        elif name in FREE or not known_op(op.name) or name.startswith("get_"):
            peer = re.search(r"\bpeer_func\s*=\s*@([\w$.]+)", op.text)
            if peer and all(one.name != peer[1] for one in self.body.file.functions):
                self.body.assumed[op.line] = f"{peer[1]}, which it shares a ring with, is not in the file"
            for result in op.results:
                self.env[result] = 0 if op.name in ("pto.get_block_idx", "pto.get_subblock_idx") else None
        else:
            return False
        return True

    def _box(self, op: AssemblyOp) -> tuple[Scalar, ...]:
        """The sizes of a box: as given, as its type says them where run-time data decides."""
        typed = re.findall(r"partition_tensor_view<([\dx?]+)x", op.text)
        static = typed[-1].split("x") if typed else []
        sizes = op.values_of("sizes")
        found: list[Scalar] = []
        for n, one in enumerate(sizes):
            value = self._number(one, decides=n >= len(static) or static[n] == "?")
            found.append(int(static[n]) if value is None and n < len(static) and static[n].isdecimal() else value)
        return tuple(found)

    def _allocate(self, op: AssemblyOp) -> None:
        buffer = op.tile
        if buffer is None:
            raise BadInput("an alloc_tile without a tile's type", path=self.body.file.path, line=op.line)
        said = op.value_of("addr")
        address = None if said is None else self._number(said)
        whole = buffer.rows, buffer.columns
        valid = []
        for n, key in enumerate(("valid_row", "valid_col")):
            given = op.value_of(key)
            number = buffer.valid[n] if given is None else self._number(given)
            valid.append(whole[n] if number is None else int(number))
        self.tiles[op.results[0]] = TileName(
            op.results[0], buffer, None if address is None else int(address), (valid[0], valid[1]), op.line, op.source,
            bytes_of(buffer), buffer.columns,
        )  # fmt: skip

    def _window(self, op: AssemblyOp) -> None:
        """Another name for bytes of a tile: a window of it, or all of them in another shape."""
        whole = self.tiles.get(op.operands[0])
        buffer = op.tile
        if whole is None or buffer is None or not op.results:
            return
        address, size, stride, somewhere = whole.address, whole.size, buffer.columns, whole.somewhere
        inside = re.search(r"\[([^\]]*)\]", op.text)
        if inside and op.name.endswith("subview"):
            stride = whole.stride
            at = [self._number(name) for name in re.findall(r"%[\w#]+", inside[1])]
            row, column = ([*at, 0, 0])[:2]
            if row is None or column is None:
                somewhere = True
            elif address is not None:
                address += (int(row) * stride + int(column)) * size_of(buffer.dtype)
                size = ((buffer.rows - 1) * stride + buffer.columns) * size_of(buffer.dtype)
        shape = buffer.rows, buffer.columns
        root = whole.root or whole.name
        self.tiles[op.results[0]] = TileName(
            op.results[0], buffer, address, shape, op.line, op.source, size, stride, whole.in_ring, root, somewhere
        )

    def _reserve(self, op: AssemblyOp) -> None:
        size, base = int(op.value_of("size") or 0), op.value_of("base")
        space = re.search(r"address_space<(\w+)>", op.text)
        place = SPACES.get(space[1], space[1]) if space else "Vec"
        self.body.tiles.reserved[place] = max(self.body.tiles.reserved.get(place, 0), int(base or 0) + size)
        if base is None:  # the assembler finds a place for it, beside the tiles
            key = place, self.unit
            self.body.tiles.ends[key] = self.body.tiles.ends.get(key, 0) + size
        way: RingWay = "C2V" if place == "Vec" else "V2C"
        self.body.rings[way] = Ring(way, place, size, 1)

    def _ring(self, op: AssemblyOp) -> None:
        slot = int(op.value_of("slot_size") or 0)
        for way, ring in self.body.rings.items():
            if slot:
                self.body.rings[way] = replace(ring, slot=slot, slots=max(1, ring.bytes // slot))

    # --- instructions

    def _instructions(self, op: AssemblyOp, name: str) -> Iterator[Instruction]:
        site = self.body.place(op)
        if name == "tload":
            target = self._out(op)
            accesses = self._accesses(op.inputs, "read", op, self.tiles[op.outputs[0]])
            yield Instruction(LOAD.name, "load", site, (), target, (), accesses, pipe="MTE2")
        elif name == "tstore":
            yield self._store(op, site)
        elif name in PUSHES:
            way, _ = PUSHES[name]
            pipe: Pipe = "FIXP" if way == "C2V" else "MTE3"
            source = self._tile(op.operands[0])
            yield Instruction(PUSH.name, PUSH.plane, site, (source,), attributes=(("way", way),), pipe=pipe)
        elif name in POPS:
            yield self._pop(op, name, site)
        elif name in MOVES:
            yield self._move(op, site)
        elif name in PRODUCTS:
            yield self._product(op, PRODUCTS[name], site)
        elif name in VECTOR:
            yield self._vector(op, VECTOR[name], site)
        else:
            yield self._scalar_access(op, name, site)

    def _tile(self, name: str) -> int | None:
        tile = self.tiles.get(name)
        return None if tile is None else self.body.tiles.value(tile, self.unit, self.body.place(tile))

    def _out(self, op: AssemblyOp) -> int:
        found = self._tile(op.outputs[0]) if op.outputs else None
        if found is None:
            what = op.outputs[0] if op.outputs else "outs(…)"
            raise BadInput(f"{op.name} writes {what}, which is no tile", path=self.body.file.path, line=op.line)
        return found

    def _accesses(
        self, names: Sequence[str], mode: AccessMode, op: AssemblyOp, tile: TileName | None
    ) -> tuple[Access, ...]:
        """Boxes of GM; where only run time knows an extent, that of the whole `tile`."""
        whole = (tile.buffer.rows, tile.buffer.columns) if tile else (1, 1)
        found = []
        for name in names:
            tensor = self.tensors.get(name)
            if tensor is None:
                continue
            most = (*(1,) * len(tensor.shape), *whole)[2:]
            shape = tuple(one if isinstance(one, int) else full for one, full in zip(tensor.shape, most, strict=True))
            if shape != tensor.shape:
                self.body.bounded[op.line] = "the size of a box is known at run time only: its whole tile is counted"
            strides = [one if isinstance(one, int) else 0 for one in tensor.strides]
            for n in reversed(range(len(shape))):  # side by side where only run time knows
                if n < len(strides) and not strides[n]:
                    strides[n] = strides[n + 1] * shape[n + 1] if n + 1 < len(shape) else 1
            found.append(Access(max(tensor.argument, 0), mode, shape, tuple(strides[: len(shape)])))
        return tuple(found)

    def _store(self, op: AssemblyOp, site: int) -> Instruction:
        source = self._tile(op.inputs[0])
        mode: AccessMode = "add" if "atomic_add" in op.text else "write"
        accesses = self._accesses(op.outputs, mode, op, self.tiles.get(op.inputs[0]))
        in_acc = source is not None and self.body.tiles.values[source].space == "Acc"
        pipe: Pipe = "FIXP" if in_acc else "MTE3"
        return Instruction(STORE.name, "store", site, (source,), None, (), accesses, pipe=pipe)

    def _pop(self, op: AssemblyOp, name: str, site: int) -> Instruction:
        buffer = op.tile
        if buffer is None:
            raise BadInput(f"a {name} without a tile's type", path=self.body.file.path, line=op.line)
        result = op.results[0]
        shape = buffer.rows, buffer.columns
        self.tiles[result] = TileName(
            result, buffer, None, shape, op.line, op.source, bytes_of(buffer), buffer.columns, in_ring=True
        )
        return Instruction(
            POP.name, POP.plane, site, (), self._tile(result), attributes=(("way", POPS[name][0]),), pipe="MTE2"
        )

    def _move(self, op: AssemblyOp, site: int) -> Instruction:
        source, target = self._tile(op.inputs[0]), self._out(op)
        spaces = "" if source is None else self.body.tiles.values[source].space, self.body.tiles.values[target].space
        pipe: Pipe = "MTE1"
        if spaces[0] == "Acc":
            pipe = "FIXP"
        elif spaces[0] == "Vec":
            pipe = "V" if spaces[1] == "Vec" else "MTE3"
        return Instruction(MOVE.name, MOVE.plane, site, (source,), target, pipe=pipe)

    def _product(self, op: AssemblyOp, spec: OpSpec, site: int) -> Instruction:
        given = tuple(self._tile(name) for name in op.inputs)
        operands = given if spec is MATMUL_ACC else (None, *given)
        left, right = (self.body.tiles.values[number].shape for number in operands[1:3] if number is not None)
        flops = 2 * left[0] * left[1] * right[1]
        return Instruction(spec.name, spec.plane, site, operands, self._out(op), flops=flops, pipe="M")

    def _vector(self, op: AssemblyOp, spec: OpSpec, site: int) -> Instruction:
        given = [self._tile(name) for name in op.inputs]
        scratch: tuple[int, ...] = ()
        extra = 3 if spec.form == "custom" and spec is not TRANSPOSE else 1
        if spec.scratch and len(given) > extra and given[-1] is not None:
            scratch, given = (given[-1],), given[:-1]
        return Instruction(spec.name, "vector", site, tuple(given), self._out(op), scratch, pipe="V")

    def _scalar_access(self, op: AssemblyOp, name: str, site: int) -> Instruction:
        for result in op.results:
            self.env[result] = None
        if op.name == "pto.syncall":
            return Instruction(SYNCALL.name, SYNCALL.plane, site, pipe="S")
        if name == "comm.tput":
            tensors = [one for one in op.operands if one in self.tensors]
            accesses = self._accesses(tensors[:1], "write", op, None)
            return Instruction(PUT.name, "store", site, (), None, (), accesses, pipe="MTE3")
        if name == "comm.tnotify":
            return Instruction(NOTIFY.name, NOTIFY.plane, site, pipe="S")
        if name == "comm.twait":
            return Instruction(WAIT.name, WAIT.plane, site, pipe="S")
        tiles = tuple(self._tile(one) for one in op.inputs if one in self.tiles)
        if name in ("load_scalar", "tgetval", "local_array_get"):
            far = name == "load_scalar"
            accesses = (Access(max(self.pointers.get(op.operands[0], 0), 0), "read", (1,), (1,)),) if far else ()
            return Instruction(READ.name, READ.plane, site, tiles, None, (), accesses, pipe="S")
        target = self._tile(op.outputs[0]) if op.outputs else None
        return Instruction(WRITE.name, WRITE.plane, site, tiles, target, pipe="S")
