"""What is said of the compiler's assembly where a build folder is given: how much of it is used, and what differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from npuscope.lower.build_folder import differences
from npuscope.lower.program import Program
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, TEXT, many
from npuscope.table.parts import Heading, Notes, Part, Rows
from npuscope.tile.record.model import short_name

DIFFERENCES = Columns(
    "simulate.lowering",
    "What the compiler's assembly and npuscope's own lowering of a kernel do not agree on, of one block.",
    Column("kernel", TEXT, "which kernel"),
    Column("what", TEXT, "what is counted, all turns of its loops"),
    Column("compiler", COUNT, "in the compiler's assembly"),
    Column("npuscope", COUNT, "in npuscope's lowering"),
)
ROWS = 12


def difference_table(program: Program) -> Table:
    return DIFFERENCES.table((short_name(one.kernel), *one[1:]) for one in differences(program))


def beside_build(program: Program, folder: str, wide: bool = False) -> Iterator[Part]:
    """What --build adds: which kernels are timed as they were compiled, what that changes, what is not known."""
    kernels = dict.fromkeys(short_name(task.kernel) for task in program.recording.tasks if task.groups)
    compiled = {short_name(key[0]): one for key, one in program.assemblies.items()}
    timed = [name for name, one in compiled.items() if not one.assumed]
    yield Heading(f"{_name(folder)}: {many(len(timed), 'kernel')} of {len(kernels)} timed as they were compiled")
    notes = _listed("no .pto, so npuscope's lowering stands in", [name for name in kernels if name not in compiled])
    notes += _listed(
        "run-time data decides what it does, so npuscope's own run of it stands in",
        [name for name, one in compiled.items() if one.assumed],
    )
    yield Notes([*notes, *program.assembly_notes])
    table = difference_table(program)
    if table.frame.height:
        yield Rows(table, table.frame.height if wide else ROWS, wide=wide)
    else:
        yield Notes(["npuscope's lowering agrees with all of them: instructions, bytes, products, memory"])


def _name(folder: str) -> str:
    return Path(folder).name or folder


def _listed(why: str, names: Sequence[str]) -> list[str]:
    return [f"{why}: {', '.join(names)}"] if names else []
