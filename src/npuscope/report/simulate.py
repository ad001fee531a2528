"""A simulated run: how long, why, how sure, on top of a capture; and one block inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from npuscope.base.frozen import dataclass
from npuscope.check.rule import Finding
from npuscope.explain.diagnosis import Diagnosis
from npuscope.report.assembly import beside_build, difference_table
from npuscope.report.captures import BLOCKERS, KERNELS, WORTH_A_LINE, causes, headline
from npuscope.report.check import finding_lines
from npuscope.report.program import notice_table, noticed_lines
from npuscope.table.columns import Table, all_rows
from npuscope.table.formats import (
    change,
    duration,
    estimate_text,
    figures,
    interval_text,
    levels,
    many,
    rough_percent,
    times,
)
from npuscope.table.parts import Heading, Notes, Part, Rows, Say
from npuscope.table.text import aligned
from npuscope.tile.record.model import short_name
from npuscope.time.certainty import certainty_of
from npuscope.time.measured.base import CHANGED, MeasuredBase, MeasuredChange
from npuscope.time.per_line import per_kernel
from npuscope.time.ranks.result import RanksResult
from npuscope.time.uncertainty import basis_text

if TYPE_CHECKING:
    from npuscope.answer.prediction import Prediction
    from npuscope.time.chip.prepare import Peers
    from npuscope.time.inside import Inside
    from npuscope.time.ranks.together import RankRun
    from npuscope.time.reasons import Reasons

Section = tuple[str, Sequence[str], Sequence[Table]]  # of a page: title, sentences, tables
KERNEL_ROWS = 40  # rows of kernels beside a capture
NAMED = 6  # kernels of a sentence
RANK_ROWS = 16
FAR = 0.1  # of the measured wall
WAITS = 10  # rows of a block's waits
CHAIN, DEPENDS = 15, 3  # rows of what decides a block's time, and of the constants that it depends on
DRAWN = 80  # columns of the drawing of a block


@dataclass(frozen=True)
class BesideCapture:
    """The program before a change beside a capture of it (--measured); `change` is a prediction on top of the two."""

    program: str
    capture: str
    base: MeasuredBase
    change: MeasuredChange | None = None


def simulate(
    prediction: Prediction,
    anchored: BesideCapture | None = None,
    full: bool = True,
    wide: bool = False,
    rings: bool = False,
) -> Iterator[Part]:
    """What `npuscope simulate` prints; not in `full` only its times, before anything is known of findings."""
    simulated = prediction.simulated
    program = simulated.prepared.program
    how = "simulated" if anchored is None else "simulated on top of a capture"
    if program.device.timed_by_guesses:
        how += " with constants that are mostly guesses"
    under = f" under {program.device.scheduled_by}" if program.device.scheduled_by else ""
    name, ranks = program.recording.program, RanksResult(simulated.ranks) if simulated.ranks else None
    on = program.device.name if ranks is None else f"{len(ranks.rows)} ranks of {program.device.name}"
    if len(simulated.every) > 1:
        name = f"{len(simulated.every)} programs"
    counts = f"{many(simulated.tasks, 'task')}, {many(simulated.blocks, 'block')}"
    where = f"{prediction.request.file}: {name} on {on}{under}, {how}"
    yield Heading(f"{where}: {estimate_text(prediction.estimate)}, {counts}")
    if ranks is not None:
        yield from all_ranks(prediction, wide)
    yield from causes(prediction.diagnosis if full else prediction.limits)
    explained = prediction.explanation if full else None
    bound = simulated.bound
    units = {
        "cube cores": bound.cube_busy,
        "vector cores": bound.vector_busy,
        "scheduler threads": bound.scheduler_busy,
        "orchestrator": bound.orchestrator_busy,
    }
    if simulated.prepared.machine.hosted:
        del units["orchestrator"]
    yield Heading("The run:")
    yield Notes(
        [
            f"busy: {', '.join(f'{name} {rough_percent(share)}' for name, share in units.items())}",
            *(headline(explained)[1:] if explained else ()),  # without the window: it is the wall
            *_how_sure(prediction, wide),
            *noticed_lines([program.recording], [(program.recording, notice) for notice in simulated.grave]),
        ]
    )
    if rings:
        yield Heading("Rings of the runtime, and how small they may be:")
        yield Rows(prediction.ring_sizes)
        yield Notes(["task window in slots, heap in bytes, dependency pool in entries; cross-core: tiles in flight"])
    if anchored is not None:
        yield from beside_capture(anchored, wide)
    if prediction.request.build:
        yield from beside_build(program, prediction.request.build, wide)
    if explained is None:
        yield Rows(_kernels(prediction, anchored), wide=wide)
        return
    yield Rows(explained.tables()["kernels"], KERNELS, wide=wide)
    yield Rows(explained.scheduling.tables()["ledger"])
    yield Notes(explained.bubbles.sentences(BLOCKERS))
    yield Notes(explained.notes, "note: ")


def all_ranks(prediction: Prediction, wide: bool = False) -> Iterator[Part]:
    """What all ranks did, and of which one the rest tells."""
    peers, found = prediction.simulated.prepared.peers, RanksResult(prediction.simulated.ranks)
    assert peers is not None
    shown, step = peers.own[0], duration(peers.skew)
    yield Say(
        f"All ranks: {duration(found.wall_ns)} from the launch of the first until the last is done. "
        f"Launches lie {step} apart (--skew). The rest is of rank {shown}, which is launched last"
        + (f"; findings are of {prediction.told}." if prediction.told else ".")
    )
    if outlasts := found.outlasts:
        yield Say(f"{outlasts[:1].upper()}{outlasts[1:]}.", strong=True)
    yield Rows(found.tables()["ranks"], RANK_ROWS, wide=wide)


def _kernels(prediction: Prediction, anchored: BesideCapture | None) -> Table:
    spread = anchored.change.spread() if anchored and anchored.change else None
    return per_kernel(prediction.simulated, prediction.timeline.busy, spread)


def _how_sure(prediction: Prediction, wide: bool) -> list[str]:
    """What the interval means; a guess that moves the wall; with --wide what the time rests on, too."""
    sure = certainty_of(prediction.simulated)
    lines = []
    if prediction.request.base is None:
        lines += [basis_text(prediction.estimate, prediction.simulated.bound.regime)]
    if sure.guess is not None and (wide or sure.guess.moves >= WORTH_A_LINE):
        lines.append(str(sure.guess))
    if wide:
        lines.append(str(sure))
    return lines


def refused(file: str, device: str, errors: Sequence[Finding]) -> Iterator[Part]:
    """A program that does not run on the chip, in the words of `npuscope check`."""
    yield Heading(f"{file} cannot run on {device}: {many(len(errors), 'error')}")
    yield Notes([line for error in errors for line in finding_lines(error)])


def simulate_data(
    prediction: Prediction, anchored: BesideCapture | None = None, full: bool = True, rings: bool = False
) -> dict[str, object]:
    """The contract of `npuscope simulate --json` (docs/reference/json.md)."""
    simulated = prediction.simulated
    program, bound = simulated.prepared.program, simulated.bound
    return {
        "file": prediction.request.file,
        "program": program.recording.program,
        "device": program.device.name,
        "runtime": program.device.scheduled_by or None,
        **(prediction.diagnosis if full else prediction.limits).as_dict(),
        "wall_interval_ns": prediction.estimate.as_dict(),
        "tasks": simulated.tasks,
        "blocks": simulated.blocks,
        **_ranks_data(simulated.ranks, simulated.prepared.peers),
        "busy": {
            "cube": bound.cube_busy,
            "vector": bound.vector_busy,
            "scheduler": bound.scheduler_busy,
            "orchestrator": bound.orchestrator_busy,
        },
        "ring_wait_ns": round(bound.ring_wait_ns),
        "constants": certainty_of(simulated).as_dict(),
        "notes": list(program.recording.notes),
        "notices": notice_table((program.recording, notice) for notice in simulated.noticed).rows(),
        "per_kernel": _kernels(prediction, anchored).rows(),
        **({"rings": prediction.ring_sizes.rows()} if rings else {}),
        **({} if anchored is None else {"anchor": capture_data(anchored)}),
        **({"build": _build_data(prediction)} if prediction.request.build else {}),
    }


def _ranks_data(runs: tuple[RankRun, ...], peers: Peers | None) -> dict[str, object]:
    """The field `ranks` of `simulate --json` (docs/reference/json.md), where there are several."""
    if peers is None:
        return {}
    found = RanksResult(runs)
    return {
        "ranks": {
            "wall_ns": found.wall_ns,
            "skew_ns": peers.skew,
            "told": peers.own[0],
            "table": found.tables()["ranks"].rows(),
        }
    }


def _build_data(prediction: Prediction) -> dict[str, object]:
    program = prediction.program
    compiled = {short_name(key[0]): not one.assumed for key, one in program.assemblies.items()}
    return {
        "folder": prediction.request.build,
        "kernels": [{"kernel": kernel, "timed": timed} for kernel, timed in compiled.items()],
        "notes": list(program.assembly_notes),
        "lowering": difference_table(program).rows(),
    }


def beside_capture(one: BesideCapture, wide: bool = False) -> Iterator[Part]:
    """What --measured adds: the capture against the program it is of, and what a change makes of it."""
    [(title, sentences, tables)] = capture_sections(one)
    yield Heading(title)
    for table in tables:
        yield Rows(table, KERNEL_ROWS, wide=wide)
    yield Notes(sentences)


def capture_sections(one: BesideCapture | None) -> list[Section]:
    """The same for a page."""
    if one is None:
        return []
    base = one.base
    title = f"{one.capture} against {one.program}: {many(len(base.matched), 'kernel')} matched"
    for some, what in ((base.only_measured, "measured"), (base.only_simulated, "simulated")):
        title += f", {len(some)} only {what} ({_listed([kernel.kernel for kernel in some])})" if some else ""
    sentences = _nearness(base) if one.change is None else _sentences(one.change)
    return [(title, sentences, list((one.change or base).tables().values()))]


def capture_data(one: BesideCapture) -> dict[str, object]:
    """The field `anchor` of `simulate --json` and `rank --json` (docs/reference/json.md)."""
    base, found = one.base, one.change
    data: dict[str, object] = {
        "program": one.program,
        "capture": one.capture,
        "matched": len(base.matched),
        "only_measured": [kernel.kernel for kernel in base.only_measured],
        "only_simulated": [kernel.kernel for kernel in base.only_simulated],
        "typical": base.factors.typical,
    }
    if found is not None:
        expected = found.expected
        data |= {
            "simulated_wall_ns": found.plain.wall_ns,
            "change": found.change.as_dict(),
            "expected_ns": None if expected is None else round(expected.value),
            "expected_interval_ns": None if expected is None else expected.as_dict(),
        }
    return {**data, **all_rows((found or base).tables())}


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _nearness(found: MeasuredBase) -> list[str]:
    """How near the anchored run comes to the capture, and what to doubt."""
    lines = []
    if found.measured_ns is not None:
        off, plain = found.anchored_ns / found.measured_ns - 1, found.simulated_ns / found.measured_ns - 1
        far = ": something in it is not in the model" if abs(off) > FAR else ""
        anchored = f"anchored {change(off)} of the measured wall, {change(plain)} without the capture"
        lines.append(f"before the change: {anchored}{far}")
    there, here = (dict(one.cores) for one in (found.measured, found.simulated))
    if there and there != here:
        ran, simulated = (" and ".join(f"{count} {unit}" for unit, count in some.items()) for some in (there, here))
        lines.append(f"the capture ran on {ran} cores, the simulation on {simulated}: is --device the chip it is of?")
    if other := [one.kernel for one in found.other_blocks]:
        lines.append(f"other numbers of blocks than the capture's: {_listed(other)}; is it of the same arguments?")
    return lines


def _sentences(found: MeasuredChange) -> list[str]:
    ratio, expected = found.change.ratio, found.expected
    lines = _nearness(found.anchor)
    if changed := [kernel for kernel, state in found.states.items() if state == CHANGED]:
        guess = "taken to be off by as much as before the change, which is a guess"
        lines.append(f"changed: {_listed(changed)}; {guess}")
    if unknown := found.unmeasured:
        typical = times(found.anchor.factors.typical)
        lines.append(f"not measured: {_listed(unknown)}; taken to be off by {typical}, the median of the others")
    lines.append(f"the change: {figures(ratio.value)} of the time before (80%: {interval_text(ratio)}), {found.change}")
    if expected is not None and found.anchor.measured_ns is not None:
        lines.append(f"so the measured {figures(found.anchor.measured_ns / 1e3)} µs become {estimate_text(expected)}")
    lines.append(
        f"the interval: how far {ratio.basis.rows} published changes of {ratio.basis.commits} commits were off when "
        "predicted from their measured time before; a capture kernel by kernel should do no worse"
    )
    return lines


def pipes(file: str, block: Inside, found: Diagnosis) -> Iterator[Part]:
    """What `npuscope simulate --pipes` prints."""
    of = f"one of {block.blocks:,} alike of {many(block.all_blocks, 'block')}"
    memory = f"memory {times(block.slow)} as slow as alone on the chip" if block.slow > 1.005 else "memory as alone"
    tables = block.tables()
    yield Say(
        f"{file}: {block.kernel}, {of}: {duration(block.timing.duration)}, {memory}, "
        f"{many(len(block.lane.pipe), 'instruction')}"
    )
    yield Say(found.verdict.sentence, strong=True)
    yield Notes([*found.verdict.evidence, found.verdict.remedy])
    yield Rows(tables["pipes"])
    drawn = aligned([(name, levels(shares)) for name, shares in block.over_time(DRAWN).items()], (False, False))
    yield Heading(f"how busy over time, a column is {duration(block.timing.duration / DRAWN)}")
    yield Say("\n".join(drawn))
    if tables["waits"].frame.height:
        yield Heading("who waited longest, and for whom (a pipe's result, its issue, a free slot)")
        yield Rows(tables["waits"], WAITS)


def reasons(file: str, found: Reasons, wide: bool = False) -> Iterator[Part]:
    """What `npuscope simulate --explain` prints."""
    block, tables = found.block, found.tables()
    of = f"one of {block.blocks:,} alike of {many(block.all_blocks, 'block')}"
    yield Say(f"{file}: {block.kernel}, {of}: {duration(found.whole_ns)} with entering it")
    if found.depends.height:
        first = found.depends.row(0, named=True)
        moved = f"a fifth less or more of it changes the block by {change(first['less'])} or {change(first['more'])}"
        yield Say(f"It depends most on {first['constant']} ({first['confidence']}): {moved}.", strong=True)
    yield Heading("the chain of instructions that decides the time, and the constant behind each")
    yield Rows(tables["chain"], found.chain.height if wide else CHAIN)
    yield Heading("the constants that the time depends on most")
    yield Rows(tables["depends"], found.depends.height if wide else DEPENDS)
