"""A predicted forward pass as a report: total, times by role, what is not calibrated or not known, assumptions."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.forward.llm.prediction import Prediction
from npuscope.table.formats import duration, many
from npuscope.table.parts import Heading, In, Notes, Part, Rows, Say

MOST = 20  # rows of text


def predict(prediction: Prediction, wide: bool = False) -> Iterator[Part]:
    tables = prediction.tables()
    yield Say(_headline(prediction), strong=True)
    roles = tables["roles"]
    yield Rows(roles, roles.frame.height if wide else MOST, wide=wide)
    if roles.frame.height > MOST and not wide:
        yield Say("--wide shows all.", where=In.TEXT)
    for sentence in prediction.confidence():
        yield Say(sentence)
    yield Notes([f"{n}x {kernel} ({role}): {why}" for role, kernel, n, why in tables["unknown"].frame.iter_rows()])
    yield Heading("Assumptions:")
    yield Notes(prediction.assumptions())


def _headline(prediction: Prediction) -> str:
    run = prediction.run
    tokens = f"batch {run.batch}" if run.phase == "decode" else many(run.tokens, "token")
    spread = [f"{name} {ranks}" for name, ranks in (("tp", run.tp), ("dp", run.dp), ("ep", run.ep)) if ranks > 1]
    how = ", ".join([tokens, f"context {run.context:,}", *spread, *([run.quant] if run.quant != "none" else [])])
    time = f"{duration(prediction.total_ns)} in {many(len(prediction.kernels), 'kernel')}"
    told = f"{prediction.model.title} {run.phase}, {how} on {prediction.device.title}: {time}"
    told += f", without {prediction.unknown:,} whose time is not known" if prediction.unknown else ""
    return told if prediction.memory.fits else f"{told}. {prediction.memory.sentence()}"
