"""What the official PyPTO's compiler says of a run: program.json (its functions) and dyn_topo.txt (its task graph).

A leaf is a function that one core runs; a root calls leaves. Tasks name their leaf by its hash, and by the call (root
hash, opmagic) whose label the user gave. What a leaf computes, moves and holds is added up from its operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from npuscope.base.errors import BadInput
from npuscope.base.frozen import dataclass
from npuscope.trace.source import WHOLE, read_all, read_json

LEAF = 3  # graphtype
# bytes of an element, by the compiler's number of its type (framework/include/tilefwk/data_type.h of hicann/pypto)
WIDTHS = dict(enumerate((0.5, 1, 2, 4, 8, 1, 2, 4, 2, 0.5, 1, 1, 2, 4, 8, 1, 8, 1, 1, 1, 1, 1, 0.5, 0.5)))
ARITHMETIC = {1: "int8", 5: "fp8", 6: "fp16", 7: "fp32", 8: "bf16", 17: "fp8", 18: "fp8"}  # as devices name it
MEMORIES = {0: "UB", 1: "L1", 2: "L0A", 3: "L0B", 4: "L0C"}
NO_WORK = ("SYNC_", "PHASE", "BAR.", "CV_SYNC", "NOP")  # operations that order others
CUBE = "A_MUL"


class _Tensor(msgspec.Struct):  # versions differ in what is null or left out: nothing of it is needed to name a task
    magic: Any = -1
    shape: Any = None
    rawtensor: Any = -1
    mem_type: Any = None
    mem_range: Any = None


class _RawTensor(msgspec.Struct):
    rawmagic: Any = -1
    datatype: Any = -1


class _Operation(msgspec.Struct):
    opcode: Any = ""
    opmagic: Any = -1
    file: Any = None
    line: Any = None
    ioperands: Any = None
    ooperands: Any = None
    semantic_label: Any = None
    tile: Any = None


class _Function(msgspec.Struct):
    hash: Any = ""
    func_magicname: Any = ""
    graphtype: Any = -1
    operations: list[_Operation] | None = None
    tensors: list[_Tensor] | None = None
    rawtensors: list[_RawTensor] | None = None


class _Program(msgspec.Struct):
    functions: list[_Function]


@dataclass(frozen=True)
class Leaf:
    """One leaf: where it comes from and what a task of it does. Numbers are of one task; 0 where nothing is said."""

    name: str
    place: str  # file:line, or file:first-last
    ops: Mapping[str, int]  # opcode -> times
    cube_flops: int
    vector_elements: int
    bytes: int  # between global memory and the core
    memory: Mapping[str, int]  # buffer -> bytes held at most
    dtype: str | None  # of its products, else of what it computes first


class LeafProgram:
    """program.json, by what tasks name."""

    def __init__(self, path: Path) -> None:
        what = "a program.json of PyPTO (an object with a list of functions)"
        self._functions = read_json(path, _Program, what).functions
        self._by_hash = {str(one.hash): one for one in self._functions}
        self._leaves: dict[str, Leaf | None] = {}

    def leaf(self, hash: str) -> Leaf | None:
        """The function with this hash."""
        if hash not in self._leaves:
            self._leaves[hash] = _leaf(self._by_hash[hash]) if hash in self._by_hash else None
        return self._leaves[hash]

    @cached_property
    def labels(self) -> dict[tuple[str, int], str]:
        """What the user called each call of a root, where he did."""
        return {
            (str(root.hash), call.opmagic): label
            for root in self._functions
            for call in root.operations or ()
            if root.graphtype != LEAF and isinstance(call.opmagic, int) and (label := _label(call))
        }

    @cached_property
    def tiles(self) -> dict[str, dict[str, str]]:
        """The tile shapes that were set, by label or leaf: cube and vec, as the program has them."""
        tiles: dict[str, dict[str, str]] = {}
        for one in self._functions:
            for op in (one.operations or ()) if one.graphtype == LEAF else ():
                for kind, sizes in (op.tile if isinstance(op.tile, dict) else {}).items():
                    if kind in ("cube", "vec") and isinstance(sizes, list) and any(sizes):
                        tiles.setdefault(_label(op) or str(one.func_magicname), {})[kind] = "×".join(
                            str(n) for n in sizes if n
                        )
        return tiles


def _label(op: _Operation) -> str:
    """An operation's label, in either way it is written."""
    found = op.semantic_label
    return str(found.get("label", "")) if isinstance(found, dict) else found if isinstance(found, str) else ""


