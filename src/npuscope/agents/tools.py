"""What each tool answers, as plain data: one function per tool, which a process of its own runs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass

if TYPE_CHECKING:
    from npuscope.answer.prediction import Prediction
    from npuscope.check.rule import TrialPrice

MOST_KERNELS, MOST_GAINS = 12, 20
Told = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A trace, or a program with its arguments, settings and chip; `tried` is what its fixes gave, where the program's
    own file has no name."""

    path: str
    argv: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    device: str = ""
    step: int | None = None
    rank: int | None = None
    tried: tuple[TrialPrice, ...] = ()

    @property
    def is_program(self) -> bool:
        return self.path.endswith(".py") or self.path.startswith("model:") or "\n" in self.path


def explain(asked: Asked) -> Told:
    """Where the time of a capture or of a simulated program went."""
    from npuscope.explain import explain as explained
    from npuscope.explain.choosing import choose_one
    from npuscope.trace import read

    if asked.is_program:
        found = _prediction(asked).explanation
    else:
        trace = choose_one(read(asked.path), asked.rank)
        found = explained(trace if asked.step is None else trace.select(step=[asked.step]))
    data = found.as_dict()
    causes = [{key: value for key, value in cause.items() if key != "where"} for cause in data["causes"]]  # type: ignore[attr-defined]
    kept = ("verdict", "bound", "wall_ns", "format", "device", "notes")
    return {
        **{key: data.get(key) for key in kept},
        "causes": causes,
        "kernels": found.main_table().rows()[:MOST_KERNELS],
        "waits": found.bubbles.by_reason,
    }


def compare(a: Asked, b: Asked, kernels: str | None = None) -> Told:
    """How B differs from A, and where the gap comes from."""
    from npuscope.explain import explain_ranks
    from npuscope.explain.comparison import compare_explained
    from npuscope.report.comparison import simulated_change
    from npuscope.trace import read

    # of programs as of the traces that simulate writes: with what a simulation knows
    traces = [_prediction(one).trace if one.is_program else read(one.path) for one in (a, b)]
    before, after = (ranks.explained[ranks.shown] for ranks in map(explain_ranks, traces))
    result = compare_explained(before, after, kernels)
    versus = simulated_change(result)
    data = result.as_dict()
    (a_ns, b_ns) = data["totals"]["wall_ns"]  # type: ignore[index]
    return {
        "verdict": f"B takes {b_ns / a_ns:.3g} times as long as A" if a_ns else "A has no time",
        "a": result.a.diagnosis.verdict.sentence,
        "b": result.b.diagnosis.verdict.sentence,
        "versus": versus and versus.as_dict(),
        "totals": data["totals"],
        "waterfall": data["waterfall"],
        "kernels": list(data["kernels"])[:MOST_KERNELS],  # type: ignore[call-overload]
        "not_like_for_like": data["not_like_for_like"],
    }


def what_if(asked: Asked) -> Told:
    """What each kernel, each wait and each finding is worth, the one worth most first."""
    from npuscope.explain import explain as explained
    from npuscope.explain.changes import whatif_each
    from npuscope.explain.choosing import choose_one
    from npuscope.report.whatif import gains_data
    from npuscope.trace import read

    if asked.is_program:
        one = _prediction(asked)
        data = gains_data(one.gains, one.diagnosis)
    else:
        trace = choose_one(read(asked.path), asked.rank)
        data = {**whatif_each(trace)[1].as_dict(), **explained(trace).diagnosis.as_dict()}
    kept = {name: data[name] for name in ("verdict", "wall_ns")}
    return {**kept, "gains": list(data["gains"])[:MOST_GAINS]}  # type: ignore[call-overload]


def sql(path: str, query: str, rank: int | None = None) -> Told:
    """The rows of a query over a capture; without one what a query can name, and examples."""
    from npuscope.explain.choosing import choose_rank
    from npuscope.explain.sql import EXAMPLES, answer, schema_of
    from npuscope.table.columns import as_data
    from npuscope.trace import read

    trace = choose_rank(read(path), rank)
    if not query.strip():
        tables: dict[str, dict[str, str]] = {}
        for table, column, kind, meaning in schema_of(trace).frame.iter_rows():
            tables.setdefault(table, {})[column] = f"{kind}: {meaning}"
        return {"tables": tables, "examples": [one.text for one in EXAMPLES]}
    found = answer((trace, query))
    return {"rows": as_data(found.rows.to_dicts()), "of": found.rows.height}


def findings(asked: Asked) -> Told:
    """What `check` finds in a program, with line, fix and what it is worth."""
    from npuscope.answer.checks import checks
    from npuscope.check.run import rules_of
    from npuscope.report.check import check_data

    request = _request(asked)
    found: Told = check_data("program.py" if "\n" in asked.path else asked.path, checks(request, rules_of()))
    listed = {"findings": [*found["errors"], *found["findings"]]}
    return {**listed, **{name: found[name] for name in ("races", "diagnoses", "unpriced")}}


