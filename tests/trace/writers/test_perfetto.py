"""Perfetto protobuf, judged by the official generated classes."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import count, flow, named, write_events, x
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
from small import SMALL

import npuscope
from npuscope import Trace
from npuscope.trace.writers.perfetto import PacketRows


class Decoded:
    """A .pftrace replayed the way Perfetto does: by time, then the file's order; an end closes its track's newest."""

    def __init__(self, path: Path) -> None:
        trace = PerfettoTrace()
        trace.ParseFromString(path.read_bytes())
        self.tracks: dict[int, Any] = {}
        self.parents: dict[int, Any] = {}
        names: dict[int, str] = {}
        notes: dict[int, str] = {}
        strings: dict[int, str] = {}
        events: list[tuple[int, int, Any]] = []
        counters: set[int] = set()
        for number, packet in enumerate(trace.packet):
            assert packet.trusted_packet_sequence_id == 1
            for entry in packet.interned_data.event_names:
                names[entry.iid] = entry.name
            for entry in packet.interned_data.debug_annotation_names:
                notes[entry.iid] = entry.name
            for entry in packet.interned_data.debug_annotation_string_values:
                strings[entry.iid] = entry.str.decode()
            if packet.HasField("track_descriptor"):
                assert packet.track_descriptor.uuid not in self.tracks
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
                if packet.track_descriptor.HasField("counter"):
                    counters.add(packet.track_descriptor.uuid)
                self.parents[packet.track_descriptor.uuid] = packet.track_descriptor.parent_uuid
            if packet.HasField("track_event"):
                events.append((packet.timestamp, number, packet.track_event))
        self.slices: list[tuple[str, int, int, str]] = []
        self.samples: list[tuple[str, str, int, float]] = []
        self.args: dict[str, dict[str, Any]] = {}
        self.flows: dict[int, list[str]] = {}
        open_slices: dict[int, list[tuple[int, str]]] = {}
        for time, _, event in sorted(events, key=lambda e: e[:2]):
            assert (event.track_uuid in counters) == (event.type == TrackEvent.TYPE_COUNTER)
            if event.type == TrackEvent.TYPE_COUNTER:
                above = self.tracks.get(self.parents[event.track_uuid], "")
                self.samples.append((above, self.tracks[event.track_uuid], time, event.double_counter_value))
                continue
            stack = open_slices.setdefault(event.track_uuid, [])
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                name = names[event.name_iid]
                stack.append((time, name))
                self.args[name] = {notes[a.name_iid]: self._value(a, strings) for a in event.debug_annotations}
                for flow in [*event.flow_ids, *event.terminating_flow_ids]:
                    self.flows.setdefault(flow, []).append(name)
            else:
                start, name = stack.pop()
                self.slices.append((self.tracks[event.track_uuid], start, time - start, name))
        assert not any(open_slices.values())

    @staticmethod
    def _value(annotation: Any, strings: dict[int, str]) -> Any:
        field = annotation.WhichOneof("value")
        value = getattr(annotation, field)
        return strings[value] if field == "string_value_iid" else value


def expected(trace: Trace) -> list[tuple[str, int, int, str]]:
    rows = trace.slices.join(trace.lanes.select("lane", "name"), on="lane")
    return sorted(rows.select("name", "start", "dur", "kernel").rows())


def test_lanes_arguments_and_flows(tmp_path: Path) -> None:
    args = {"task": 7, "ratio": 0.25, "shape": "16,16", "minus": -3, "list": [1]}
    begin = 1_700_000_000_000_000
    events = [
        x("gemm", begin, 5.5, args=args),
        x("add", begin + 10, 1, tid=2),
        *flow((1, 1, begin + 3), (1, 2, begin + 10)),
    ]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    trace.write(tmp_path / "t.pftrace")
    decoded = Decoded(tmp_path / "t.pftrace")
    assert sorted(decoded.slices) == expected(trace)
    assert decoded.args["gemm"] == {**args, "list": "[1]"}
    assert list(decoded.flows.values()) == [["gemm", "add"]]


slices = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 9), st.sampled_from("abc")), max_size=30
)


@given(slices)
def test_any_slices_nest_and_arrive_exactly(tmp_path_factory, rows) -> None:
    folder = tmp_path_factory.mktemp("pf")
    trace = npuscope.read(
        write_events(folder / "t.json", [x(name, start, dur, tid=lane) for lane, start, dur, name in rows])
    )
    trace.write(folder / "t.pftrace")
    assert sorted(Decoded(folder / "t.pftrace").slices) == expected(trace)


def test_batches_join_without_a_seam(tmp_path: Path, monkeypatch) -> None:
    events = [x("parent", 0, 1000), *(x(f"c{i}", i * 10, 10, args={"i": i} if i % 7 == 0 else {}) for i in range(100))]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    monkeypatch.setattr("npuscope.trace.writers.perfetto.BATCH", 9)
    trace.write(tmp_path / "t.pftrace")
    decoded = Decoded(tmp_path / "t.pftrace")
    assert sorted(decoded.slices) == expected(trace)
    assert decoded.args["c98"] == {"i": 98}


REAL = (
    "ascend/longcat_910c/kernel_details.csv",
    "simpler/swimlane/paged_attention_CaseVarSeq4",
    "gpu/tracelens_h100_qwen1.5_0.5b.json.gz",
)


@pytest.mark.parametrize("name", [*SMALL, *REAL])
def test_captures_arrive_whole(
    request: pytest.FixtureRequest, small: dict[str, Path], tmp_path: Path, name: str
) -> None:
    trace = npuscope.read(small[name] if name in small else request.getfixturevalue("shared") / name)
    left_out = dict(trace.write(tmp_path / "t.pftrace"))
    left_out.pop("use of a ring, heap or pool", None)  # of no edge
    decoded = Decoded(tmp_path / "t.pftrace")
    assert sorted(decoded.slices) == expected(trace)
    assert len(decoded.flows) == trace.edges.height - sum(left_out.values())
    assert len(decoded.samples) == trace.counters.height


def test_counters_are_tracks_under_their_lanes(tmp_path: Path) -> None:
    # GIVEN counters of the whole device, of a lane, and of a place where nothing runs; one before all slices
    events = [
        x("k", 5, 1),
        count("depth", 6, value=2.5),
        *named("HBM", pid=8),
        count("read", -3, pid=8, tid=0, value=7),
        *named("whole device", pid=9),
        count("in flight", 4, pid=9, tid=0, value=1e300),
    ]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    # WHEN
    trace.write(tmp_path / "t.pftrace")
    # THEN times begin at zero, and every counter is a track of its own
    decoded = Decoded(tmp_path / "t.pftrace")
    assert sorted(decoded.samples) == [
        ("", "in flight", 7_000, 1e300),
        ("1", "depth", 9_000, 2.5),
        ("HBM", "read", 0, 7.0),
    ]
    assert decoded.slices == [("1", 8_000, 1_000, "k")]


def test_kernel_table_cells_are_arguments(shared: Path, tmp_path: Path) -> None:
    trace = npuscope.read(shared / "ascend/longcat_910c/kernel_details.csv").window(0, 1779440805781822722)
    trace.write(tmp_path / "t.pftrace")
    args = Decoded(tmp_path / "t.pftrace").args["aclnnInplaceOne_OnesLikeAiCore_OnesLike"]
    row = trace.slices.row(0, named=True)
    assert args["Input Shapes"] == row["Input Shapes"] == '"2048,2048"'
    assert args["step"] == 3
    assert pl.Series(list(args)).is_in(trace.slices.columns).all()


def test_an_argument_called_text_is_still_a_number(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x("k", 0, 1, args={"text": 1, "text len": 2})]))
    trace.write(tmp_path / "t.pftrace")
    assert Decoded(tmp_path / "t.pftrace").args["k"] == {"text": 1, "text len": 2}


def test_messages_longer_than_three_bytes_can_tell_are_whole() -> None:
    packet = PacketRows(2)
    packet.begin(1)
    packet.begin(2)
    packet.add_some(np.zeros(300_000, dtype=np.int64), np.full((300_000, 10), 7, dtype=np.uint8))
    packet.end(2)
    data = packet.bytes().tobytes()
    assert data.count(b"\x07") == 3_000_000
    # outer tag, length in five bytes, inner tag, length in five bytes: then the second, empty row
    assert len(data) == 2 * (1 + 5 + 1 + 5) + 3_000_000


def test_many_crossing_slices_all_arrive(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x("k", i, 50_000) for i in range(20_000)]))
    trace.write(tmp_path / "t.pftrace")
    assert sorted(Decoded(tmp_path / "t.pftrace").slices) == expected(trace)
