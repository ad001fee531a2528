"""The small layers of this year's models: each passes its golden, has the tasks of its page, and is simulated."""

from __future__ import annotations

import numpy as np
import pytest
from command import npuscope
from tile_programs import counts, load, recording

from npuscope.models import models

WANTED = {
    "gated_delta_net": {
        "project": (1, 16, "AIC"),  # 4 x 512 columns / 128
        "gates": (1, 1, "MIX"),
        "delta_rule": (1, 8, "AIV"),  # a block per head
        "out_proj": (1, 2, "AIC"),
    },
    "mx_mlp": {"gate_up": (1, 8, "MIX"), "down": (1, 4, "MIX")},  # 1024 and 512 columns / 128
    "deepseek_v4/layer": {
        "rms_norm": (2, 2, "AIV"),
        "q_proj": (1, 16, "AIC"),
        "kv_proj": (1, 1, "AIC"),
        "kv_write": (1, 16, "AIV"),  # a block per sequence
        "attend": (1, 16, "MIX"),
        "out_proj": (1, 2, "MIX"),
        "route": (1, 1, "MIX"),
        "experts": (1, 8, "MIX"),  # a block per expert
    },
}


@pytest.mark.parametrize("name", WANTED)
def test_a_model_passes_its_golden_with_the_tasks_it_speaks_of(name: str) -> None:
    assert counts(recording(load(name).run())) == WANTED[name]


def test_experts_over_ranks_give_what_one_card_gives() -> None:
    parallel = load("deepseek_v4/expert_parallel")
    assert parallel.run().passed
    parts = load("deepseek_v4/parts")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, parts.HIDDEN)).astype(np.float32)
    shares = parts.shares_of(x, rng.normal(size=(parts.HIDDEN, parts.SLOTS)).astype(np.float32))
    np.testing.assert_array_equal((shares > 0).sum(axis=1), [2] * 4)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)


def test_they_are_listed_with_their_story() -> None:
    about = {model.name: model.about for model in models()}
    for name in (*WANTED, "deepseek_v4/expert_parallel"):
        assert len(about[name].split()) > 8


@pytest.mark.parametrize(
    ("name", "chip"), [("gated_delta_net", "910b1"), ("mx_mlp", "950dt"), ("deepseek_v4/layer", "910b1")]
)
def test_each_is_simulated(name: str, chip: str) -> None:
    answer = npuscope("simulate", f"model:{name}", "--device", chip)
    assert answer.returncode == 0, answer.stderr
    first = answer.stdout.splitlines()[0]
    assert ("guesses" in first) == (chip == "950dt")  # constants of a5 are not measured, and its first line says so
