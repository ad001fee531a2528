"""Panels that are made when they are opened: roofline, forward passes, TPOT, SQL. In a process of their own."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.explain import explain_ranks
from npuscope.explain.passes.ranks import forward_of
from npuscope.explain.sql import answer
from npuscope.explain.work import area_rules
from npuscope.forward.llm.tpot import Decoding, tpot
from npuscope.forward.roofline import roofline
from npuscope.lab.messages import CaptureFile, Question
from npuscope.lab.program_runs import captures_of
from npuscope.lab.versions import Version
from npuscope.report import forward as forward_report
from npuscope.report import predicted, sql
from npuscope.table.parts import Part
from npuscope.time.run import chip_to_time
from npuscope.trace import read

SQL_ROWS = 1000


def panel(question: Question) -> list[Part]:
    try:
        return list(_parts(question))
    except NpuscopeError as error:  # which names the file that the trace came from: the reader knows it
        raise NpuscopeError(error.what, remedy=error.remedy.replace("with --device", "above")) from error


def read_capture(file: CaptureFile) -> tuple[Version, ...]:
    """The runs of a capture that a reader dropped onto the page."""
    return captures_of([file.name], [explain_ranks(read(file.path))], file.known).versions


def _parts(question: Question) -> Iterator[Part]:
    trace, name = pickle.loads(question.trace), question.name
    match question.what:
        case "roofline":
            return forward_report.roofline(name, name, roofline(trace, _word(question, "device")))
        case "passes":
            return forward_report.forward(forward_of(trace, name, _word(question, "anchor")))
        case "sql":
            return sql.sql(name, answer((trace, str(question.asked.get("text", "")))), SQL_ROWS)
        case "tpot" if question.request is not None:
            return _tpot(question.request, question.asked)
    raise NpuscopeError("this run has no such panel")


def _word(question: Question, name: str) -> str | None:
    return str(question.asked[name]) if name in question.asked else None


def _tpot(request: Request, asked: Mapping[str, object]) -> Iterator[Part]:
    numbers = {name: asked[name] for name in ("batch", "context", "tokens") if name in asked}
    if not all(isinstance(number, int) for number in numbers.values()):
        raise NpuscopeError("batch, context and tokens are whole numbers")
    decoding = replace(Decoding(), **numbers)  # type: ignore[arg-type]
    file = request.file
    rules = area_rules()
    found = tpot(file, request.argv, decoding, chip_to_time(request.device), rules)
    return predicted.tpot(replace(found, model=Path(file).name))
