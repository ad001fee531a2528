"""What a reader does not know it reports: in every format, counted, and as a finding of the doctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import KERNEL_HEADER, count, kernel_row, named, point, write_bundle, write_events, write_kernel_table, x

import npuscope
from npuscope import Trace
from npuscope.explain.doctor import symptoms_of


def told(trace: Trace) -> dict[str, str]:
    return {f.what.removeprefix("unknown "): f.severity for f in symptoms_of(trace).symptoms if f.id == "unknown"}


def test_columns_of_a_kernel_table(tmp_path: Path) -> None:
    header = [*KERNEL_HEADER, "aic_mac_time(us)", "Mood"]
    trace = npuscope.read(write_kernel_table(tmp_path / "k.csv", [kernel_row()] * 3, header))
    assert trace.meta.unknown == {"column 'Mood'": 3}
    assert told(trace) == {"column 'Mood'": "note"}  # it is kept as it is
    assert "Mood" in trace.slices.columns


def test_header_keys_of_json(tmp_path: Path) -> None:
    path = write_events(tmp_path / "t.json", [x("k", 0, 1)], displayTimeUnit="ns", mood="good", more=[1, 2, 3])
    trace = npuscope.read(path)
    assert trace.meta.unknown == {"header key 'mood'": 1, "header key 'more'": 3}
    assert told(trace) == {"header key 'mood'": "note", "header key 'more'": "warning"}  # a list may hold records


def test_categories_of_a_torch_trace(tmp_path: Path) -> None:
    events = [x("op", 0, 9, cat="cpu_op"), x("k", 1, 2, cat="kernel", pid=0, tid=7), x("w", 3, 1, cat="warp_event")]
    trace = npuscope.read(write_events(tmp_path / "t.json", events, deviceProperties=[]))
    assert trace.meta.unknown == {"category 'warp_event'": 1}
    assert told(trace) == {"category 'warp_event'": "warning"}


@pytest.mark.parametrize("view", ["Ascend Hardware", "Worker View"])
def test_processes_of_timelines(tmp_path: Path, view: str) -> None:
    events = [*named(view, "AIC_0"), x("k", 0, 1), *named("Mood", "M", pid=2), x("m", 0, 1, pid=2)]
    events += [count("c", 0, pid=2, tid=3, value=1), *named("Empty", pid=4)]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert trace.meta.unknown == {"process 'Mood'": 2}
    assert told(trace) == {"process 'Mood'": "warning"}


def test_phases_of_events(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x("k", 0, 1), {"ph": "Q"}, {"ph": "N"}, {"ph": "Q"}]))
    assert trace.meta.unknown == {"event phase 'Q'": 2}
    assert sum(trace.meta.dropped.values()) == 3


def test_keys_of_a_bundle_and_its_names(tmp_path: Path) -> None:
    root = write_bundle(tmp_path / "tracr", {1: point(0, 0, 5) + point(0, 65535, 9)}, markerLabels=["A"], mood="good")
    (tmp_path / "name_map_x.json").write_text(json.dumps({"callable_id_to_name": {}, "level": 2, "moods": [1, 2]}))
    assert npuscope.read(root).meta.unknown == {"key of metadata.json 'mood'": 1, "key of a name map 'moods'": 2}


def test_keys_and_files_of_our_own_folder(tmp_path: Path) -> None:
    npuscope.read(write_kernel_table(tmp_path / "k.csv", [kernel_row()])).write(tmp_path / "o.npu")
    meta = json.loads((tmp_path / "o.npu/meta.json").read_text())
    (tmp_path / "o.npu/meta.json").write_text(json.dumps({**meta, "mood": 1}))
    (tmp_path / "o.npu/waits.parquet").write_bytes(b"")
    trace = npuscope.read(tmp_path / "o.npu")
    assert trace.meta.unknown == {"key of meta.json 'mood'": 1, "file 'waits.parquet'": 1}
    assert set(told(trace).values()) == {"note"}


def test_names_that_would_move_a_cursor_are_not_obeyed(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [], **{"\x1b[2J" + "long" * 100: 1}))
    (what,) = told(trace)
    assert "\x1b" not in what
    assert len(what) < 120


def test_everything_in_captures_is_known(any_capture: Path) -> None:
    assert npuscope.read(any_capture).meta.unknown == {}
