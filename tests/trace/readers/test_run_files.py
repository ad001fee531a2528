"""What lies beside a run: counters of cores, arguments, rings, phases of the bind, a server's profile and its log."""

import json
from pathlib import Path

import pytest
from command import npuscope
from planted_ranks import US, Planted, log_of, span
from real_data import DATA
from small import SMALL

from npuscope.base.errors import BadInput
from npuscope.explain.rings import rings_of
from npuscope.trace.formats import read
from npuscope.trace.readers.host_log import HostLog
from npuscope.trace.readers.run_files import read_scopes

CAPACITIES = {"task_window_max": [8, 4], "heap_max": [4096, 4096], "dep_pool_max": [64, 64], "tensormap_max": 128}


def scopes(path: Path, version: int, *pairs: dict[str, tuple[int, int, int, int]]) -> Path:
    """A file whose scopes have, per resource, what was released and allocated when each began and ended."""
    lines: list[object] = [{"version": version, "fatal": False, "dropped": 2, "total": 9, **CAPACITIES}]
    for number, pair in enumerate(pairs):
        for phase, place in (("begin", 0), ("end", 2)):
            counts = {
                f"{name}_{side}": values[place + n]
                for name, values in pair.items()
                for n, side in enumerate(("start", "end"))
            }
            scope = {"site": f"a.cpp:{10 + number}", "phase": phase, "depth": 1, "ring": 1}
            lines.append({**scope, **counts, "tensormap": 3 * (number + 1)})
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"site": "a.c')
    return path


def test_rings_are_held_against_what_they_hold(tmp_path: Path) -> None:
    path = scopes(
        tmp_path / "scope_stats.jsonl", 6,
        {"task_window": (0, 0, 1, 3), "heap": (0, 0, 0, 1000), "dep_pool": (1, 1, 1, 5)},
        {"task_window": (1, 3, 4, 7), "heap": (0, 1000, 500, 3000), "dep_pool": (1, 5, 2, 9)},
    )  # fmt: skip
    found = rings_of(read(path).meta)
    assert found is not None
    rows = {row["resource"]: row for row in found.table.iter_rows(named=True)}
    # end's allocated minus begin's released, over two scopes: 3 - 0, then 7 - 1
    window = rows["task_window"]
    assert (window["high_water"], window["live"], window["site"], window["set_to"]) == (6, 3, "a.cpp:11", 16)
    assert (rows["heap"]["high_water"], rows["dep_pool"]["high_water"], rows["tensormap"]["high_water"]) == (3000, 8, 6)
    assert found.settings == ["PTO2_RING_TASK_WINDOW=8,16"]
    assert "2 samples were lost" in " ".join(found.sentences)
    assert sum(read(path).meta.dropped.values()) == 1  # the half line
    done = npuscope("report", path)
    assert "PTO2_RING_TASK_WINDOW=8,16" in done.stdout


def test_older_versions_have_no_dependency_pool_and_a_heap_that_wraps(tmp_path: Path) -> None:
    pair = {"task_window": (0, 0, 0, 1), "heap": (3000, 4000, 3500, 200)}
    for version in (4, 5):
        found = read_scopes(scopes(tmp_path / f"{version}.jsonl", version, pair))
        uses = {use.resource: use for use in found.uses}
        assert (uses["heap"].high_water, uses["heap"].live) == (200 - 3000 + 4096, 200 - 3500 + 4096)
        assert "dep_pool" not in uses
    done = npuscope("info", scopes(tmp_path / "9.jsonl", 9, pair))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_a_scope_whose_depth_is_damaged_still_has_its_end(tmp_path: Path) -> None:
    path = scopes(tmp_path / "scope_stats.jsonl", 6, {"task_window": (0, 0, 1, 3)})
    path.write_text(path.read_text().replace('"depth": 1', '"depth": [1]'))
    uses = {use.resource: use.high_water for use in read_scopes(path).uses}
    assert uses == {"task_window": 3, "tensormap": 3}


@pytest.mark.skipif(not (DATA / "simpler_misc").is_dir(), reason="the real captures are not here")
def test_the_public_file_of_version_4() -> None:
    found = read_scopes(DATA / "simpler_misc" / "scope_stats_v4.jsonl")
    uses = {(use.resource, use.ring): (use.high_water, use.capacity) for use in found.uses}
    assert uses == {("task_window", 0): (1, 16384), ("heap", 0): (0, 268435456), ("tensormap", None): (1, 65536)}


