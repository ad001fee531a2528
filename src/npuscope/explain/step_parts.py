"""The parts of one call of the host, which add up to it: what the log says of it, and inside what the device did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from npuscope.base.frozen import dataclass
from npuscope.trace.readers.dispatches import DeviceTime
from npuscope.trace.readers.host_log import CHIP, DEVICE_WALL, LAUNCH, HostCall, HostSpan

WORDS = {
    "bind": "bind arguments and runtime image",
    "stage_inputs": "copy inputs",
    "prepare_execution": "prepare the launch",
    "runner_run": "launch until drained",
    "validate": "copy back and check",
    "claim_release": "release the slot",
}
REST = "between these"
WORKING, IDLE = "orchestration and scheduling", "nothing runs: handing out, idle"
CAPTURING = "capturing: from the collector's first line until drained"


@dataclass(frozen=True)
class StepPart:
    """A part of a step."""

    name: str
    level: int
    dur_ns: int


@dataclass(frozen=True)
class StepPiece:
    """A stretch with a name, and the parts inside it; `dur_ns` may be less where it is a sum."""

    name: str
    begin_ns: int
    end_ns: int
    inside: tuple[StepPart, ...] = ()  # levels from 0


def cut(pieces: Iterable[StepPiece], begin: int, end: int, level: int, rest: str = REST) -> list[StepPart]:
    """Pieces laid into a stretch one after the other, then what is left of it. What sticks out is cut, and the parts
    inside a piece that was cut are cut with it, the last ones first."""
    found, at, spent = [], begin, 0
    for piece in sorted(pieces, key=lambda one: (one.begin_ns, one.end_ns)):
        start, stop = max(piece.begin_ns, at), min(piece.end_ns, end)
        length = max(stop - start, 0)
        found.append(StepPart(piece.name, level, length))
        found += _shortened(piece.inside, length, level + 1)
        at, spent = max(at, stop), spent + length
    return [*found, StepPart(rest, level, end - begin - spent)] if found else []


def _shortened(parts: Sequence[StepPart], length: int, level: int) -> list[StepPart]:
    """Parts of one length under another: the difference comes off the last of each level, or is added as a rest."""
    outer = [n for n, part in enumerate(parts) if part.level == 0]
    if not outer:
        return []
    bounds = [*outer, len(parts)]
    blocks = [list(parts[a:b]) for a, b in pairwise(bounds)]
    over = sum(block[0].dur_ns for block in blocks) - length
    for block in reversed(blocks):
        off = min(max(over, 0), block[0].dur_ns)
        over -= off
        kept = block[0].dur_ns - off
        block[1:] = _shortened([StepPart(p.name, p.level - 1, p.dur_ns) for p in block[1:]], kept, 1)
        block[0] = StepPart(block[0].name, 0, kept)
    if over < 0:
        last = blocks[-1]
        if last[0].name == REST:
            last[0] = StepPart(REST, 0, last[0].dur_ns - over)
        else:
            blocks.append([StepPart(REST, 0, -over)])
    return [StepPart(part.name, part.level + level, part.dur_ns) for block in blocks for part in block]


def relative(parts: Sequence[StepPart], level: int) -> tuple[StepPart, ...]:
    return tuple(StepPart(part.name, part.level - level, part.dur_ns) for part in parts)


def parts_of(call: HostCall, device: DeviceTime | None = None, collected: Sequence[int] = ()) -> list[StepPart]:
    """The waterfall of a call, each level summing to the one above; a call that the log cuts off has none.

    `device`: what of its dispatch's time ran what; `collected`: when the collector took records over.
    """
    whole = call.whole
    if whole is None:
        return []
    pieces = []
    for span in call.children(CHIP):
        name = span.name.rpartition(".")[2]
        runs = name == "runner_run"
        inside = _runner_parts(call, span, device, collected) if runs else _segments(call, span)
        pieces.append(StepPiece(WORDS.get(name, name), span.start_ns, span.end_ns, tuple(inside)))
    rest = REST if call.is_complete else "bind, which the log lacks, and between these"
    return [StepPart("call", 0, whole.dur_ns), *cut(pieces, whole.start_ns, whole.end_ns, 1, rest)]


def _segments(call: HostCall, around: HostSpan) -> list[StepPart]:
    """What is right below a span on its own thread, equal names together: levels from 0, the rest last."""
    below = [one for one in call.below(around.name) if one.tid == around.tid]
    named: dict[str, list[HostSpan]] = {}
    for one in below:
        named.setdefault(one.name, []).append(one)
    found: list[StepPart] = []
    at, spent = around.start_ns, 0
    for spans in sorted(named.values(), key=lambda those: those[0].start_ns):
        length = 0
        for one in sorted(spans, key=lambda one: one.start_ns):
            start, stop = max(one.start_ns, at), min(one.end_ns, around.end_ns)
            length += max(stop - start, 0)
            at = max(at, stop)
        spent += length
        found.append(StepPart(spans[0].name.rpartition(".")[2], 0, length))
    return [*found, StepPart(REST, 0, around.dur_ns - spent)] if found else []


def _runner_parts(
    call: HostCall, around: HostSpan, device: DeviceTime | None, collected: Sequence[int]
) -> list[StepPart]:
    """From the launch until all is drained: the device's wall, what capturing takes, launch and drain around them."""
    wall = call.by_name.get(DEVICE_WALL)
    if wall is None or wall.dur_ns > around.dur_ns:
        return []
    found = [StepPart("device", 0, wall.dur_ns), *_device_parts(call, wall, device)]
    rest = around.dur_ns - wall.dur_ns
    point = call.by_name.get(LAUNCH)
    enqueue = 0 if point is None else min(max(point.start_ns - around.start_ns, 0), rest)
    # the device cannot have ended earlier than its wall after the launch; what the collector does comes after
    ended = around.start_ns + enqueue + wall.dur_ns
    lines = [ns for ns in collected if ended <= ns <= around.end_ns]
    capturing = min(around.end_ns - min(lines), rest - enqueue) if lines else 0
    if enqueue:
        found.insert(0, StepPart("until the launch", 0, enqueue))
    if capturing:
        found.append(StepPart(CAPTURING, 0, capturing))
    around_it = "launch and drain" if lines else "around the device: launch, drain, capturing"
    return [*found, StepPart(around_it, 0, rest - enqueue - capturing)]


