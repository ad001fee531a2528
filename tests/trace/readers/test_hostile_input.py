"""Inputs an attacker, a crash or a careless tool would make: refused in one sentence, or repaired and counted."""

import gzip
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import small
from builders import (
    as_older,
    balanced,
    kernel_row,
    named,
    point,
    refused,
    write_bundle,
    write_database,
    write_events,
    write_kernel_table,
    write_swimlane,
    x,
)

import npuscope
from npuscope.explain.doctor import symptoms_of
from npuscope.trace import json_stream
from npuscope.trace.json_stream import EventStream


def test_a_batch_that_needs_exact_times_is_counted_once(tmp_path: Path) -> None:
    begin, end = '{"ph":"B","tid":2,"ts":1736405443882078.413}', '{"ph":"E","tid":2,"ts":1736405443882079.413}'
    (tmp_path / "t.json").write_text(f'[{{"ph":"X","name":"a","ts":1,"dur":1.0005}},{{"ph":"X"}},{begin},{end}]')
    trace = npuscope.read(tmp_path / "t.json")
    assert trace.slices.sort("start").select("start", "dur").rows() == [(1000, 1000), (1736405443882078413, 1000)]
    assert trace.meta.repaired == {"time with digits below a nanosecond rounded": 1}
    assert balanced(trace)


@pytest.mark.parametrize("value", ["1" + "0" * 400, "9000000000000000", "-9223372036854775808", "4000000000001"])
def test_times_that_would_overflow_are_left_out(tmp_path: Path, value: str) -> None:
    (tmp_path / "t.json").write_text(
        f'[{{"ph":"X","name":"a","ts":1,"dur":{value}}},{{"ph":"X","name":"b","ts":2,"dur":1}}]'
    )
    trace = npuscope.read(tmp_path / "t.json")
    assert "b" in trace.slices["kernel"].to_list()
    assert trace.slices["dur"].max() <= 4 * 10**15  # type: ignore[operator]
    assert balanced(trace)


@pytest.mark.parametrize(
    "header", [{"baseTimeNanoseconds": 2**63 - 1}, {"baseTimeNanoseconds": 2**70}, {"baseTimeNanoseconds": "now"}]
)
def test_a_time_base_beyond_all_clocks_is_refused(tmp_path: Path, header: dict) -> None:
    refused(write_events(tmp_path / "t.json", [x("a", 0, 1)], **header), "baseTimeNanoseconds")


def test_numbers_in_names_that_fit_no_column_are_just_names(tmp_path: Path) -> None:
    events = [*named("Worker View", "AIC_99999999999"), x("ProfilerStep#" + "9" * 30, 0, 1, cat="user_annotation")]
    trace = npuscope.read(write_events(tmp_path / "t.json", events, distributedInfo={"rank": 2**31}))
    assert trace.lanes["core"].to_list() == [None]
    assert trace.lanes["rank"].to_list() == [None]


def test_bytes_that_are_not_utf8_are_replaced_and_counted(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b'[{"ph":"X","name":"caf\xe9","ts":1,"dur":1,"args":{"a":"\xe9"}}]')
    trace = npuscope.read(tmp_path / "t.json")
    assert trace.slices["kernel"].to_list() == ["caf\ufffd"]
    assert trace.meta.repaired == {"byte that is not UTF-8 replaced": 2}


@pytest.mark.parametrize(
    "text",
    [
        '[{"ph":"X","zz":1,"ts":1},{"ph":}]',
        '[{"ph":"X","name":' + "[" * 50_000 + "]" * 50_000 + "}]",
        '{"traceEvents":[],"x":' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"traceEvents":[],"traceEvents":[{"ph":"X"}]}',
    ],
)
def test_broken_json_of_every_kind_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    refused(tmp_path / "t.json", r"t\.json")