def fixes(asked: Asked) -> tuple[Told, tuple[TrialPrice, ...]]:
    """Patches that were tried, each alone; and what that says of findings, for whoever asks for these later."""
    from npuscope.answer.fixes import mend, trial_prices
    from npuscope.report.fixes import fixes_data

    with tempfile.TemporaryDirectory(prefix="npuscope-mcp-") as folder:  # which lives as long as the processes work
        request = _request(asked, folder)
        mending = mend(request)
        found = fixes_data(request.file, mending)
        prices = [one._replace(file="") if one.file == request.file else one for one in trial_prices(mending)]
    kept = ("wall_ns", "fixes", "not_offered", "unmended")
    brief = [{k: v for k, v in one.items() if k not in ("diff", "versus")} for one in found["not_offered"]]  # type: ignore[attr-defined]
    return {**{name: found[name] for name in kept}, "not_offered": brief}, tuple(prices)


def improved(asked: Asked, trials: int) -> Told:
    """A search over fixes and tile sizes."""
    from npuscope.answer.improve import improve
    from npuscope.report.fixes import improved_data

    with tempfile.TemporaryDirectory(prefix="npuscope-mcp-") as folder:
        request = _request(asked, folder)
        found = improved_data(request.file, improve(request, trials, resume=True))
    return {name: found[name] for name in ("wall_ns", "best_ns", "versus", "ended", "steps", "trials")}


def op(name: str | None, device: str) -> Told:
    """One op, or all of them in a line each."""
    from npuscope.ops import table
    from npuscope.report.reference import op_table
    from npuscope.time.run import chip_to_time

    if name is not None:
        return op_table([table.find(name)], chip_to_time(device)).rows()[0]
    return {"ops": [{"name": spec.name, "doc": spec.doc} for spec in table.BY_NAME.values()]}


def chip(device: str) -> Told:
    """What a chip has: cores, memories, peak rates."""
    from npuscope.chip.devices import list_constants, load

    found = load(device)
    wanted = ("cores.", "clock.", "cube.", "vector.", "memory.", "space.")
    rows = [row for row in list_constants(found) if row.place.startswith(wanted)]
    limits = {row.place: {"value": row.value, "unit": row.unit, "sure": row.confidence} for row in rows}
    return {"name": found.name, "title": found.title, "limits": limits}


def rules() -> Told:
    """Every rule of `check`: what it finds, why that matters, an example and its mended form."""
    from npuscope.check.rules import all_rules

    return {
        "rules": [
            {
                "id": rule.id,
                "severity": rule.severity,
                "finds": rule.title,
                "why": rule.why,
                "before": rule.example.before,
                "after": rule.example.after,
            }
            for rule in all_rules()
        ]
    }


def key_of(asked: Asked) -> str:
    """Equal for what is asked of the same program, wherever its source lies; "" where there is none."""
    if not asked.is_program:
        return ""
    with tempfile.TemporaryDirectory(prefix="npuscope-mcp-") as folder:
        try:
            return _request(asked, folder).key
        except (NpuscopeError, OSError):  # the tool that was asked says why
            return ""


def _request(asked: Asked, folder: str | None = None) -> Request:
    """A source is written into the folder; without one into the temporary folder that a process has of its own."""
    from npuscope.models import file_of

    if asked.step is not None or asked.rank is not None:
        raise NpuscopeError("a step or a rank is of a capture, not of a program", path=asked.path)
    file = file_of(asked.path)
    if "\n" in file:
        place = Path(folder or tempfile.mkdtemp()) / "program.py"
        place.write_text(file, encoding="utf-8")
        file = str(place)
    file = str(Path(file).resolve())
    tried = tuple(one if one.file else one._replace(file=file) for one in asked.tried)
    return Request(file, asked.argv, tuple(asked.settings.items()), asked.device, tried=tried)


def _prediction(asked: Asked) -> Prediction:
    from npuscope.answer.prediction import Prediction, refusals

    one = Prediction(_request(asked))
    with refusals(one.request.file, one.request.argv):
        _ = one.ran
    return one


def run(call: tuple[str, Sequence[Any]]) -> Told:
    """The tool of a name with its arguments: what a process is asked for."""
    name, arguments = call
    tools = {
        "explain": explain, "compare": compare, "what_if": what_if, "findings": findings, "op": op, "chip": chip,
        "rules": rules, "sql": sql,
    }  # fmt: skip
    return tools[name](*arguments)  # type: ignore[operator, no-any-return]