def _device_parts(call: HostCall, wall: HostSpan, device: DeviceTime | None) -> list[StepPart]:
    """The phases of the device, levels from 1."""
    phases = {span.name.rpartition(".")[2]: span for span in call.children(DEVICE_WALL)}
    build = phases.get("graph_build")
    work = [phases[name] for name in ("orch", "sched") if name in phases]
    if build is None or not work:
        met = ran_parts(device, wall.dur_ns)
        return [StepPart(part.name, 1, part.dur_ns) for part in met]
    began, ended = min(one.start_ns for one in work), max(one.end_ns for one in work)
    after = phases.get("post_orch")
    last = build.end_ns if after is None else after.start_ns
    ran = ran_parts(device, max(min(ended, wall.dur_ns) - max(began, build.start_ns), 0))
    pieces = [
        StepPiece("threads start", 0, build.start_ns),
        StepPiece("runtime set up", build.start_ns, began),
        StepPiece(WORKING, began, ended, tuple(ran)),
        StepPiece("runtime torn down", ended, max(last, ended)),
        StepPiece("after orchestration", last, last if after is None else after.end_ns),
    ]
    return cut(pieces, 0, wall.dur_ns, 1)


def ran_parts(device: DeviceTime | None, length: int) -> list[StepPart]:
    """What of the device's time runs what, levels from 0; what its records span must fit."""
    if device is None:
        return []
    rows = [
        ("waiting for later ranks", device.wait_ns),
        ("collective itself", device.cost_ns),
        ("computing", device.compute_ns),
    ]
    rest = length - sum(ns for _, ns in rows)
    if rest < 0:  # the records are of more than the phases: nothing can be said of their parts
        return []
    return [*(StepPart(name, 0, ns) for name, ns in rows), StepPart(IDLE, 0, rest)]
