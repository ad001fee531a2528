"""One side of a row, in a process of its own: what `npuscope simulate FILE -- ARGUMENTS` does, scope by scope.

    python one_run.py RECORDING DEVICE ENTRY FILE ARGUMENT…

The recording is kept in the file RECORDING, so that a change of the simulator alone need not run the script again.
Prints one JSON object: a run, or the sentence why there is none.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.tile.record.model import Recording
from npuscope.tile.run.execute import Finished
from npuscope.tile.script.run import ScriptRun
from npuscope.time.run import Simulated
from published_changes.rows import Measured, Scope


def main(keep: str, device: str, entry: str, file: str, argv: Sequence[str]) -> dict[str, object]:
    begun = time.process_time()
    request = Request(file, tuple(argv), device=device)
    recording = _recording(Path(keep), request, entry)
    ran = ScriptRun((Finished(recording, None, 0.0),), (), 0, "")
    run = measured(recording, Prediction(request, ran).plain)
    return Measured(**{**vars(run), "seconds": round(time.process_time() - begun, 1)}).as_dict()


def _recording(keep: Path, request: Request, entry: str) -> Recording:
    if keep.is_file():
        with keep.open("rb") as source:
            return pickle.load(source)  # type: ignore[no-any-return]
    recording = _chosen([one for one in Prediction(request).ran.recordings if one.tasks], entry)
    part = keep.with_suffix(f".{os.getpid()}")
    gc.disable()
    sys.setrecursionlimit(100_000)
    with part.open("wb") as target:
        pickle.dump(recording, target, protocol=5)
    part.replace(keep)
    return recording


def _chosen(able: Sequence[Recording], entry: str) -> Recording:
    named = [one for one in able if one.program == entry]
    if len(able) == 1:
        return able[0]
    if named and len({one.program for one in named}) == 1:
        return named[0]
    raise NpuscopeError(f"{len(able)} programs ran ({', '.join(one.program for one in able)}), none of them {entry}")


def measured(recording: Recording, simulated: Simulated) -> Measured:
    trace = simulated.trace
    slices = trace.slices.filter(pl.col("kind") == "task").join(trace.lanes.select("lane", "unit"), on="lane")
    end = pl.col("start") + pl.col("dur")
    scopes = (
        slices.group_by("kernel", "unit", maintain_order=True)
        .agg(slices=pl.len(), busy=pl.col("dur").sum(), first=pl.col("start").min(), last=end.max())
        .rows(named=True)
    )
    begin, last = slices.select(pl.col("dispatch").min(), pl.col("finish").max()).row(0)
    times = simulated.times
    blocks = slices.select("task", "block").unique().height
    found = (*recording.notes, *(notice.message for notice in simulated.grave))
    return Measured(
        recording.program,
        len(recording.tasks),
        blocks,
        last - begin,
        tuple(Scope(**one) for one in scopes),
        begin,
        round(float(times.submitted.max() - times.began.min())),
        findings=found,
        bound=simulated.bound.regime,
    )


if __name__ == "__main__":
    out = os.dup(1)
    os.dup2(2, 1)  # what the script prints is not the answer
    try:
        answer = main(*sys.argv[1:5], sys.argv[5:])
    except NpuscopeError as error:
        answer = {"error": str(error)}
    except SystemExit as stop:
        answer = {"error": f"the script left with {stop.code}"}
    with os.fdopen(out, "w") as target:
        json.dump(answer, target)
