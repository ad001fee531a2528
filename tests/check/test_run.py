"""The runner: equal findings become one, comments silence, the costliest comes first, options choose rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import checked, line_of

from npuscope.base.errors import NpuscopeError
from npuscope.check.gm_traffic import seconds_of
from npuscope.check.rule import Finding, Waste
from npuscope.check.rules import all_rules
from npuscope.check.run import added_up, ranked, rules_of
from npuscope.check.source_text import silenced
from npuscope.chip.devices import load

CHIP = load("ascend910b1")


def found(line: int = 1, id: str = "rule", **more: object) -> Finding:
    return Finding(id, "hint", "/nowhere/layer.py", line, "what", "how", **more)  # type: ignore[arg-type]


def test_layers_iterations_and_launches_at_one_place_are_one_finding() -> None:
    small = found(3, waste=Waste(8, 0, 1))
    large = found(3, waste=Waste(64, 5, 1), count=40, also=(("/nowhere/layer.py", 9),))
    elsewhere, other = found(4), found(3, kernel="another")
    together = added_up([small, elsewhere, large, other])
    assert [(f.line, f.kernel) for f in together] == [(3, ""), (4, ""), (3, "another")]
    assert (together[0].waste, together[0].count) == (Waste(72, 5, 2), 41)
    assert together[0].also == (("/nowhere/layer.py", 9),)


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from("ab"), st.integers(0, 9), st.integers(1, 5))))
def test_adding_up_loses_no_cost_and_no_count(rows: list[tuple[int, str, int, int]]) -> None:
    findings = [found(line, id, waste=Waste(size, 2 * size, 1), count=count) for line, id, size, count in rows]
    together = added_up(findings)
    assert sum((f.waste for f in together), Waste()) == sum((f.waste for f in findings), Waste())
    assert sum(f.count for f in together) == sum(f.count for f in findings)
    places = [(f.id, f.line) for f in together]
    assert len(places) == len(set(places))


def test_the_costliest_comes_first_then_the_worst_then_the_order_of_the_source() -> None:
    free, fault = found(9), Finding("x", "warning", "/nowhere/layer.py", 12, "what", "how")
    megabyte, task = found(7, waste=Waste(bytes=1 << 20)), found(8, waste=Waste(tasks=1))
    order = ranked([free, found(2), fault, megabyte, task], CHIP)
    # a task: 0.874 + 7.5 µs of the runtime; a mebibyte at 1.27 TB/s: 0.8 µs
    assert [one.line for one in order] == [8, 7, 12, 2, 9]
    assert order[0].seconds == pytest.approx(8.374e-6)


def test_a_cost_is_priced_at_the_chips_peak_rates() -> None:
    peak = CHIP.peak("cube", "bf16")
    assert peak
    assert seconds_of(Waste(flops=int(peak)), CHIP) == pytest.approx(1.0)
    assert seconds_of(Waste(bytes=int(CHIP.reached_bandwidth)), CHIP) == pytest.approx(1.0)
    assert seconds_of(Waste(waits=2), CHIP) == pytest.approx(15e-6)  # the scheduler's 7.5 µs each
    assert seconds_of(Waste(), CHIP) == 0


IGNORES = """def f():
    a = 1  # npuscope: ignore[one]
    b = 2  # npuscope: ignore
    # npuscope: ignore[one, two]

    # why it is so
    c = call(
        1,
        2,
    )
    d = call(
        1,  # npuscope: ignore[one]
    )
    with e():  # npuscope: ignore[one]
        f = 1  # npuscope:ignore[]
"""


@pytest.mark.parametrize(
    ("line", "id", "wanted"),
    [
        (2, "one", True),
        (2, "two", False),
        (3, "anything", True),
        (4, "one", False),  # the comment's own line
        (7, "one", True),
        (9, "two", True),  # anywhere in the next statement
        (9, "three", False),
        (11, "one", True),
        (14, "one", True),
        (15, "one", True),  # empty brackets: all
        (1, "one", False),
    ],
)
def test_comments_silence_the_statement_they_stand_on_or_above(
    tmp_path: Path, line: int, id: str, wanted: bool
) -> None:
    file = tmp_path / "layer.py"
    file.write_text(IGNORES)
    assert silenced(id, str(file), line) is wanted


CASTS = """
@pl.jit
def narrow(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.BF16]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="narrow"):
        out[:, :] = pl.cast(x[:, :], target_type=pl.BF16){comment}
    return out

narrow(np.zeros((16, 64), np.float32), np.zeros((16, 64), pl.BF16.storage))
"""


def test_what_a_comment_silences_is_counted(tmp_path: Path) -> None:
    loud = checked(tmp_path, CASTS.format(comment=""))
    assert ([one.id for one in loud.findings], loud.ignored) == (["rounding-mode"], 0)
    assert loud.findings[0].line == line_of(CASTS, "pl.cast")
    quiet = checked(tmp_path, CASTS.format(comment="  # npuscope: ignore[rounding-mode]"))
    assert (quiet.findings, quiet.ignored) == ((), 1)


def test_a_comment_that_silences_a_rule_there_is_not_is_told(tmp_path: Path) -> None:
    text = CASTS.format(comment="  # npuscope: ignore[rounding-modes, rounding-mode]")
    (one,) = checked(tmp_path, text).findings
    assert (one.id, one.line) == ("unknown-ignore", line_of(text, "pl.cast"))
    assert one.remedy == "Write rounding-mode."


def test_rules_are_chosen_by_id_or_prefix() -> None:
    every = [rule.id for rule in all_rules()]
    usual = [rule.id for rule in rules_of()]
    assert [one for one in every if one not in usual] == [rule.id for rule in all_rules() if rule.on_request]
    assert [rule.id for rule in rules_of(["implied-*"])] == ["implied-edge"]
    assert [rule.id for rule in rules_of(["many-*"])] == ["many-tasks"]
    assert [rule.id for rule in rules_of(["many-tasks,short-task"], ["sh*"])] == ["many-tasks"]
    assert "rounding-mode" not in {rule.id for rule in rules_of((), ["rounding-mode"])}
    assert len(set(every)) == len(every)


@pytest.mark.parametrize(
    ("name", "told"), [("many-taks", "Did you mean many-tasks?"), ("zzz*", "no rule 'zzz*'"), ("", "no rule")]
)
def test_a_rule_that_is_not_there_is_refused(name: str, told: str) -> None:
    with pytest.raises(NpuscopeError, match="--ignore") as caught:
        rules_of((), [name])
    assert told in str(caught.value)
