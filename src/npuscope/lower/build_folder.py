"""A folder that the compiler left behind: every kernel's assembly, by itself or beside the program that it is of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npuscope.base.errors import BadInput
from npuscope.chip.devices import Device
from npuscope.lower.assembly_body import Assembly, assembly_of
from npuscope.lower.assembly_text import AssemblyFile, read_assembly
from npuscope.lower.chip import matrix, up
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, rewritten
from npuscope.lower.program import PlannedBody, PlannedKey, Program, planned_key
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import Access, BlockGroup, Body, Recording, Site, Task, short_name
from npuscope.tile.record.walk import accesses_of

ENDING = ".pto"
HOW_TO_GET_IT = (
    "PyPTO writes ptoas/KERNEL.pto below the folder that it builds in: compile with output_dir='FOLDER', or set "
    "PYPTO_PROG_BUILD_DIR, and name that folder; where it is older than ptoas/, compile again."
)


@dataclass(frozen=True)
class BuildFolder:
    """`kernels`: every kernel's assembly by its name."""

    path: Path
    kernels: Mapping[str, AssemblyFile]


def is_build(path: str) -> bool:
    """Whether a path is not a program but what a compiler made of one."""
    return Path(path).is_dir() or path.endswith(ENDING)


def read_build(path: str) -> BuildFolder:
    """A folder with `.pto` files anywhere below it, or one such file."""
    folder = Path(path)
    if not folder.exists():
        raise BadInput("is not there", path=path, remedy=HOW_TO_GET_IT)
    files = sorted(folder.rglob(f"*{ENDING}")) if folder.is_dir() else [folder]
    if not files:
        raise BadInput(f"has no {ENDING} file, so what the compiler made is not known", path=path, remedy=HOW_TO_GET_IT)
    kernels: dict[str, AssemblyFile] = {}
    for file in files:
        name = file.stem if file.stem not in kernels else str(file.relative_to(folder).with_suffix(""))
        kernels[name] = read_assembly(file)
    return BuildFolder(folder, kernels)


# --- by itself


def build_program(build: BuildFolder, device: Device) -> Program:
    """The kernels of a folder as a program that runs each once, in the order of their names."""
    sites = _Sites(())
    found = [
        (name, sites.located(replace(one, kernel=name)))
        for name, one in ((name, assembly_of(file, device)) for name, file in build.kernels.items())
    ]
    tasks = tuple(_task(number, name, one) for number, (name, one) in enumerate(found))
    bodies = tuple(Body((), ()) for _ in found)
    recording = Recording(build.path.name or str(build.path), "shapes", sites.all, (), bodies, tasks)
    keys = (planned_key(task, task.id) for task in tasks)
    assemblies = {key: one for key, (_, one) in zip(keys, found, strict=True)}
    program = Program(recording, device, assemblies=assemblies)
    program.__dict__["planned"] = program.compiled  # nothing of it is lowered here
    return program


def _task(number: int, name: str, one: Assembly) -> Task:
    group = BlockGroup(number, np.zeros(1, np.int64), ())
    return Task(number, name, one.lowered.sites[0], one.core, 1, (group,), (), (), (), "call")


# --- beside its program


def with_build(program: Program, build: BuildFolder) -> Program:
    """The program with the compiler's assembly of its kernels; kernels that the folder has not stay as they are."""
    recording = program.recording
    sites = _Sites(recording.sites)
    found: dict[PlannedKey, Assembly] = {}
    for task in recording.tasks:
        file = _file_of(short_name(task.kernel), build)
        for group in task.groups if file else ():
            if (key := planned_key(task, group.body)) not in found and file is not None:
                scalars = {"__pypto_spmd_block_idx": int(group.blocks[0]), "__pypto_spmd_block_num": task.blocks}
                one = _with_arguments(assembly_of(file, program.device, scalars), recording.bodies[group.body])
                found[key] = sites.located(replace(one, kernel=task.kernel))
    return replace(program, recording=replace(recording, sites=sites.all), assemblies=found)


def _file_of(kernel: str, build: BuildFolder) -> AssemblyFile | None:
    """A kernel at several places of a program has a number behind its name; one for both cores may be two files."""
    alike = [name for name in build.kernels if Path(name).name == kernel]
    if any(build.kernels[name].functions != build.kernels[alike[0]].functions for name in alike):
        files = " and ".join(f"{build.kernels[name].path.relative_to(build.path)}" for name in alike)
        raise BadInput(
            f"has other kernels of one name: {files}", path=build.path, remedy="Name the folder of one build."
        )
    whole = build.kernels.get(kernel) or build.kernels.get(f"{kernel}_0")
    halves = [build.kernels[name] for name in (f"{kernel}_aic", f"{kernel}_aiv") if name in build.kernels]
    if whole is not None or not halves:
        return whole
    return replace(halves[0], functions=tuple(function for half in halves for function in half.functions))


