"""Plain Chrome and Perfetto JSON: lanes and slices as they are, and nothing lost on the way."""

import json
from pathlib import Path

import pytest
from builders import balanced, named, refused, write_events, x
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope.explain.doctor import symptoms_of


def test_lanes_and_slices_as_they_are(tmp_path: Path) -> None:
    events = [*named("P", "T", pid=3, tid="t"), x("k", 1.5, 2.25, pid=3, tid="t", cat="c", args={"a": 1})]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert trace.lanes.select("name", "process", "unit").row(0) == ("T", "P", "host")
    assert trace.slices.select("start", "dur", "kernel", "cat", "args").row(0) == (1_500, 2_250, "k", "c", '{"a":1}')


def test_nested_slices_keep_their_depth(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x("c", 2, 1), x("a", 0, 10), x("b", 1, 5), x("d", 20, 1)]))
    assert trace.slices.select("kernel", "depth").rows() == [("c", 2), ("a", 0), ("b", 1), ("d", 0)]


def test_begin_and_end_events_pair_by_lane(tmp_path: Path) -> None:
    def edge(ph: str, name: str, ts: float, tid: int) -> dict:
        return {"ph": ph, "name": name, "ts": ts, "pid": 1, "tid": tid}

    events = [
        edge("B", "a", 0, 1),
        edge("B", "b", 1, 1),
        edge("E", "", 2, 1),
        edge("B", "c", 1, 2),
        edge("E", "", 5, 1),
        edge("E", "", 9, 9),
    ]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert sorted(trace.slices.select("kernel", "start", "dur").rows()) == [
        ("a", 0, 5_000),
        ("b", 1_000, 1_000),
        ("c", 1_000, 8_000),
    ]
    assert trace.meta.repaired == {"slice never ended, closed at the last event": 1}
    assert trace.meta.dropped == {"end event without a begin": 1}
    assert balanced(trace)


def test_absolute_times_with_fractions_are_exact(tmp_path: Path) -> None:
    # json.dumps would print a float64; the digits here are what a careful profiler writes
    (tmp_path / "t.json").write_text('[{"ph":"X","name":"k","pid":1,"tid":1,"ts":1736405443882078.413,"dur":0.001}]')
    assert npuscope.read(tmp_path / "t.json").slices["start"].item() == 1_736_405_443_882_078_413


def test_fields_beside_the_usual_ones_are_kept(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x("k", 0, 1, cname="good", tts=5), x("l", 1, 1)]))
    assert json.loads(trace.slices["other"][0]) == {"cname": "good", "tts": 5}
    assert "times_as_text" not in trace.meta.notes


def test_a_list_that_never_ends_is_legal_but_an_object_is_not(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text('[{"ph":"X","name":"k","ts":1,"dur":1,"pid":1,"tid":1},\n')
    trace = npuscope.read(tmp_path / "list.json")
    assert trace.slices.height == 1
    assert "unclosed" in {finding.id for finding in symptoms_of(trace).symptoms}
    (tmp_path / "object.json").write_text('{"traceEvents":[{"ph":"X","name":"k","ts":1,"dur":1}')
    refused(tmp_path / "object.json", "truncated")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"traceEvents":[{"ph":"X","name":"k","ts":1,"du', "record 1.*middle of an event"),
        ('[{"ph":"X"},{"ph":"X"},{"ph":oops}]', "record 3"),
        ('{"a":1}', "no list of trace events"),
        ("[1,2", "middle of an event|not readable"),
        ('{"traceEvents":[{"ph":"X","name":"k","ts":NaN,"dur":1}]}', "record 1"),
        ('[{"args":' + "[" * 100_000 + "]" * 100_000 + "}]", "record 1"),
        ('{"traceEvents":[]} trailing', "damaged JSON after the events"),
    ],
)
def test_broken_json_is_refused_with_its_record(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    message = refused(tmp_path / "bad.json", message)
    assert "bad.json" in message


@pytest.mark.parametrize("value", [None, "soon", 1e300, -1e300, [1], {"a": 1}, True, 10**40, ""])
def test_an_event_without_a_usable_time_is_counted_not_guessed(tmp_path: Path, value) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x("bad", value, 1), x("good", 5, 1)]))
    assert trace.slices["kernel"].to_list() == ["good"]
    assert trace.meta.dropped == {"event without a usable time": 1}


def test_a_million_lanes_stay_a_table(tmp_path: Path) -> None:
    events = ",".join(f'{{"ph":"X","name":"k","ts":{i},"dur":1,"pid":1,"tid":{i}}}' for i in range(1_000_000))
    (tmp_path / "t.json").write_text(f"[{events}]")
    assert npuscope.read(tmp_path / "t.json").lanes.height == 1_000_000


def test_pieces_are_cut_between_events_wherever_braces_hide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [x(f'}} , {{ "{i}', i, 1, args={"nest": [{"a": "},{"}, {"b": 1}], "s": '\\"}, {'}) for i in range(200)]
    path = write_events(tmp_path / "t.json", events, before={"traceEvents": 'not "traceEvents": ['})
    whole = npuscope.read(path)
    for size in (64, 100, 257, 1000):
        monkeypatch.setattr("npuscope.trace.source.chunks.__defaults__", (size,))
        assert npuscope.read(path).slices.equals(whole.slices)
    assert whole.slices.height == 200


numbers = st.one_of(
    st.integers(-(10**6), 10**16),
    st.floats(-1e6, 1e16),
    st.none(),
    st.text(max_size=3),
    st.decimals(0, 10**6, places=3).map(str),
)
events = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "B", "E", "s", "f", "t", "i", "C", "M", "b", "e", "N", ""])},
    optional={
        "name": st.one_of(st.text(max_size=4), st.integers(), st.none()),
        "cat": st.sampled_from(["a", "b"]),
        "pid": st.one_of(st.integers(0, 2), st.text(max_size=2), st.floats(-1e9, 1e9), st.none()),
        "tid": st.one_of(st.integers(0, 2), st.none()),
        "ts": numbers,
        "dur": numbers,
        "id": st.one_of(st.integers(0, 3), st.integers(2**63, 2**65), st.text(max_size=2), st.none()),
        "args": st.one_of(st.dictionaries(st.text(max_size=3), st.integers()), st.none(), st.integers()),
        "cname": st.text(max_size=2),
    },
)


def is_counter(event: dict) -> bool:
    usable = event["ph"] == "C" and isinstance(event.get("args"), dict)
    return usable and event.get("ts") is not None and is_time(event["ts"])


def is_time(ts: object) -> bool:
    try:
        return abs(float(ts)) <= 4e15  # type: ignore[arg-type]
    except ValueError:
        return False


@given(st.lists(events, max_size=30))
def test_every_event_is_a_slice_or_accounted_for(tmp_path_factory, events) -> None:
    path = write_events(tmp_path_factory.mktemp("c") / "t.json", events)
    trace = npuscope.read(path)
    # a counter event counts once per number it may hold
    assert trace.meta.records == sum(max(1, len(e["args"])) if is_counter(e) else 1 for e in events)
    assert balanced(trace)
    assert (trace.slices["dur"] >= 0).all()
    assert trace.slices["lane"].is_in(trace.lanes["lane"].implode()).all()
