"""`npuscope tpot` on the small model: the table, the JSON contract."""

from __future__ import annotations

import json

from command import npuscope

SMALL = ("--batch", "4", "--context", "120", "--tokens", "20")


def test_the_measurement_basis_is_one_table_and_one_contract() -> None:
    run = npuscope("tpot", "qwen3-14b", *SMALL, "--json", "--", "--small")
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["ms_per_token"] > 0
    assert told["ms_per_token_interval"]["low"] <= told["ms_per_token"] <= told["ms_per_token_interval"]["high"]
    assert told["tasks_per_step"] == 159  # 68 a layer of two, 23 outside
    assert told["layers"] == 2
    assert 0 < told["mean_run_us"] < told["mean_dispatch_to_finish_us"]
    assert sum(told["groups"].values()) == 68
    assert [step["length"] for step in told["simulated"]] == [121, 128, 129, 140]
    assert len(told["token_ms"]) == 20

    text = npuscope("tpot", "qwen3-14b", *SMALL, "--", "--small").stdout
    shown = float(f"{told['ms_per_token']:.3g}")
    assert f"qwen3-14b: {shown:g} ms/token simulated on ascend910b1" in text  # the same again
    assert "ms per token, 80%" in text
    for words in (
        "AICore task records per step",
        "mean dispatch→finish µs",
        "by area: tasks per layer, times of the last step",
        "4 of 20 steps",
    ):
        assert words in text