def test_counters_and_arguments_lie_with_their_tasks(tmp_path: Path) -> None:
    trace = read(SMALL["counted_tasks"](tmp_path))
    tasks = {row["task"]: row for row in trace.slices.iter_rows(named=True)}
    assert (tasks[1]["cube_busy_cycles"], tasks[1]["aic_mac_ratio"], tasks[2]["aiv_mte2_ratio"]) == (600, 0.6, 0.6)
    assert (tasks[1]["inputs"], tasks[2]["inputs"]) == ("float32[16,4]", None)
    assert trace.meta.notes["args_dump"] == {"tasks": 1, "dropped_records": 3}
    assert rings_of(trace.meta) is not None


def test_a_dump_of_odd_arguments_is_counted_or_refused(tmp_path: Path) -> None:
    capture = SMALL["counted_tasks"](tmp_path)
    dump = next(tmp_path.rglob("args_dump.json"))
    dump.write_text(json.dumps({"args": [{"task_id": "f" * 40}, {"task_id": "0x1", "shape": [2]}, 5]}))
    assert read(capture).meta.marked["dumped argument that cannot be read"] == 2
    dump.write_text('{"args": 5}')
    with pytest.raises(BadInput, match="no list of arguments"):
        read(capture)


def test_phases_of_the_bind_are_parts_of_their_call(tmp_path: Path) -> None:
    Planted([100, 700], [5, 900_000]).write(tmp_path)
    begin = 10**9 - 50 * US
    (tmp_path / "host.11.log").write_text(log_of(11, 10**9, 650 * US))
    phases = [
        {"phase": "host_orch", "start_ns": begin + 32 * US, "end_ns": begin + 40 * US, "detail": 0, "tid": 11},
        {"phase": "submit_task", "start_ns": begin + 33 * US, "end_ns": begin + 35 * US, "detail": 0, "tid": 11},
        {"phase": "record_node", "start_ns": begin + 33 * US, "end_ns": begin + 36 * US, "detail": 0, "tid": 12},
    ]
    line = {"pid": 11, "inv": 7, "clock": "host_monotonic_ns", "dropped": 5, "records": phases}
    (tmp_path / "host_phase_records.jsonl").write_text(json.dumps(line) + '\n{"pid": 11, "inv": 8, "rec')
    trace = read(tmp_path)
    host = trace.slices.filter(trace.slices["kind"] == "host")["kernel"].to_list()
    assert {"chip.run.bind.host_orch", "chip.run.bind.host_orch.submit_task"} <= set(host)
    parts = {
        row["part"].strip(): row["slowest_ns"]
        for row in json.loads(npuscope("step", tmp_path, "--json").stdout)["parts"]
    }
    assert (parts["bind arguments and runtime image"], parts["args"], parts["host_orch"]) == (40 * US, 30 * US, 8 * US)


def test_a_servers_log_with_spans_far_down(tmp_path: Path) -> None:
    """Other lines come first, two records share a line, a value is cut, and the log says that it lost some."""
    noise = "".join(f"INFO 09-09 request {number} arrived\n" for number in range(4000))
    lines = log_of(11, 10**9, 650 * US).splitlines()
    cut = span("chip.run.bind", 1, 5, 9, 12, "shape=1,2,3~")
    text = noise + lines[0] + lines[1] + "\n" + "\n".join(lines[2:]) + f"\n{cut}\n[HOSTLOG_DROPS] count=3\n"
    path = tmp_path / "server.log"
    path.write_text(text)
    trace = read(path)
    assert trace.meta.format == "host-log"
    assert trace.meta.marked == {"span with a value cut off": 1}
    assert HostLog().read(path).ledger.notes["host_log_drops"] == 1
    assert trace.meta.notes["calls_cut_off"] == 1


def test_segments_of_a_bind_that_name_no_call_find_theirs(tmp_path: Path) -> None:
    """Until September 2026 they were lines without process and call."""
    path = tmp_path / "host.11.log"
    begin = 10**9 - 50 * US
    segments = f"[mono_ns=1][T0x1][INFO] x: bind phase=arena_h2d start_ns={begin + 32 * US} dur_ns=4000 bytes=632\n"
    strange = "[mono_ns=1][T0x1][INFO] x: bind phase=arena_h2d start_ns=5 dur_ns=4000\n"
    path.write_text(segments + strange + log_of(11, 10**9, 650 * US))
    log = HostLog().read(path)
    (call,) = log.calls
    assert call.by_name["chip.run.bind.arena_h2d"].dur_ns == 4000
    assert sum(log.ledger.dropped.values()) == 1


def test_fragments_of_a_profile_and_the_merged_file_read_alike(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    fragments, merged = read(SMALL["serving"](tmp_path / "a")), read(SMALL["serving_merged"](tmp_path / "b"))
    columns = ["start", "dur", "kernel", "kind"]
    assert fragments.slices.select(columns).equals(merged.slices.select(columns))
    assert fragments.meta.format == merged.meta.format == "serving"
    assert sum(fragments.meta.dropped.values()) == 1