def _with_arguments(one: Assembly, body: Body) -> Assembly:
    """With the task's numbers of tensors in place of the assembly's, which has others: by the boxes that are moved."""
    own = _boxes(access for _, access, _ in accesses_of(body))
    numbers: dict[int, int] = {}
    for argument, boxes in _boxes(access for item in one.lowered.instructions for access in item.accesses).items():
        alike = (number for number, others in own.items() if others & boxes and number not in numbers.values())
        numbers[argument] = next(alike, len(own) + argument)  # one that the program does not have

    def each(item: Instruction) -> tuple[Instruction]:
        accesses = tuple(access._replace(argument=numbers[access.argument]) for access in item.accesses)
        return (item._replace(accesses=accesses),)

    return replace(one, lowered=replace(one.lowered, items=rewritten(one.lowered.items, each)))


def _boxes(accesses: Iterable[Access]) -> dict[int, set[tuple[object, ...]]]:
    """Of each argument what is moved of it: mode, extents and strides, axes of one element left out."""
    found: dict[int, set[tuple[object, ...]]] = defaultdict(set)
    for access in accesses:
        axes = tuple(axis for axis in zip(access.shape, access.strides, strict=True) if axis[0] > 1)
        found[access.argument].add((access.mode, *axes))
    return found


class _Sites:
    """A program's places, and those of assemblies: where one is a line of the program, the program's own."""

    def __init__(self, known: tuple[Site, ...]) -> None:
        self._sites = list(known)
        self._numbers: dict[tuple[str, int], int] = {}
        for number, site in enumerate(known):
            self._numbers.setdefault((Path(site.file).name, site.line), number)

    @property
    def all(self) -> tuple[Site, ...]:
        return tuple(self._sites)

    def located(self, one: Assembly) -> Assembly:
        """With the numbers of places in place of the assembly's own."""
        return replace(one, lowered=replace(one.lowered, sites=tuple(self._of(one))))

    def _of(self, one: Assembly) -> Iterator[int]:
        for file, line in one.places:
            key = Path(file).name, line  # the builder's path is another one than this machine's
            if key not in self._numbers:
                self._numbers[key] = len(self._sites)
                self._sites.append(Site(file, line, one.kernel))
            yield self._numbers[key]


# --- the compiler's work beside npuscope's

CUBE = 16  # rows and columns that the cube multiplies at once: fewer that are valid take as long


class Difference(NamedTuple):
    """One number of a kernel that the compiler and npuscope's lowering do not agree on."""

    kernel: str
    what: str
    compiler: int
    npuscope: int


def tally(body: PlannedBody) -> Counter[str]:
    """What a block of a body does, every turn counted: instructions per pipe, bytes through GM, products by size.

    A vector core's part of a body whose tiles are split is half of it.
    """
    found: Counter[str] = Counter()
    lowered = body.lowered

    def walk(items: Items, times: int) -> None:
        for item in items:
            if isinstance(item, Repeat):
                walk(item.items, times * (1 if item.kind == "split_aiv" else item.count))
            elif item.pipe is not None and item.plane != "sync":
                for what, number in _counted(item, lowered):
                    found[what] += number * times

    walk(lowered.items, 1)
    for space in body.plan:
        found[f"bytes of {space.space}"] = space.used
    return found


def _counted(one: Instruction, lowered: Lowered) -> Iterator[tuple[str, int]]:
    yield f"instructions of {one.unit} {one.pipe}", 1
    halves = 2 if lowered.split and one.unit == "AIV" else 1
    if one.accesses and one.plane in ("load", "store"):
        number = one.result if one.result is not None else next(iter(one.reads), None)
        size = 4 if number is None else BY_NAME[lowered.values[number].dtype].bytes
        moved = sum(prod(access.shape) for access in one.accesses) * size // halves
        yield f"bytes that the {one.unit} {'loads' if one.plane == 'load' else 'stores'}", moved
    if one.plane == "cube" and one.result is not None and one.operands[1] is not None:
        m, n = (up(extent, CUBE) for extent in matrix(lowered.values[one.result].shape))
        yield f"products of {m} x {matrix(lowered.values[one.operands[1]].shape)[1]} x {n}", 1


def differences(program: Program) -> tuple[Difference, ...]:
    """All that the two do not agree on, kernel by kernel; of a kernel's bodies the first."""
    found: dict[str, list[Difference]] = {}
    for key, one in program.compiled.items():
        if one.kernel in found or program.assemblies[key].assumed:
            continue
        compiler, own = tally(one), tally(program.planned[key])
        found[one.kernel] = [
            Difference(one.kernel, what, compiler[what], own[what])
            for what in sorted(compiler.keys() | own.keys())
            if compiler[what] != own[what]
        ]
    return tuple(difference for some in found.values() for difference in some)
