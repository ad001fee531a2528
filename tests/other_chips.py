"""Programs on chips that differ from the known one, whose traces stand in for captures of them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.chip.devices import Device, load
from npuscope.lower.program import Program

ROOT = Path(__file__).resolve().parents[1]
LAYER = ROOT / "models/qwen3_14b/decode_layer.py"
CHIP = load("ascend910b1")


def other(**factors: float) -> Device:
    """The chip with some constants of [timing] multiplied."""
    timing = {
        name: msgspec.structs.replace(constant, value=constant.value * factors.get(name, 1.0))
        for name, constant in CHIP.timing.items()
    }
    return msgspec.structs.replace(CHIP, timing=timing)


def random_chip(seed: int, spread: float = 0.3) -> Device:
    """The chip with every time and rate of [timing] off by a random factor, with this spread of its logarithm."""
    rng = np.random.default_rng(seed)
    names = [name for name, constant in CHIP.timing.items() if constant.unit in ("s", "B/s", "cycles")]
    return other(**{name: math.exp(spread * rng.standard_normal()) for name in names})


@cache
def _recorded(file: Path, argv: tuple[str, ...]) -> Program:
    program = Prediction(Request(str(file), argv)).program
    assert program.planned is not None
    assert program.graph is not None
    return program


def program_on(device: Device, file: Path = LAYER, *argv: str) -> Program:
    """Recorded and planned once, whatever it costs on the device."""
    known = _recorded(file, argv)
    program = replace(known, device=device)
    program.__dict__.update(planned=known.planned, graph=known.graph)
    return program
