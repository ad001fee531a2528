"""All that the page of validation is written from: measured tables, and predictions kept in `predicted/`.

    changes.json         both sides of every published change, with what limits each run
    blocks.json          the kernels of two public layers
    public.json          the rows of rows.toml, and the median submission of the Qwen3-14B layer
    crossvalidated.json  every published change, predicted with constants that were fitted without its commit
    ablation.json        the score of the published changes without each mechanism

The first three are written by `refresh.py`; the last two by the fit, and without them the page says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from published_changes.rows import Row, published, set_aside
from published_changes.runs import read_results
from published_changes.score import Prediction
from validation import blocks, measured, public
from validation.measured import Pair

from npuscope.chip.devices import Device, load
from npuscope.time.uncertainty import Misses, known_misses

DEVICE = "910b1"
KEPT = Path(__file__).parent / "predicted"
T = TypeVar("T")


@dataclass(frozen=True)
class Ablated:
    """A mechanism with its constants, the score without it, what it brought nearer and what it took further away.

    Without constants it is no mechanism but the whole model, which the others are compared with.
    """

    mechanism: str
    constants: tuple[str, ...]
    without: Mapping[str, float | None]
    fixed: tuple[str, ...]
    cost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Measured beside predicted; None is a part that was not run.

    `simulators`: who predicted each part; `old`: the parts that were predicted with other constants than the device's.
    """

    device: Device
    simulators: Mapping[str, str]
    old: Sequence[str]
    changes: Sequence[Prediction]
    left_out: Sequence[Prediction] | None
    ablation: Sequence[Ablated] | None
    blocks: Mapping[str, blocks.Compared]
    phases: Sequence[tuple[measured.Phase, Pair]]
    public: Sequence[public.Result]
    misses: Misses


def evidence(data: Path, kept: Path = KEPT) -> Evidence:
    """What is at hand; `data` has the measured tables."""
    device, rows = load(DEVICE), [row for row in published(data) if not set_aside(row.commit)]
    told = {name: json.loads((kept / f"{name}.json").read_text()) for name in ("changes", "blocks", "public")}
    changes = read_results(kept / "changes.json", rows)
    layers = {
        program.key: blocks.compared(
            measured.kernels(data, program.table),
            [blocks.Simulated(**one) for one in told["blocks"]["programs"][program.key]],
            program.other,
        )
        for program in blocks.PROGRAMS
    }
    values = told["public"]["rows"]
    return Evidence(
        device,
        {name: one["simulator"] for name, one in told.items()},
        [name for name, one in told.items() if one.get("constants") != digest(device)],
        [changes.get(row.id, Prediction(row, reason="was not run")) for row in rows],
        _optional(kept / "crossvalidated.json", lambda one: _left_out(rows, one["rows"])),
        _optional(kept / "ablation.json", _ablated),
        layers,
        blocks.phase_pairs(measured.phases(data), device, told["public"]["submit_us"]),
        [public.Result(row, _value(values[row.key])) for row in public.rows()],
        known_misses(),
    )


def digest(device: Device) -> str:
    """Of everything that the device file says."""
    return hashlib.sha256(msgspec.json.encode(device, order="deterministic")).hexdigest()[:12]


def _optional(file: Path, made: Callable[..., T]) -> T | None:
    return made(json.loads(file.read_text())) if file.is_file() else None


def _value(told: float | list[float]) -> public.Value:
    return (told[0], told[1]) if isinstance(told, list) else told


def _left_out(rows: Sequence[Row], told: Sequence[Mapping[str, str | float]]) -> list[Prediction]:
    ratios = {one["id"]: float(one["predicted_ratio"]) for one in told}
    return [
        Prediction(row, 1.0, ratios[row.id]) if row.id in ratios else Prediction(row, reason="was not run")
        for row in rows
    ]


def _ablated(told: Sequence[Mapping[str, Any]]) -> list[Ablated]:
    names = ("constants", "fixed", "cost")
    found = []
    for one in told:
        constants, fixed, cost = (tuple[Any, ...](one.get(name, ())) for name in names)
        found.append(Ablated(str(one["mechanism"]), constants, dict(one["without"]), fixed, cost))
    return found
