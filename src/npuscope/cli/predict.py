"""Predict a forward pass from a model's config.json.

Its kernels and their times, without a capture.

Examples:

  npuscope predict --config config.json --phase decode --batch 16 --context 4096 --tp 16 --device a3

  npuscope predict --config config.json --phase prefill --tokens 4096 --tp 16 --out prefill.pftrace

  npuscope predict --config deepseek.json --batch 5 --context 4096 --tp 8 --dp 2 --quant w8a8 --out pass.csv

  npuscope predict --config deepseek.json --batch 64 --context 4096 --dp 16 --routing 1.5 --layouts 8,16,32

The file written with --out is a trace like any other: npuscope report, compare and align take .npu, .csv and .json;
.pftrace is for viewers.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import load
from npuscope.cli import options
from npuscope.cli.output import check_outputs, show
from npuscope.forward.llm.config import pass_settings, read_config
from npuscope.forward.llm.layouts import Routing, layouts, read_routing, spread
from npuscope.forward.llm.prediction import predict, predicted_trace
from npuscope.report.predicted import predict as report
from npuscope.table.columns import all_rows
from npuscope.trace.formats import check_target


def command(
    config: Annotated[str, typer.Option(help="The model's config.json, as on Hugging Face.")],
    phase: Annotated[str, typer.Option(help="decode or prefill.")] = "decode",
    batch: Annotated[int, typer.Option(help="Sequences of one data-parallel group.")] = 1,
    context: Annotated[int, typer.Option(help="Tokens of each sequence already in the cache.")] = 0,
    tokens: Annotated[int | None, typer.Option(help="Prefill: new tokens of all sequences together.")] = None,
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks.")] = 1,
    dp: Annotated[int, typer.Option(help="Data-parallel groups.")] = 1,
    ep: Annotated[int | None, typer.Option(help="Expert-parallel ranks: 1, or all (the default).")] = None,
    quant: Annotated[str, typer.Option(help="w8a8 or none.")] = "none",
    routing: Annotated[
        str,
        typer.Option(help="uniform, how many times the mean the busiest rank's experts get, or a file of counts."),
    ] = "uniform",
    spread_over: Annotated[
        str | None, typer.Option("--layouts", help="Also with experts over so many ranks each: 8,16,32.")
    ] = None,
    device: Annotated[str, typer.Option(help="A device's name, or a TOML file.")] = "a3",
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="Also write the pass as a trace: .npu, .csv, .json, .pftrace.")
    ] = None,
    md: options.Md = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    check_outputs([config], out, md)
    if out is not None:
        check_target(out)
    model = read_config(config)
    run = pass_settings(model, phase, batch=batch, tokens=tokens, context=context, tp=tp, dp=dp, ep=ep, quant=quant)
    chip = load(device)
    even = predict(model, run, chip)
    asked = read_routing(routing, None if model.experts is None else model.experts.count)
    prediction = even if asked == Routing() else spread(even, asked)
    others = None if spread_over is None else layouts(model, even, asked, whole_numbers(spread_over), chip)
    if out is not None:
        predicted_trace(prediction).write(out)
    data = {
        **prediction.as_dict(),
        "routing": {"busiest": prediction.run.busiest, "costs_ns": prediction.total_ns - even.total_ns},
        **({} if others is None else all_rows(others.tables())),
    }
    parts = partial(report, prediction, even=even, others=others)
    show(parts, data, json=json, wide=wide, md=md, written=[out])


def whole_numbers(text: str) -> list[int]:
    """Of `8,16,32`."""
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 2:
        raise NpuscopeError(
            f"--layouts {text} is no list of numbers of ranks from 2 on", remedy="As --layouts 8,16,32."
        )
    return found
