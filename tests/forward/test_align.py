"""A prediction beside a measured pass: what matches, what is missing, what errs, and what only seems right."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_passes import MEASURED, PREDICTED, a_pass

from npuscope import NpuscopeError, Trace
from npuscope.forward.align.alignment import align
from npuscope.forward.align.errors import CancellingPair

US = 1000


def test_one_missing_one_extra_and_other_names_for_the_rest() -> None:
    found = align(a_pass(PREDICTED), a_pass(MEASURED))
    assert (found.pairs.height, found.missing["kernel"].to_list(), found.extra["kernel"].to_list()) == (
        11, ["SwiGlu", "ArgMaxV2"], ["transpose"],
    )  # fmt: skip
    # matmul: 13 + 10 + 13 + 10 = 46 against 11 + 9 + 11 + 9 = 40; attention 72 against 122; all-reduce 48 against 122
    families: Any = found.as_dict()["families"]
    assert families["MatMul"] == pytest.approx(46 / 40 - 1)
    assert families["Attention"] == pytest.approx(72 / 122 - 1)
    assert families["AllReduce"] == pytest.approx(48 / 122 - 1)
    assert families["SwiGlu"] == -1.0
    assert "Transpose" not in families  # nothing measured to hold it against
    # NZ of 768 x 512 is that weight, whichever way round
    same = found.pairs.filter(pl.col("kernel") == "MatMulV2")
    assert same["predicted_shapes"].to_list() == [c[-1] for c in PREDICTED if c[0] == "aten.mm.default"]


def test_errors_that_cancel_are_shown_as_such() -> None:
    # GIVEN a prediction whose total is right for the wrong reasons: attention 30 too short, matmul 30 too long
    measured = a_pass([("MatMulV2", 40.0), ("FusedInferAttentionScore", 60.0), ("RmsNorm", 5.0)])
    found = align(a_pass([("MatMul", 70.0), ("attention", 30.0), ("RmsNorm", 5.0)]), measured)
    c = found.cancelling
    assert (c.net_ns, c.over_ns, c.under_ns, c.cancels_ns, c.absolute_ns) == (0, 30 * US, 30 * US, 30 * US, 60 * US)
    assert c.pairs == (
        CancellingPair("MatMul", over_ns=30 * US, under="Attention", under_ns=-30 * US, cancels_ns=30 * US),
    )
    assert found.m6_honest == 1.0
    assert "Errors cancel" in found.verdict()
    assert "MatMul (+30 µs) against Attention (-30 µs)" in found.verdict()


def test_errors_that_cancel_inside_a_family() -> None:
    found = align(
        a_pass([("MatMul", 5.0, "8"), ("MatMul", 15.0, "9")]), a_pass([("MatMul", 9.0, "8"), ("MatMul", 9.0, "9")])
    )
    row = found.families.to_dicts()[0]
    # -4 and +6: a net of 2, of ten in all
    assert (row["error_ns"], row["absolute_ns"], row["cancelled_ns"]) == (2 * US, 10 * US, 8 * US)


def test_waiting_in_collectives_is_told_from_transfer() -> None:
    found = align(a_pass(PREDICTED), a_pass(MEASURED))
    # 20, 80 and 22: the median is 22, so the stable part is 20 + 22 + 22 = 64 and 58 is waiting
    row = found.families.filter(family="AllReduce").to_dicts()[0]
    assert (row["stable_ns"], row["wait_ns"]) == (64 * US, 58 * US)
    assert row["error_stable"] == pytest.approx(48 / 64 - 1)
    # two alike are too few to tell
    few = align(a_pass([("all_reduce", 1.0)]), a_pass([("hcom_allReduce_", 9.0), ("hcom_allReduce_", 90.0)]))
    assert few.families["stable_ns"].to_list() == [None]


def test_the_honest_ratio_covers_the_same_stretch_on_both_sides() -> None:
    # GIVEN a prediction without sampling, laid end to end, and a capture with gaps
    found = align(a_pass(PREDICTED), a_pass(MEASURED, gap=2.0))
    # predicted: all 175; measured: 317 without the 18 of ArgMax, gaps not counted; SwiGlu inside counts
    assert (found.predicted.window_ns, found.measured.window_ns) == (175 * US, 299 * US)
    assert found.m6_honest == pytest.approx(175 / 299)
    assert (found.measured.before, found.measured.after) == ((0, 0), (1, 18 * US))
    assert found.measured.sum_ns == found.measured.union_ns == 317 * US


def test_overlapping_streams_count_once_in_the_honest_ratio() -> None:
    from made import Task, made

    two = [Task(1, "MatMul", "stream_1", 0, 10), Task(2, "Cast", "stream_2", 5, 15)]
    found = align(made(two), made(two))
    assert (found.measured.sum_ns, found.measured.union_ns, found.m6_honest) == (20 * US, 15 * US, 1.0)


def test_layers_come_from_the_prediction_or_from_attentions() -> None:
    layer = {"layer": [None, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, None]}
    told = align(a_pass(PREDICTED, layer), a_pass(MEASURED))
    rows = {row["layer"]: row for row in told.layers.to_dicts()}
    # layer 0: 13+36+10+16+3+4+16 against 11+60+9+20+5+5+80; its SwiGlu is missing, its transpose extra
    assert (rows[0]["predicted_ns"], rows[0]["measured_ns"]) == (98 * US, 190 * US)
    assert (rows[0]["missing"], rows[0]["extra"]) == (1, 1)
    assert set(rows) == {None, 0, 1}
    assert told.pairs.filter(pl.col("layer") == 0)["measured"].to_list() == [1, 2, 3, 4, 5, 7]
    assert told.missing["layer"].to_list() == [0, None]
    assert told.extra["layer"].to_list() == [0]
    guessed = align(a_pass(PREDICTED), a_pass(MEASURED))
    assert guessed.layer_source.startswith("attentions of the measured pass")
    assert guessed.layers["layer"].to_list() == [0, 1, None]
    assert sum(guessed.layers["measured_ns"]) == 317 * US


def test_a_kernel_under_an_unknown_name_is_hinted_at_and_can_be_given() -> None:
    measured = a_pass([("MatMul", 1.0), ("Rope", 2.0), ("MatMul", 1.0), ("Rope", 2.0), ("MatMul", 1.0)])
    predicted = a_pass([("MatMul", 1.0), ("spin", 3.0), ("MatMul", 1.0), ("spin", 3.0), ("MatMul", 1.0)])
    found = align(predicted, measured)
    assert found.renamed == (("spin", "Rope", 2),)
    mapped = align(predicted, measured, {"spin": "Rope"})
    assert (mapped.pairs.height, mapped.missing.height, mapped.extra.height) == (5, 0, 0)
    families: Any = mapped.as_dict()["families"]
    assert families["Rope"] == pytest.approx(0.5)
    with pytest.raises(NpuscopeError, match="'twist' is no kernel of the prediction"):
        align(predicted, measured, {"twist": "Rope"})
    with pytest.raises(NpuscopeError, match="'Ropes' is no kernel of the measured pass"):
        align(predicted, measured, {"spin": "Ropes"})


def test_a_kernel_of_another_stream_that_runs_sooner_or_later_is_matched_as_moved() -> None:
    main = [(f"K{n}", 1.0) for n in range(6)]
    found = align(a_pass([*main[:1], ("Side", 4.0), *main[1:]]), a_pass([*main[:5], ("Side", 3.0), *main[5:]]))
    assert (found.pairs.height, found.missing.height, found.extra.height) == (7, 0, 0)
    assert found.pairs.filter("moved")["kernel"].to_list() == ["Side"]


@given(st.lists(st.integers(0, 30), max_size=6), st.lists(st.integers(0, 30), max_size=6))
def test_other_streams_in_between_do_not_disturb_the_main_one(here: list[int], there: list[int]) -> None:
    # GIVEN three layers, and calls of other streams that start anywhere among them, elsewhere on each side
    main = [(kernel, 2.0) for kernel in ("MatMul", "Rope", "attention", "MatMul", "Add") * 6]
    sides: list[Trace] = []
    for places in (here, there):
        calls = list(main)
        for number, place in enumerate(sorted(places, reverse=True)):
            calls.insert(place, ("Sort" if number % 2 else "Random", 1.0))
        sides.append(a_pass(calls))
    predicted, measured = sides
    found = align(predicted, measured)
    # THEN each call of the main stream meets its own, in order or (one of two that changed places) as moved
    apart = found.pairs.filter(~pl.col("family").is_in(["Sort", "Random"])).select("predicted", "measured")
    assert apart.height == len(main)
    assert apart["predicted"].is_sorted()
    assert apart["measured"].is_sorted()
    assert found.pairs.height + found.missing.height == len(main) + len(there)


KERNELS = st.lists(
    st.tuples(st.sampled_from(["MatMul", "Add", "hcom_allReduce_"]), st.integers(0, 9), st.sampled_from("2345")),
    min_size=1,
    max_size=30,
)


@given(KERNELS)
def test_a_pass_against_itself_is_all_matched_and_without_error(calls: list[tuple[str, int, str]]) -> None:
    found = align(a_pass(calls), a_pass(calls))
    assert (found.pairs.height, found.missing.height, found.extra.height) == (len(calls), 0, 0)
    assert found.pairs["error_ns"].abs().sum() == 0
    assert found.m6_honest in (1.0, None)  # None where no call takes any time
    assert (found.m6_honest is None) == (sum(us for _, us, _ in calls) == 0)


@given(KERNELS, KERNELS)
def test_turned_around_missing_is_extra_and_everything_adds_up(a, b) -> None:
    one, other = align(a_pass(a), a_pass(b)), align(a_pass(b), a_pass(a))
    assert one.missing["index"].to_list() == other.extra["index"].to_list()
    assert one.extra["index"].to_list() == other.missing["index"].to_list()
    assert one.pairs.height + one.missing.height == len(b)
    assert one.pairs.height + one.extra.height == len(a)
    total = (sum(us for _, us, _ in a) - sum(us for _, us, _ in b)) * US
    assert one.cancelling.net_ns == total == one.families["error_ns"].sum()
    assert one.cancelling.over_ns - one.cancelling.under_ns == total
    assert sum(pair.cancels_ns for pair in one.cancelling.pairs) == one.cancelling.cancels_ns


@given(KERNELS, st.data())
def test_calls_that_a_prediction_leaves_out_are_what_is_missing(calls, data) -> None:
    gone = data.draw(st.sets(st.integers(0, len(calls) - 1), max_size=len(calls) - 1))
    rest = [call for n, call in enumerate(calls) if n not in gone]
    found = align(a_pass(rest), a_pass(calls))
    assert (found.missing.height, found.extra.height) == (len(gone), 0)


def test_sides_without_device_work_are_refused() -> None:
    empty = a_pass([])
    with pytest.raises(NpuscopeError, match="the prediction holds no kernel"):
        align(empty, a_pass(MEASURED))
    with pytest.raises(NpuscopeError, match="the measured pass holds no kernel"):
        align(a_pass(PREDICTED), empty)
