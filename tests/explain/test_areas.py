"""Areas by name, and a user's own rules before the built-in ones."""

from pathlib import Path

import pytest
from made import Task, made

from npuscope import NpuscopeError
from npuscope import explain as analysis
from npuscope.explain.work import area_of, area_rules


@pytest.mark.parametrize(
    ("kernel", "area"),
    [
        ("q_proj", "QKV"), ("rope_qkv", "QKV"), ("qk_norm", "QKV"), ("RotaryMul", "QKV"),
        ("fa_fused", "attention"), ("online_softmax", "attention"), ("FusedInferAttentionScore", "attention"),
        ("out_proj", "out_proj"), ("gate_proj", "MLP"), ("SwiGlu", "MLP"), ("down_proj_residual", "MLP"),
        ("kv_proj", "QKV"), ("down_dual_proj", "MLP"),
        ("RmsNorm", "norm"), ("HcomAllReduce", "comm"), ("ncclKernel_AllReduce_RING", "comm"),
        ("MoeDistributeDispatchV2", "comm"), ("ArgMaxV2", "sampling"), ("Cast", "other"),
    ],
)  # fmt: skip
def test_built_in_rules(kernel: str, area: str) -> None:
    assert area_of(kernel, area_rules()) == area


def test_own_rules_come_first(tmp_path: Path) -> None:
    rules = tmp_path / "areas.toml"
    rules.write_text('[[area]]\nname = "quant"\npatterns = ["quant", "^cast$"]\n')
    trace = made(
        [Task(1, "Cast", "AIC_0", 0, 1), Task(2, "DynamicQuant", "AIC_0", 1, 2), Task(3, "q_proj", "AIC_0", 2, 3)]
    )
    found = analysis.explain(trace, areas=rules).fan_out
    assert dict(found.areas.select("area", "tasks").iter_rows()) == {"quant": 2, "QKV": 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[area]\n", "not a file of area rules"),
        ('[[area]]\nname = "x"\n', "patterns"),
        ('[[area]]\nname = "x"\npatterns = ["("]\n', "no regular expression"),
        ('[[area]]\nname = "x"\npatterns = ["a{99999999999999999999}"]\n', "no regular expression"),
        ('[[zone]]\nname = "x"\n', "zone"),
    ],
)
def test_broken_rules_are_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    rules = tmp_path / "areas.toml"
    rules.write_text(text)
    with pytest.raises(NpuscopeError, match=told) as caught:
        area_rules(rules)
    assert str(rules) in str(caught.value)


def test_blocks_of_one_task_are_one_launch() -> None:
    trace = made([Task(1, "gemm", f"AIC_{core}", 0, 10) for core in range(4)])
    found = analysis.explain(trace).fan_out
    assert (found.tasks, found.blocks) == (1, 4)
