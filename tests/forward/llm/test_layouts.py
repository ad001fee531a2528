"""Experts over ranks: the busiest rank decides, and other layouts can be asked for."""

import json
from pathlib import Path

import pytest
from command import npuscope

from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import load
from npuscope.forward.llm.config import pass_settings, read_config
from npuscope.forward.llm.layouts import Routing, layouts, read_routing, spread
from npuscope.forward.llm.prediction import predict

CONFIG = Path(__file__).parents[2] / "data" / "configs" / "qwen3_235b_a22b.json"


def test_counts_make_the_busiest_rank_of_those_that_share_them() -> None:
    routing = Routing(counts=(4.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0))
    assert [routing.busiest(ranks) for ranks in (1, 2, 4, 8)] == [1, 6 / 4, 4 / 2, 4 / 1]
    assert Routing(1.5).busiest(4) == 1.5
    with pytest.raises(NpuscopeError, match="cannot be spread over 3 ranks"):
        routing.busiest(3)
    with pytest.raises(NpuscopeError, match="of 8 ranks one has at most 8 times the mean"):
        Routing(9.0).busiest(8)


def test_a_busy_rank_takes_longer_and_an_even_one_as_before() -> None:
    model, chip = read_config(CONFIG), load("a3")
    even = predict(model, pass_settings(model, "decode", batch=128, context=4096, dp=16), chip)
    assert spread(even, Routing()).total_ns == even.total_ns
    times = [spread(even, Routing(factor)).total_ns for factor in (1.5, 2.0, 4.0)]
    assert even.total_ns < times[0] < times[1] < times[2]


def test_layouts_keep_tp_and_grow_groups() -> None:
    model, chip = read_config(CONFIG), load("a3")
    even = predict(model, pass_settings(model, "decode", batch=64, context=4096, tp=4, dp=4), chip)
    rows = layouts(model, even, Routing(2.0), (8, 16, 32), chip).main_table().rows()
    assert [(row["ep"], row["tp"], row["dp"]) for row in rows] == [(8, 4, 2), (16, 4, 4), (32, 4, 8)]
    for row in rows:
        assert 0 < row["hot_ns"] < row["total_ns"]  # type: ignore[operator]
        assert 0 <= row["hidden_ns"] <= row["exchange_ns"]  # type: ignore[operator]
    with pytest.raises(NpuscopeError, match="tp 4 does not divide it"):
        layouts(model, even, Routing(), (6,), chip)


def test_tokens_travel_within_a_fused_kernel_too() -> None:
    model, chip = read_config(CONFIG.with_name("deepseek_v3.json")), load("a3")
    even = predict(model, pass_settings(model, "decode", batch=64, context=4096, dp=16), chip)
    (row,) = layouts(model, even, Routing(), (16,), chip).main_table().rows()
    # 64 tokens x 8 experts x 7,168 BF16 values, of 16 ranks to 15 others, there and back, in 58 layers; links: 392 GB/s
    least = 2 * 58 * 64 * 8 * 7168 * 2 * 15 / 16 / 392
    assert least < row["exchange_ns"] < row["experts"] * row["total_ns"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.5", "from 1 to 1000 times the mean"),
        ("nowhere.csv", "no such file"),
        ("3.csv", "3 counts for"),
        ("128.csv", "numbers from 0 on"),
    ],
)
def test_a_routing_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "3.csv").write_text("1, 2\n3")
    (tmp_path / "128.csv").write_text("nan " * 128)
    with pytest.raises(NpuscopeError, match=said):
        read_routing(str(tmp_path / text) if (tmp_path / text).exists() else text, 128)


def test_predict_says_what_a_hot_expert_costs(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    counts.write_text(json.dumps([100] + [10] * 127))
    asked = ("predict", "--config", CONFIG, "--batch", "128", "--context", "4096", "--dp", "16")
    data = json.loads(npuscope(*asked, "--routing", counts, "--layouts", "8,16", "--json").stdout)
    assert data["routing"]["busiest"] == pytest.approx((100 + 7 * 10) / (1370 / 16))
    assert data["routing"]["costs_ns"] > 0
    assert [row["ep"] for row in data["layouts"]] == [8, 16]
    assert data["layouts"][1]["total_ns"] == data["total_ns"]
