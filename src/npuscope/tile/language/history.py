"""The language through its months: spellings that programs since spring 2026 have and today's PyPTO lacks.

Read by the rewriter (keywords that got another name), by the namespace (names that did), by `npuscope check` (the rule
retired-spelling) and by the page of spellings. A spelling that changes which tasks run or how long they take does here
what the compiler of its day did (runtime.py), or is refused; it is never accepted without effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Effect = Literal["name", "tasks", "time"]  # only the name is another; it decides the tasks; it decides their time


@dataclass(frozen=True)
class Spelling:
    """One old spelling. `since` and `until` are months; before 2026-04 nobody wrote down when things began."""

    old: str
    now: str
    until: str
    change: str  # where PyPTO or its library removed it
    effect: Effect = "name"
    since: str = ""
    does: str = ""  # what npuscope makes of it, where that is more than the new name

    @property
    def matters(self) -> bool:
        """Whether somebody who reads a result should know: it decides tasks or time."""
        return self.effect != "name"


AUTO = "One task for every chunk of a pl.parallel(chunk=) loop, and one for each run of compute ops between them."
SPLIT = "Each vector core of a mixed task takes half of every tile."

HISTORY = (
    # --- scopes and loops in which the compiler drew the tasks
    Spelling("pl.incore()", "pl.at(level=)", "2026-06", "pypto#1819"),
    Spelling("pl.incore(split=)", "pl.at(optimizations=[pl.split()])", "2026-06", "pypto#1819", "time", does=SPLIT),
    Spelling("pl.auto_incore()", "pl.at and pl.spmd", "2026-06", "pypto#1819", "tasks", does=AUTO),
    Spelling("pl.at(split=)", "pl.at(optimizations=[pl.split()])", "2026-06", "pypto#1819", "time", "2026-04", SPLIT),
    Spelling("pl.at(optimization=)", "pl.at and pl.spmd", "2026-06", "pypto#1819", "tasks", "2026-04", AUTO),
    Spelling("pl.chunked_loop_optimizer", "pl.at and pl.spmd", "2026-06", "pypto#1819", "tasks", "2026-04", AUTO),
    Spelling("pl.auto_chunk", "pl.at and pl.spmd", "2026-06", "pypto#1895", "tasks", "2026-04", AUTO),
    Spelling(
        "pl.parallel(chunk=)", "pl.spmd", "2026-06", "pypto#1895", "tasks",
        does="In such a scope a task per so many turns; elsewhere nothing, as in its day.",
    ),
    Spelling(
        "pl.range(chunk=)", "pl.range()", "2026-06", "pypto#1895", "tasks",
        does="Nothing: chunks in order stayed in one task.",
    ),
    Spelling(
        "pl.unroll(chunk=)", "pl.unroll()", "2026-06", "pypto#1895", "tasks",
        does="Nothing: chunks in order stayed in one task.",
    ),
    Spelling(
        "pl.parallel(chunk_policy=)", "pl.spmd", "2026-06", "pypto#1895", "tasks", "2026-04",
        'The last chunk is shorter, under "guarded" and "leading_full" alike; loops nested in the latter are refused.',
    ),
    Spelling(
        "pl.range(unroll=)", "pl.pipeline(stage=)", "2026-04", "pypto#1040", "time", "2026-04",
        "Buffers for so many turns at once.",
    ),
    # --- keywords and names of ops
    Spelling("pl.load(valid_shapes=)", "pl.load(valid_shape=)", "2026-08", "pypto#2233"),
    Spelling("pl.load(transpose=)", "pl.move or b_trans=", "2026-06", "pypto", "time", does="Refused."),
    Spelling("pl.aic_gather(tile=)", "pl.aic_gather(x=)", "2026-07", "pypto"),
    Spelling("pl.aiv_shard(tile=)", "pl.aiv_shard(x=)", "2026-07", "pypto"),
    Spelling("pl.maxs", "pl.maximums", "2026-05", "pypto"),
    Spelling("pl.mins", "pl.minimums", "2026-05", "pypto"),
    Spelling("pl.tile.sum(axis=)", "pl.row_sum or pl.col_sum", "2026-07", "pypto#2056", does="By the axis."),
    Spelling("pl.tile.max(axis=)", "pl.row_max or pl.col_max", "2026-07", "pypto#2056", does="By the axis."),
    Spelling("pl.tile.min(axis=)", "pl.row_min or pl.col_min", "2026-07", "pypto#2056", does="By the axis."),
    # --- types and placement
    Spelling("pl.Tensor[…, pl.DN]", "pl.transpose_view", "2026-08", "pypto#2250", "time", does="Refused."),
    # --- the harness
    Spelling("pypto.runtime.run(tensor_specs=)", "golden.run(specs=)", "2026-04", "pypto-lib"),
    Spelling("golden.RunConfig", "golden.run(rtol=, atol=, compile_cfg=, runtime_cfg=)", "2026-05", "pypto-lib"),
    Spelling("golden.run(config=RunConfig)", "golden.run(config={…})", "2026-05", "pypto-lib"),
    Spelling("golden.run(tensor_specs=)", "golden.run(specs=)", "2026-05", "pypto-lib"),
    Spelling("golden.tensor_spec", "golden.spec", "2026-05", "pypto-lib"),
    Spelling("function._func", "function", "2026-08", "pypto"),
)  # fmt: skip

_KEYWORD = re.compile(r"pl\.(?:\w+\.)?(\w+)\((\w+)=\)")
_NAME = re.compile(r"pl\.(\w+)")


def renamed_keywords() -> dict[tuple[str, str], str]:
    """The keyword of today for a function of `pl` and an old keyword of it."""
    found = {}
    for spelling in HISTORY:
        old, now = _KEYWORD.fullmatch(spelling.old), _KEYWORD.fullmatch(spelling.now)
        if old and now and spelling.effect == "name" and old[1] == now[1]:
            found[old[1], old[2]] = now[2]
    return found


def renamed() -> dict[str, str]:
    """The name in `pl` of today for an old one."""
    found = {}
    for spelling in HISTORY:
        old, now = _NAME.fullmatch(spelling.old), _NAME.fullmatch(spelling.now)
        if old and now and spelling.effect == "name":
            found[old[1]] = now[1]
    return found


def spelling(old: str) -> Spelling:
    """The row of the table."""
    return next(one for one in HISTORY if one.old == old)


def note(old: str) -> str:
    """What a result says of a program that has it."""
    found = spelling(old)
    return f"{old} was removed in {found.until} ({found.change}); today: {found.now}. {found.does}".rstrip()
