"""Predicts everything on the page of validation anew and keeps it in `predicted/`. Measured figures are not kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
from published_changes.rows import published
from published_changes.runs import ROOT, Bench, Failed, predictions_of, results_dict, run_rows, version
from validation import blocks, predictions, public
from validation.evidence import DEVICE, KEPT, digest

from npuscope.chip.devices import load

US = 1e3
CONSTANTS = digest(load(DEVICE))


def changes(bench: Bench, data: Path, jobs: int, kept: Path = KEPT) -> None:
    """Both sides of every published change; a side that this version of npuscope has run is not run again."""
    rows = published(data)
    told = results_dict(bench.versions[0], predictions_of(rows, run_rows(bench, rows, jobs)))
    keep_changes(told, CONSTANTS, kept)


def keep_changes(told: Mapping[str, object], constants: str = "", kept: Path = KEPT) -> None:
    """What `changes.py --json` tells, without what was measured; its constants may be unknown."""
    assert isinstance(told["rows"], list)
    names = ("id", "predicted_before_ns", "predicted_after_ns", "bounds", "reason")
    rows = [{name: one[name] for name in names if name in one} for one in told["rows"]]
    _keep(kept / "changes.json", {"simulator": told["simulator"], "constants": constants, "rows": rows})


def layers(bench: Bench, kept: Path = KEPT) -> None:
    """The kernels of the layers whose blocks were measured."""
    found = {}
    for program in blocks.PROGRAMS:
        bench.tree(program.side.commit)
        run = bench.run(program.side)
        if isinstance(run, Failed):
            raise SystemExit(f"validate: {program.title}: {run.reason}")
        found[program.key] = [asdict(one) for one in blocks.simulated(run)]
    _keep(kept / "blocks.json", {"simulator": bench.versions[0], "constants": CONSTANTS, "programs": found})


def public_rows(bench: predictions.Bench, only: str = "") -> Iterator[public.Result]:
    """Results of rows.toml one after the other, those whose key begins so."""
    for row in public.rows():
        if row.key.startswith(only):
            yield public.Result(row, predictions.predict(row.key, bench))


def keep_public(results: list[public.Result], bench: predictions.Bench, kept: Path = KEPT) -> None:
    submit = float(np.median(bench.layer().prepared.job.submit)) / US
    rows = {one.row.key: one.value for one in results}
    told = {"simulator": version(ROOT), "constants": CONSTANTS, "submit_us": submit, "rows": rows}
    _keep(kept / "public.json", told)


def _keep(file: Path, told: Mapping[str, object]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
