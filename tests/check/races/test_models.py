"""The programs in models/: none races, none breaks a rule about safety, and no legal order changes a bit."""

from __future__ import annotations

import pytest
from linted import MODELS, model, rule_of

from npuscope.check.races import races
from npuscope.check.races.replay import replay_races
from npuscope.chip.devices import load

PROGRAMS = [
    ("qwen3_14b/decode", ["--small"]),
    ("qwen3_14b/decode_layer", ["--small"]),
    ("qwen3_14b/decode_layer_a8w8", ["--small"]),
    ("qwen3_32b_tilelet", []),
    ("qwen3_32b_tilelet", ["--as-found"]),
    ("paged_attention", []),
    ("paged_attention_highperf", []),
    *((f"basics/{name}", []) for name in ("gemm", "layer_norm", "rms_norm", "rope", "softmax", "topk")),
]
NAMES = [" ".join([name, *arguments]) for name, arguments in PROGRAMS]
COMPUTED = [(name, arguments) for name, arguments in PROGRAMS if "--as-found" not in arguments]


@pytest.mark.parametrize(("name", "arguments"), PROGRAMS, ids=NAMES)
def test_no_model_races(name: str, arguments: list[str]) -> None:
    program = model(name, *arguments)
    assert races(program) == ()
    # as found, the 32B multiplies rows of padding that nobody wrote and drops them again: a hint
    for rule in ("ring-deadlock", "shared-line", "uninitialised-read"):
        assert [f.message for f in rule_of(rule).check(program) if f.severity != "hint" or not arguments] == []


@pytest.mark.parametrize(("name", "arguments"), COMPUTED, ids=[n for n in NAMES if "as-found" not in n])
def test_no_legal_order_changes_a_model(name: str, arguments: list[str]) -> None:
    (played,) = replay_races(MODELS / f"{name}.py", arguments, [()], load("ascend910b1"), seed=7)
    assert (played.seeded, played.unplayed) == ((), "")
