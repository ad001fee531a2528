"""Loops of a kernel: `pl.range` that loads ahead as a `pl.pipeline`, and back where its buffers do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from npuscope.check.fixes.fix import NewText, Unmended, fix
from npuscope.check.fixes.tree import Source, call_with, called, keywords, options, renamed, values
from npuscope.check.rule import Finding

STAGES = (2, 3, 4)


@fix("pipeline", "loops that load ahead", ("unpipelined-k",))
def _pipeline(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        loop = source.statement_at(finding.line)
        if not isinstance(loop, cst.For) or called(loop.iter) not in ("range", "parallel"):
            yield Unmended(finding, "its line is no pl.range loop")
            continue
        for stage in STAGES[:2]:
            yield NewText(_with_stage(source, loop, stage), f"load {stage - 1} ahead", (finding,))


def _with_stage(source: Source, loop: cst.For, stage: int) -> str:
    assert isinstance(loop.iter, cst.Call)
    kept = options(loop.iter, "chunk", "stage")
    name = "pipeline" if stage > 1 else "range"
    more = {"stage": cst.Integer(str(stage))} if stage > 1 else {}
    return source.edited([], {loop.iter: call_with(renamed(loop.iter, name), values(loop.iter), {**kept, **more})})


@fix("shallower", "pipelines that fit", ("buffer-overflow", "pipeline-depth"))
def _shallower(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        loops = {loop for line in source.lines_of(finding) for loop in _pipelines(source, line, finding.function)}
        if not loops:
            yield Unmended(finding, "no pl.pipeline of its kernel could be shallower")
        for loop in sorted(loops, key=source.line):
            assert isinstance(loop.iter, cst.Call)
            stage = keywords(loop.iter).get("stage")
            deep = int(stage.value.value) if stage is not None and isinstance(stage.value, cst.Integer) else 2
            for fewer in range(deep - 1, 0, -1):
                title = f"load {fewer - 1} ahead" if fewer > 1 else "load nothing ahead"
                yield NewText(_with_stage(source, loop, fewer), title, (finding,))


def _pipelines(source: Source, line: int, function: str) -> Iterator[cst.For]:
    """The pipelines around a line or, of a whole kernel, in it."""
    around = source.around_line(line)
    own = [one for one in around if isinstance(one, cst.For) and called(one.iter) == "pipeline"]
    inside = [one for one in source.statements if isinstance(one, cst.For) and called(one.iter) == "pipeline"]
    scope = next((one for one in around if isinstance(one, cst.With | cst.For)), None)
    yield from own or (one for one in inside if scope is not None and scope in source.around(one))
