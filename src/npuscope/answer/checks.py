"""What `check` and `memory` say of every program of a script, or of a build folder; equal ones once."""

from __future__ import annotations

import statistics  # noqa: F401 (loaded here and not by every job)
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from npuscope.answer.prediction import Prediction, predictions
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.check.races.replay import replay_races
from npuscope.check.rule import Rule
from npuscope.check.rules.memory import buffer_overflow, overlapping_tiles
from npuscope.check.run import Checked, Fit, check, fit
from npuscope.lower.build_folder import build_program, is_build, read_build
from npuscope.lower.chip import chip_to_lower_for


def checks(
    request: Request,
    rules: Sequence[Rule],
    price: bool = True,
    seed: int | None = None,
    planned: Callable[[Prediction], None] | None = None,
) -> tuple[Checked, ...]:
    """What `check` says of every program of a script; equal ones once. With a `seed` in another order, too.

    Of a build folder what can be said of bytes alone. `planned` hears of each program once it is known whether it fits.
    """
    if is_build(request.file):
        program = build_program(read_build(request.file), chip_to_lower_for(request.device))
        chosen = [rule for rule in rules if rule.id in (buffer_overflow.id, overlapping_tiles.id)]
        return (check(program, chosen),)
    every = predictions(request)
    if not every:
        raise NpuscopeError("no tile program ran, so there is nothing to check", path=request.file)
    if planned is not None:
        for one in every:
            planned(one)
    whole = Prediction(request, every[0].ran)
    if price and whole.rank_programs:
        every = _among(whole, every)
    found = {one.number or 0: one.report(rules, price) for one in every}
    if seed is not None:
        last = max(found) + 1
        sought = [found[n].races if n in found else () for n in range(last)]
        replayed = replay_races(request.file, request.argv, sought, chip_to_lower_for(request.device), seed)
        found = {n: replace(one, races=replayed[n].races, replayed=replayed[n]) for n, one in found.items()}
    return _once(found.values())


def _among(whole: Prediction, every: Iterable[Prediction]) -> tuple[Prediction, ...]:
    """The programs priced by the run of all ranks together; what ranks run alike is priced once."""
    kept: dict[object, Prediction] = {}
    found = tuple(Prediction(one.request, one.ran, one.number, one.chip, whole) for one in every)
    for one in found if whole.broken is None else ():
        blocks = one.simulated.prepared.job.block_class.tobytes()
        first = kept.setdefault((blocks, replace(one.checked, program=_without_rank(one.recording.program))), one)
        if first is not one:
            vars(one)["priced"] = first.priced
    return found


def _once(checks: Iterable[Checked]) -> tuple[Checked, ...]:
    """Equal ones once; those of several ranks say of how many."""
    equal: dict[Checked, list[str]] = {}
    for one in checks:
        name = _without_rank(one.program) if one.ranks else one.program
        equal.setdefault(replace(one, program=name), []).append(one.program)
    return tuple(
        replace(one, program=names[0] if len(set(names)) == 1 else f"{one.program} on {len(set(names))} ranks")
        for one, names in equal.items()
    )


def _without_rank(program: str) -> str:
    return program.rpartition("@")[0] or program


def fits(request: Request, kernel: str | None = None) -> tuple[Fit, ...]:
    """The memory of every program of a script, or of a build folder; equal ones once.

    With `kernel` only that, refused where none has it.
    """
    found: dict[object, Fit] = {}
    if is_build(request.file):
        found[None] = fit(build_program(read_build(request.file), chip_to_lower_for(request.device)))
    for one in () if found else predictions(request):
        key = tuple((usage.function, usage.space.space, usage.space.used) for usage in one.fit.used)
        found.setdefault((one.program.recording.program, key), one.fit)
    if not found:
        raise NpuscopeError("no tile program ran, so there is no memory to plan", path=request.file)
    every = tuple(found.values())
    if kernel is None:
        return every
    chosen = tuple(part for part in (one.only(kernel) for one in every) if part.bodies)
    if not chosen:
        known = dict.fromkeys(body.kernel for one in every for body in one.bodies)
        raise NpuscopeError(
            f"no kernel '{kernel}' ran", path=request.file, remedy=f"Those that did: {', '.join(known)}."
        )
    return chosen