def _leaf(function: _Function) -> Leaf:
    kinds = {raw.rawmagic: raw.datatype for raw in function.rawtensors or () if isinstance(raw.rawmagic, int)}
    tensors = {tensor.magic: tensor for tensor in function.tensors or () if isinstance(tensor.magic, int)}
    ops = [op for op in function.operations or () if not str(op.opcode).startswith(NO_WORK)]
    flops = elements = moved = 0
    dtypes: dict[bool, str | None] = {}  # of products, and of the rest

    def kind(tensor: _Tensor) -> int:
        found = kinds.get(tensor.rawtensor, -1) if isinstance(tensor.rawtensor, int) else -1
        return found if isinstance(found, int) else -1

    for op in ops:
        name = str(op.opcode)
        ins, outs = ([tensors[m] for m in _magics(side) if m in tensors] for side in (op.ioperands, op.ooperands))
        if name.startswith(CUBE) and ins and outs:
            dtypes.setdefault(True, ARITHMETIC.get(kind(ins[0])))
            rows = ins[0].shape[0] if _elements(ins[0]) else 0
            flops += 2 * _elements(outs[0]) * (_elements(ins[0]) // rows if isinstance(rows, int) and rows > 0 else 0)
        elif "COPY_IN" in name or "COPY_OUT" in name:
            inside = outs if "COPY_IN" in name else ins  # the tile, not the whole tensor that it is a part of
            moved += sum(round(_elements(one) * WIDTHS.get(kind(one), 0)) for one in inside[:1])
        elif not name.startswith("L1_TO") and outs:
            dtypes.setdefault(False, ARITHMETIC.get(kind(outs[0])))
            elements += _elements(outs[0])
    return Leaf(
        str(function.func_magicname),
        _place(op for op in ops if "COPY" not in str(op.opcode)) or _place(ops),
        Counter(str(op.opcode) for op in ops),
        flops,
        elements,
        moved,
        _memory(function.tensors or []),
        dtypes.get(bool(flops)),
    )


def _magics(operands: Any) -> list[int]:
    """The tensors that an operation names, by themselves or first in a list."""
    named = operands if isinstance(operands, list) else []
    first = [one[0] if isinstance(one, list) and one else one for one in named]
    return [one for one in first if isinstance(one, int)]


def _elements(tensor: _Tensor) -> int:
    shape = tensor.shape if isinstance(tensor.shape, list) else []
    return prod(shape) if shape and all(isinstance(n, int) and n > 0 for n in shape) else 0


def _place(ops: Iterable[_Operation]) -> str:
    lines: dict[str, list[int]] = {}
    for op in ops:
        if isinstance(op.file, str) and isinstance(op.line, int) and op.file and op.line > 0:
            lines.setdefault(op.file, []).append(op.line)
    if not lines:
        return ""
    file = max(lines, key=lambda name: len(lines[name]))
    first, last = min(lines[file]), max(lines[file])
    return f"{file.rpartition('/')[2]}:{first}" + (f"-{last}" if last > first else "")


def _memory(tensors: list[_Tensor]) -> dict[str, int]:
    held: dict[str, int] = {}
    for tensor in tensors:
        kind, reach = tensor.mem_type, tensor.mem_range
        number = kind.get("asis") if isinstance(kind, dict) else None
        name = MEMORIES.get(number) if isinstance(number, int) else None
        if name is not None and isinstance(reach, list) and len(reach) == 2 and isinstance(reach[1], int):
            held[name] = max(held.get(name, 0), reach[1])
    return {name: size for name, size in held.items() if size > 0}


class GraphTask(NamedTuple):
    """One row of dyn_topo.txt."""

    task: int
    root: str
    opmagic: int
    leaf: str
    core_type: int
    successors: tuple[int, ...]


def task_id(sequence: int, number: int) -> int:
    """The key of a task: numbers of 32 bits repeat from one stitched graph to the next, larger ones do not."""
    return number if number >= 2**32 else (sequence << 32) | number


COLUMNS = ("seqNo", "taskId", "rootHash", "opmagic", "leafHash", "coreType")
OLD_HEADER = "seqNo,taskId,rootIndex,rootHash,opmagic,leafIndex,leafHash,coreType,psgId,successors"


def read_graph(path: Path) -> list[GraphTask]:
    """dyn_topo.txt. What stands before the successors is named by the header, which grew over the versions."""
    tasks = []
    header = OLD_HEADER.split(",")
    for number, line in enumerate(read_all(path).decode(errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        if line[0].isalpha():
            header = [name.strip() for name in line.strip().split(",")]
            if missing := [name for name in COLUMNS if name not in header]:
                raise BadInput(f"no column {', '.join(missing)} in this task graph", path=path, line=number)
            continue
        fields = [field.strip() for field in line.split(",") if field.strip()]  # some versions leave one empty
        fixed = len(header) - (header[-1] == "successors")
        if len(fields) < fixed or not all(field.lstrip("-").isdecimal() for field in fields):
            raise BadInput(f"not {fixed} or more whole numbers", path=path, line=number)
        row = dict(zip(header, fields[:fixed], strict=False))
        sequence, task = int(row["seqNo"]), int(row["taskId"])
        successors = tuple(task_id(sequence, int(field)) for field in fields[fixed:])
        if not (0 <= sequence < 2**30 and 0 <= task < 2**62) or any(not 0 <= one < WHOLE for one in successors):
            raise BadInput("a task number that fits no 62 bits", path=path, line=number)
        root, leaf = row["rootHash"], row["leafHash"]
        tasks.append(
            GraphTask(task_id(sequence, task), root, int(row["opmagic"]), leaf, int(row["coreType"]), successors)
        )
    return tasks