def test_looking_for_the_events_takes_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = ",".join(['{"traceEvents":[]}'] * 100_000)
    (tmp_path / "t.json").write_text(f'{{"a":[{header}],"traceEvents":[{json.dumps(x("k", 0, 1))}]}}')
    tokens = 0

    class Counted:
        def finditer(self, *where: Any) -> Iterator[re.Match[bytes]]:
            nonlocal tokens
            for token in pattern.finditer(*where):
                tokens += 1
                yield token

    pattern = json_stream._TOKEN
    monkeypatch.setattr(json_stream, "_TOKEN", Counted())
    assert npuscope.read(tmp_path / "t.json").slices.height == 1
    assert tokens < 1_000_000  # five of each of the header's 100,000 objects, and few a second time


@pytest.mark.full
def test_one_very_large_event_is_looked_at_a_few_times_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = EventStream._exact_cut

    def counted(*given: Any, **more: Any) -> Any:
        nonlocal looks
        looks += 1
        return look(*given, **more)

    monkeypatch.setattr(EventStream, "_exact_cut", counted)
    (tmp_path / "t.json").write_text(
        f'[{{"ph":"X","name":"k","ts":1,"dur":1,"args":{{"a":[{"{},{}," * 1_000_000}1]}}}}]'
    )
    assert npuscope.read(tmp_path / "t.json").slices.height == 1
    assert looks <= 5  # it is larger than six pieces: after each look only at twice as much


def test_an_unclosed_begin_lasts_to_the_last_event_of_all(tmp_path: Path) -> None:
    events = [{"ph": "B", "name": "b", "pid": 1, "tid": 1, "ts": 10}, x("x", 20, 1000, tid=2)]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert dict(trace.slices.select("kernel", "dur").iter_rows()) == {"b": 1_010_000, "x": 1_000_000}


def test_asynchronous_events_pair_by_their_scoped_id(tmp_path: Path) -> None:
    def event(ph: str, ts: int, id: str) -> dict:
        return {"ph": ph, "cat": "c", "name": id, "pid": 1, "ts": ts, "id2": {"local": id}}

    events = [event("b", 1, "one"), event("b", 2, "two"), event("e", 5, "one"), event("e", 9, "two")]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert sorted(trace.slices.select("kernel", "start", "dur").rows()) == [("one", 1000, 4000), ("two", 2000, 7000)]


def test_a_pipe_is_refused_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    write_events(tmp_path / "t.json", [x("k", 0, 1)])
    assert npuscope.read(tmp_path).slices.height == 1  # beside a capture it is passed over


def test_a_root_says_what_it_could_not_read_and_follows_no_loop(tmp_path: Path) -> None:
    write_events(tmp_path / "a.json", [x("k", 0, 1)])
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b"[" + b" " * 9999)[:30])
    (tmp_path / "loop").symlink_to(tmp_path)
    trace = npuscope.read(tmp_path)
    assert trace.slices.height == 1
    assert list(trace.meta.notes["files_not_read"]) == [str(tmp_path / "b.json.gz")]
    assert "files-not-read" in {finding.id for finding in symptoms_of(trace).symptoms}


