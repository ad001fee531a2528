"""What a change would buy, in a trace or in a tile program.

A trace's task graph is replayed, a tile program is simulated again, with the change.

Examples:

  npuscope whatif run

  npuscope whatif decode_layer.py -- --context 4096   (arguments after -- are the program's)

  npuscope whatif run/chip_swimlane_records.json --merge 'gate_proj+up_proj'

  npuscope whatif run --scale fa_fused=0.5 --dispatch-cost 0.5

  npuscope whatif run --halve down_proj --remove silu --cores AIC=48 --html whatif.html

Without an option every kernel and every cost of the scheduler is tried at half and at nothing, for a program also
every finding of `npuscope check`; the one that buys most comes first. With options all of them are one change, and the
answer has bounds and the replay's own error; of a program its simulated trace is replayed.

Kernels are regular expressions that match the whole name. --halve makes half as many tasks, each with the work of two.
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.base.errors import NpuscopeError
from npuscope.cli import options
from npuscope.cli.output import check_outputs, counts_of, numbers_of, progress_bar, settings_of, show
from npuscope.explain import Change, explain, whatif
from npuscope.explain.changes import whatif_each
from npuscope.explain.choosing import choose_one, rank_told
from npuscope.lab.document import page
from npuscope.report.whatif import asked as asked_report
from npuscope.report.whatif import gains as report
from npuscope.report.whatif import gains_data
from npuscope.table.parts import Say
from npuscope.trace import read


def command(
    path: options.CaptureOrProgram,
    arguments: Annotated[list[str] | None, typer.Argument(help="A program's own arguments, after --.")] = None,
    merge: Annotated[list[str] | None, typer.Option(help="Kernels that become one task, as a+b.")] = None,
    scale: Annotated[list[str] | None, typer.Option(help="A kernel and the factor on its time, as k=0.5.")] = None,
    halve: Annotated[list[str] | None, typer.Option(help="A kernel with half as many tasks.")] = None,
    remove: Annotated[list[str] | None, typer.Option(help="A kernel that is not there.")] = None,
    cores: Annotated[list[str] | None, typer.Option(help="Another number of cores, as AIC=48.")] = None,
    dispatch_cost: Annotated[float, typer.Option(help="Factor on every wait for the scheduler.")] = 1.0,
    setting: options.Set = None,
    device: options.ProgramDevice = "",
    program: options.ProgramNumber = None,
    runtime: options.Runtime = "",
    rank: options.Rank = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    change = Change(
        scale=numbers_of(scale or [], "--scale"),
        merge=[tuple(name.strip() for name in names.split("+")) for names in merge or []],
        halve=halve or [],
        remove=remove or [],
        cores=counts_of(cores or [], "--cores"),
        dispatch_cost=dispatch_cost,
    )
    asked = any((merge, scale, halve, remove, cores, dispatch_cost != 1.0))
    is_program = path.endswith(".py")
    if (arguments or setting) and not is_program:
        remedy = "Those after -- and --set are a tile program's."
        raise NpuscopeError("a capture takes no arguments", path=path, remedy=remedy)
    if rank is not None and is_program:
        remedy = "`simulate -o run.npu` writes all ranks, and --rank chooses one of those."
        raise NpuscopeError("--rank is a capture's; of a program the rank launched last is told", remedy=remedy)
    check_outputs([path], html)
    with progress_bar():
        one = None
        if is_program:  # a capture needs no simulator
            from npuscope.answer.prediction import Prediction
            from npuscope.answer.request import Request
            from npuscope.time.whatif import replay_against

            settings = tuple(settings_of(setting or []).items())
            one = Prediction(Request(path, tuple(arguments or ()), settings, device, program, runtime=runtime))
        if one:
            trace, peers = one.simulated.trace, one.simulated.prepared.peers
            told = None if peers is None else peers.own[0]
        else:
            whole = read(path)
            trace, told = choose_one(whole, rank), rank_told(whole) if rank is None else None
        if asked:
            result = whatif(trace, change)
            versus = replay_against(result, one.simulated.bound.regime) if one else None
            data = {**result.as_dict(), **({} if versus is None else {"against": versus.as_dict()})}
            parts = [*asked_report(result, versus)]
        elif one:
            data, parts = gains_data(one.gains, one.diagnosis), [*report(one.gains, one.diagnosis)]
            parts += [Say(f"Kernels and findings are of {one.told}.")] if one.told else []
        else:
            unchanged, gains = whatif_each(trace)
            diagnosis = explain(trace).diagnosis
            data = {**unchanged.as_dict(), **gains.as_dict(), **diagnosis.as_dict()}
            parts = [*report(gains, diagnosis)]
        if told is not None:
            parts.append(Say(f"This is of rank {told}, which is launched last."))

    def written() -> str:
        from npuscope.lab.program_runs import whatif_document

        return page(whatif_document(path, one or trace, parts), "The command without --html prints the same.")

    show(lambda: parts, data, json=json, pages={html: written})
