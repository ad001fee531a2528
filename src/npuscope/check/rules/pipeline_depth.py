"""Pipelines that are deeper on paper than in memory: fewer buffers fit than the loop has turns in flight."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.memory.usage import usages
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import Program


def check(program: Program) -> Iterator[Finding]:
    """One finding per function and space, about the largest tile that had to give up depth."""
    if not program.device.space:
        return
    for usage in usages(program.planned.values()):
        space = usage.space
        # Left, Right and Acc are filled as the compiler sees fit; what does not fit at all is an error of its own
        if space.space not in ("Mat", "Vec") or not space.shallow or not space.fits:
            continue
        worst = max(space.shallow, key=lambda one: one.value.bytes)
        site = program.site(worst.value.site)
        others = len(space.shallow) - 1
        beside = f", and {others} more tile{'s' if others > 1 else ''} likewise" if others else ""
        tile = f"{worst.value.name} {list(worst.value.shape)} {worst.value.dtype}"
        room = (space.limit - space.reserved) // worst.wanted
        yield RULE.at(
            site,
            f"{tile} has {worst.got} buffer{'s' if worst.got > 1 else ''} in {space.space} for {worst.wanted} turns in "
            f"flight{beside}: turns wait for each other",
            f"Make the tiles of a turn smaller (together at most {room:,} bytes of {space.space}), or ask for fewer "
            "stages.",
            kernel=usage.body.kernel,
            also=[program.site(one.value.site) for one in space.shallow if one.value.site != worst.value.site],
        )


RULE = Rule(
    "pipeline-depth",
    "hint",
    "a pipeline deeper than its buffers",
    "A stage without a buffer of its own waits for the turn before; the loop runs as if it had fewer stages.",
    check,
    Example(
        "for k0 in pl.pipeline(0, K, 512, stage=4):  # four tiles of 192 KiB in 512 KiB of Mat",
        "for k0 in pl.pipeline(0, K, 512, stage=2):",
    ),
)