def test_messages_cannot_move_the_cursor_and_stay_short(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("Name,Start Time(us),Duration(us)\nk,\x1b[2J" + "9" * 5000 + ",1\n")
    with pytest.raises(npuscope.NpuscopeError) as error:
        npuscope.read(tmp_path / "t.csv")
    assert "\x1b" not in str(error.value)
    assert len(str(error.value)) < 700


def test_clashing_and_enormous_csv_cells(tmp_path: Path) -> None:
    header = ["Name", "Start Time(us)", "Duration(us)", "start", "source start", "Note"]
    row = {**kernel_row(name="n" * 1_000_000), "start": "a", "source start": "b", "Note": ""}
    path = write_kernel_table(tmp_path / "k.csv", [row], header)
    trace = npuscope.read(path)
    trace.write(tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_bytes() == path.read_bytes()


# ---- databases


def change(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return path


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return write_database(tmp_path / "x.db", [(n, n + 5, 2, 1) for n in range(100, 110)], {0: "AI_CORE", 1: "MatMul"})


@pytest.mark.parametrize("table", ["COMPUTE_TASK_INFO", "STRING_IDS"])
def test_repeated_facts_do_not_multiply_tasks(database: Path, table: str) -> None:
    trace = npuscope.read(change(database, f"insert into {table} select * from {table}"))
    assert trace.slices.height == 10
    assert balanced(trace)


def test_odd_values_touch_only_their_row(database: Path) -> None:
    trace = npuscope.read(
        change(
            database,
            "update TASK set endNs = 1e300 where taskId = 0",
            "update TASK set startNs = x'00' where taskId = 1",
        )
    )
    assert trace.slices["dur"].to_list() == [5] * 8
    assert trace.meta.dropped == {"row without a usable time": 2}


@pytest.mark.parametrize(
    "statement",
    [
        "delete from TASK",
        "delete from STRING_IDS",
        "drop table STRING_IDS",
        'create table "a""b" (x)',
        "update TASK set streamId = 'x'",
    ],
)
def test_empty_missing_and_odd_tables_are_no_obstacle(database: Path, statement: str) -> None:
    assert balanced(npuscope.read(change(database, statement)))


def test_rows_in_the_write_ahead_log_are_read(database: Path) -> None:
    db = sqlite3.connect(database)
    db.execute("pragma journal_mode = wal")
    db.execute("insert into TASK select * from TASK")
    db.commit()
    try:
        assert npuscope.read(database).slices.height == 20
    finally:
        db.close()


def test_a_packed_database_is_read(database: Path, tmp_path: Path) -> None:
    (tmp_path / "x.db.gz").write_bytes(gzip.compress(database.read_bytes()))
    assert npuscope.read(tmp_path / "x.db.gz").slices.height == 10


# ---- bundles and swimlanes


@pytest.mark.parametrize(
    ("metadata", "message"),
    [({"num_channels": 10**9}, "room for 65536"), ({"markerLabels": [1]}, "Expected"), ({"start_time": 2**70}, None)],
)
def test_metadata_of_a_bundle(tmp_path: Path, metadata: dict, message: str | None) -> None:
    bundle = write_bundle(tmp_path / "b", {1: point(0, 0, 1)}, **metadata)
    if message is None:
        npuscope.read(bundle).write(tmp_path / "kept")
        return
    refused(bundle, message)


def test_phases_of_odd_types_are_kept_as_text(tmp_path: Path) -> None:
    stamps = {"start_cycles": 10, "end_cycles": 5}
    phases = [[{**stamps, "kind": None, "lane": "x", "loop_iter": "many"}, {**stamps, "kind": 7, "step": "s"}]]
    trace = npuscope.read(write_swimlane(tmp_path, [[0, 1, 1, 10, 20, 0]], aicpu_scheduler_phases=phases))
    assert trace.slices["other"].drop_nulls().to_list() == ['{"lane":"x","loop_iter":"many"}', '{"step":"s"}']
    assert trace.meta.repaired == {"end before start, duration set to zero": 2}


@pytest.mark.parametrize("metadata", [{"clock_freq_hz": 1}, {"clock_freq_hz": 10**12}])
def test_clocks_that_would_overflow_are_refused(tmp_path: Path, metadata: dict) -> None:
    whole = {"clock_freq_hz": 1, "core_types": ["aic"], **metadata}
    refused(write_swimlane(tmp_path, [[0, 1, 1, 2**61, 2**62, 0]], metadata=whole), r"too late a time|clock_freq_hz")


@pytest.mark.parametrize("id", ["abc", "", "0x5", "-1", str(2**70)])
def test_ids_of_dependencies_must_be_numbers(tmp_path: Path, id: str) -> None:
    path = write_swimlane(tmp_path, [[0, 9, 1, 10, 20, 0]])
    (tmp_path / "deps.json").write_text(json.dumps({"tasks": [{"task_id": id}], "edges": []}))
    refused(path, "task id")


# ---- npuscope's own folder


@pytest.mark.parametrize("change", [{"notes": []}, {"records": "x"}, {"dropped": [1]}, {"repaired": {"a": "b"}}])
def test_a_folder_with_a_meta_of_wrong_types_is_refused(tmp_path: Path, change: dict) -> None:
    npuscope.read(write_events(tmp_path / "t.json", [x("k", 0, 1)])).write(tmp_path / "kept")
    meta = json.loads((tmp_path / "kept/meta.json").read_text())
    (tmp_path / "kept/meta.json").write_text(json.dumps({**meta, **change}))
    refused(tmp_path / "kept", r"meta\.json")


def test_slices_without_their_lanes_are_refused(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x("k", 0, 1)]))
    trace.write(tmp_path / "kept")
    trace.lanes.clear().write_parquet(tmp_path / "kept/lanes.parquet")
    refused(as_older(tmp_path / "kept"), "do not belong together")


def test_bytes_that_are_not_utf8_beside_other_oddities(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b'[{"ph":"X","zz":1,"ts":1,"dur":1},{"ph":"X","name":"\xff","ts":1,"dur":1}]')
    assert npuscope.read(tmp_path / "t.json").slices.height == 2
    (tmp_path / "t.json").write_bytes(b'[{"ph":"X","name":"\xff","ts":1,"dur":1},{"ph":oops}]')
    refused(tmp_path / "t.json", r"record [12]")


def test_connections_of_a_database_do_not_multiply(database: Path) -> None:
    change(
        database,
        "create table CANN_API (startNs, endNs, globalTid, name, connectionId)",
        "update TASK set connectionId = 7",
    )
    trace = npuscope.read(change(database, *["insert into CANN_API values (1, 2, 3, 1, 7)"] * 50))
    assert trace.edges.height == 10  # one call launched ten tasks, however often it is listed


def test_sums_of_absurd_durations_do_not_wrap(tmp_path: Path) -> None:
    from npuscope.explain.summary import summarise

    rows = [kernel_row(dur="4000000000000") for _ in range(3000)]
    summary = summarise(npuscope.read(write_kernel_table(tmp_path / "k.csv", rows)))
    assert summary.top_kernels["total_ns"][0] == 3000 * 4 * 10**15


def test_ranks_whose_ids_are_large_stay_apart(tmp_path: Path) -> None:
    for rank, task in ((0, 5), (1, 2**50)):
        events = [*named("Worker View", "AIC_0"), x("k(t1)", 1, 1, args={"taskId": task})]
        write_events(tmp_path / f"rank{rank}.json", events)
    assert npuscope.read(tmp_path).slices["task"].n_unique() == 2


def test_files_with_the_name_of_a_capture_are_missed_when_broken(tmp_path: Path) -> None:
    for rank, content in ((0, None), (1, b""), (2, b"xx"), (3, b"a,b\n1,2\n")):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        if content is None:
            write_kernel_table(folder / "kernel_details.csv", [kernel_row()])
        else:
            (folder / "kernel_details.csv").write_bytes(content)
    assert len(npuscope.read(tmp_path).meta.notes["files_not_read"]) == 3


@pytest.mark.parametrize("made", [small.scope_stats, small.host_phases, small.serving])
def test_a_line_that_is_not_utf8_is_left_out_alone(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    capture = made(tmp_path)
    whole = npuscope.read(capture)
    files = sorted(capture.rglob("*.jsonl")) if capture.is_dir() else [capture]
    files[0].write_bytes(files[0].read_bytes() + b'{"name": "\xe5", "ts": 1}\n')
    trace = npuscope.read(capture)
    assert trace.slices.height == whole.slices.height
    assert balanced(trace)


def test_a_dispatch_whose_run_fits_no_column_says_so(tmp_path: Path) -> None:
    root = small.dispatches(tmp_path)
    identity = next(iter(sorted(root.rglob("dispatch_identity.json"))))
    identity.write_text('{"run_id": 92233720368547758071, "endpoint_dispatch_id": 1}')
    assert "run_id" in str(npuscope.read(root).meta.notes)
