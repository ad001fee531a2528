"""A prediction beside a measured pass: what matches, what is missing, what errs, and what only seems right."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import write_events, x
from hypothesis import given
from hypothesis import strategies as st
from written_passes import MEASURED, PREDICTED, a_pass

import npuscope
from npuscope import NpuscopeError, Trace
from npuscope.forward.align.alignment import align, m6_denominator
from npuscope.forward.align.errors import CancellingPair
from npuscope.forward.align.sides import CsvColumns, read_side, side_of

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


def tensorcast(path: Path, events: list[tuple[str, int, dict[str, str]]]) -> Path:
    """A trace as TensorCast writes one: whole microseconds, facts as text."""
    now, rows = 0, []
    for name, us, args in events:
        told = {"simulation_shapes": "[[16, 512], [512, 768]]", **args}
        rows.append(x(name, now, us, pid=0, tid=0, cat="empirical", args=told))
        now += us
    return write_events(path, rows)


def test_a_tensorcast_trace_tells_sources_and_the_metrics_follow(tmp_path: Path) -> None:
    # GIVEN five calls: two measured, one interpolated, one analytic, and a view that costs nothing
    hit, guess = {"source": "MEASURED", "kernel_type": "MatMulV2"}, {"source": "ANALYTIC", "kernel_type": "SwiGlu"}
    path = tensorcast(
        tmp_path / "tc.json",
        [
            ("aten.mm.default", 10, hit),
            ("aten.mm.default", 12, {**hit, "simulation_shapes": "[[16, 512], [512, 512]]"}),
            ("tensor_cast.rms_norm.default", 3, {"source": "INTERPOLATED", "kernel_type": "RmsNorm"}),
            ("tensor_cast.swiglu.default", 2, guess),
            ("aten.view.default", 0, {"source": "MEASURED", "zero_cost": "True"}),
        ],
    )
    measured = a_pass([("MatMulV2", 11.0), ("MatMulV2", 11.0), ("RmsNorm", 5.0), ("SwiGlu", 5.0)])
    found = align(npuscope.read(path), measured)
    m = found.metrics
    assert (found.pairs.height, found.missing.height, found.extra.height) == (4, 0, 0)
    assert found.predicted.left_out == {"takes no time, and the other side has no such kernel": (1, 0)}
    assert m.values["m1"] == 4 / 5  # four of five calls
    assert m.values["m2"] == 3 / 4  # mm, rms_norm, view of four functions
    assert m.values["m3"] == 2 / 3  # without the view
    assert m.values["m4"] == 3 / 4  # two shapes of mm and rms_norm, of four
    assert m.values["m5"] is None
    assert "analytic" in m.reasons["m5"]
    assert m.values["m6"] == 25 / 32


def test_a_function_with_one_missed_shape_is_missed_and_a_fused_group_counts_once(tmp_path: Path) -> None:
    hit, miss = {"source": "MEASURED"}, {"source": "PARTIAL"}
    names = [
        "aten.mm.default",
        "aten.mm.default",
        "tensor_cast.grouped_matmul.default",
        "tensor_cast.all_to_all.default",
    ]
    path = tensorcast(tmp_path / "tc.json", list(zip(names, [1, 1, 1, 1], [hit, miss, hit, hit], strict=True)))
    found = align(npuscope.read(path), a_pass([("MatMul", 1.0)])).metrics
    assert (found.values["m1"], found.values["m2"]) == (3 / 4, 1 / 2)


def test_a_composite_that_lists_its_kernels_is_taken_apart(tmp_path: Path) -> None:
    parts = {
        "source": "MEASURED",
        "kernel_type": "BatchMatMulV2, Transpose",
        "sub_kernel_durations": "[('BatchMatMulV2', 8.6), ('Transpose', 17.1)]",
    }
    path = tensorcast(tmp_path / "tc.json", [("tensor_cast.multihead_latent_attention.default", 26, parts)])
    found = align(npuscope.read(path), a_pass([("BatchMatMulV2", 9.0), ("Transpose", 17.0)]))
    assert found.pairs["predicted_ns"].to_list() == [8600, 17100]
    assert found.metrics.values["m6"] == 1.0  # its tool adds up events: 26 over 26


def test_spans_around_others_are_left_out_and_rounding_is_no_nesting(tmp_path: Path) -> None:
    # GIVEN a step around its kernels; MatMul from 10.6 to 13.2 and Cast to 13.8, in whole microseconds
    events = [
        x("step", 0, 30),
        x("RmsNorm", 0, 10),
        x("MatMul", 11, 3),
        x("Cast", 13, 1),
        x("Add", 20, 5),
        x("Add", 20, 5),
    ]
    side = side_of(npuscope.read(write_events(tmp_path / "nested.json", events)), "prediction")
    assert side.calls["kernel"].to_list() == ["RmsNorm", "MatMul", "Cast", "Add", "Add"]
    assert side.left_out == {"encloses other spans": (1, 30 * US)}


@pytest.mark.parametrize("ending", ["npu", "json"])
def test_a_prediction_keeps_what_it_knows_through_a_file(tmp_path: Path, ending: str) -> None:
    facts = {"layer": [0] * 8 + [1] * 4, "Source": ["MEASURED"] * 11 + ["UNKNOWN"], "limit_ns": [1000] * 12}
    prediction = a_pass(PREDICTED, facts)
    prediction.write(tmp_path / f"p.{ending}")
    direct, read = (align(p, a_pass(MEASURED)) for p in (prediction, npuscope.read(tmp_path / f"p.{ending}")))
    assert read.layer_source == "the prediction's layer column"
    assert read.pairs.equals(direct.pairs)
    assert (read.metrics.values["m1"], read.metrics.values["m5"], read.metrics.values["m6"]) == (
        11 / 12,
        11 / 12,
        direct.metrics.values["m6"],
    )


def test_of_several_models_in_one_trace_the_one_with_sources_is_meant(tmp_path: Path) -> None:
    shapes = {"simulation_shapes": "[[1]]"}
    events = [
        x("aten.mm.default", 0, 50, pid=0, args=shapes),
        x("aten.mm.default", 0, 10, pid=1, args={**shapes, "source": "MEASURED", "kernel_type": "MatMulV2"}),
    ]
    path = write_events(tmp_path / "two.json", events)
    measured = a_pass([("MatMulV2", 10.0)])
    assert align(npuscope.read(path), measured).predicted.sum_ns == 10 * US
    assert align(npuscope.read(path), measured, process="0").predicted.sum_ns == 50 * US
    path = write_events(tmp_path / "same.json", [{**event, "args": shapes} for event in events])
    with pytest.raises(NpuscopeError, match="several models' processes"):
        align(npuscope.read(path), measured)


def test_m5_is_the_share_of_the_limit_that_hits() -> None:
    facts = {"Source": ["MEASURED", "ANALYTIC", "UNKNOWN"], "limit_ns": [6000, 2000, None]}
    found = align(a_pass([("MatMul", 9.0), ("Add", 3.0), ("Odd", 0.0)], facts), a_pass([("MatMul", 9.0), ("Add", 3.0)]))
    assert found.metrics.values["m5"] == 0.75
    assert "1 calls without limit_ns" in found.metrics.reasons["m5"]
    assert found.metrics.values["m1"] == pytest.approx(1 / 3)
    assert found.metrics.values["m6"] == pytest.approx(9 / 12)  # only what was measured


def test_m6_adds_up_rows_as_its_tool_does() -> None:
    # hcom_ rows of one whole microsecond and type count once, the longest; AicpuKernel not; everything else does
    rows = pl.DataFrame(
        {
            "start": [1_000_100, 1_000_900, 1_001_000, 5_000, 6_000, 7_000],
            "dur": [10, 30, 5, 100, 1000, 1000],
            "type": [*["hcom_allReduce_"] * 3, "allgatherAicpuKernel", *["HcomAllReduce"] * 2],
            "kernel": [""] * 6,
        }
    )
    assert m6_denominator(rows) == 30 + 5 + 2000


def test_a_csv_with_kernel_and_time(tmp_path: Path) -> None:
    path = tmp_path / "model.csv"
    path.write_text('Kernel,Latency (ms),Shapes\nMatMul,0.013,"16,512;512,768"\nattention,0.036,\n')
    trace = read_side(path)
    assert trace.slices["dur"].to_list() == [13_000, 36_000]
    assert trace.slices["start"].to_list() == [0, 13_000]
    path.write_text("op,a_us,b\nMatMul,1,2\n")
    trace = read_side(path, CsvColumns(time="b", unit="ms"))
    assert trace.slices["dur"].to_list() == [2_000_000]


def test_a_table_of_counts_is_matched_without_order(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text('kernel_type,input_shapes,count,mean_us\nSwiGlu,"16,3200",2,4\nMatMulV2,"16,512;768,512",1,12\n')
    measured = a_pass(
        [("MatMulV2", 9.0, "16,512;512,512"), ("MatMulV2", 11.0, "16,512;512,768"), ("SwiGlu", 5.0, "16,3200")]
    )
    found = align(read_side(path), measured)
    assert not found.ordered
    assert found.pairs.select("kernel", "predicted_ns", "measured_ns").rows() == [
        ("MatMulV2", 12_000, 11_000),
        ("SwiGlu", 4_000, 5_000),
    ]
    assert (found.missing["kernel"].to_list(), found.extra["kernel"].to_list()) == (["MatMulV2"], ["SwiGlu"])
    assert not found.pairs["moved"].any()
    assert found.pairs["same_shapes"].all()
    assert found.layers.is_empty()
    assert found.m6_honest == 20 / 25  # all of both
    real = read_side(shared / "measured_kernels_by_shape.csv")
    assert real.slices.height == pl.read_csv(shared / "measured_kernels_by_shape.csv")["count"].sum()


BAD = {
    "no calls": ("kernel,us\n", "no calls"),
    "not a number": ("kernel,us\nMatMul,1\nAdd,fast\n", "line 3: 'fast' in column us is not a time"),
    "nan": ("kernel,us\nMatMul,NaN\n", "line 2: 'NaN' in column us is not a time"),
    "negative": ("kernel,us\nMatMul,-1\n", "line 2"),
    "infinite": ("kernel,us\nMatMul,1e400\n", "line 2"),
    "too long": ("kernel,us\nMatMul,1e15\n", "line 2"),
    "no time": ("kernel,colour\nMatMul,blue\n", "no column of time among kernel, colour"),
    "no kernel": ("colour,us\nblue,1\n", "no column of kernel among colour, us"),
    "two times": ("kernel,time_us,latency_ms\nMatMul,1,1\n", "several columns of time: time_us, latency_ms"),
    "no unit": ("kernel,time\nMatMul,1\n", "does not say its unit"),
    "bad count": ("kernel,us,count\nMatMul,1,-2\n", "line 2: '-2' in column count is not a count"),
    "short row": ("kernel,us\nMatMul,1\nAdd\n", "line 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_csv_is_refused_with_what_is_wrong_and_where(tmp_path: Path, name: str) -> None:
    text, said = BAD[name]
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(NpuscopeError) as error:
        read_side(path)
    assert said in str(error.value)
