"""The doctor finds each fault it knows, says how often, and stays silent on a sound capture."""

import json
from pathlib import Path

import pytest
import swimlanes
from builders import (
    KERNEL_HEADER,
    RESET,
    flow,
    kernel_row,
    point,
    write_bundle,
    write_events,
    write_kernel_table,
    write_swimlane,
    x,
)

import npuscope
from npuscope.explain.doctor import MOST_COUNTED, Symptom, symptoms_of


def findings(path: Path) -> dict[str, Symptom]:
    return {finding.id: finding for finding in symptoms_of(npuscope.read(path)).symptoms}


def test_a_sound_capture_has_no_findings(tmp_path: Path) -> None:
    rows = [kernel_row(start=f"{n * 10}.125", dur="3.003") for n in range(30)]
    diagnosis = symptoms_of(npuscope.read(write_kernel_table(tmp_path / "k.csv", rows)))
    assert diagnosis.symptoms == ()
    assert diagnosis.verdict.startswith("sound")


def test_overlapping_slices(tmp_path: Path) -> None:
    found = findings(write_events(tmp_path / "t.json", [x(f"k{i}", i, 100) for i in range(100)]))
    assert (found["overlap"].count, found["overlap"].severity) == (99, "warning")


def test_nested_slices_are_not_overlapping(tmp_path: Path) -> None:
    assert "overlap" not in findings(write_events(tmp_path / "t.json", [x("a", 0, 10), x("b", 1, 5), x("c", 6, 4)]))


def test_duplicates_are_told_with_the_time_they_would_add(tmp_path: Path) -> None:
    comm = {"type": "HcomAllReduce", "core": "COMMUNICATION", "start": "1.000", "dur": "14061.241"}
    rows = [kernel_row(name="HcomAllReduce_1", stream="N/A", **comm), kernel_row(name="AivKernel", stream="7", **comm)]
    found = findings(write_kernel_table(tmp_path / "k.csv", rows))
    assert found["duplicates"].count == 1
    assert "14.1 ms twice" in found["duplicates"].effect


def test_whole_microseconds(tmp_path: Path) -> None:
    rows = [kernel_row(start=f"{n * 10}", dur="3") for n in range(30)]
    assert findings(write_kernel_table(tmp_path / "k.csv", rows))["whole-us"].count == 30


def test_times_that_went_through_a_float64(tmp_path: Path) -> None:
    exact = [1_779_440_805_781_809.542 + n * 13.377 for n in range(30)]  # Python rounds these to quarters
    rows = [kernel_row(start=f"{time:.3f}", dur="3.003") for time in exact]
    assert "float-times" in findings(write_kernel_table(tmp_path / "k.csv", rows))


def test_text_times(tmp_path: Path) -> None:
    assert findings(write_events(tmp_path / "t.json", [x("a", "1.5", 1)]))["text-times"].severity == "note"


def test_missing_streams_and_idle_cores(tmp_path: Path) -> None:
    header = ["Step Id", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)"]
    assert "no-streams" in findings(write_kernel_table(tmp_path / "k.csv", [kernel_row()], header))
    assert findings(write_swimlane(tmp_path / "s", [[0, 1, 1, 10, 20, 0]]))["idle-cores"].count == 5


def test_steps_missing_cut_or_unlike_the_others(tmp_path: Path) -> None:
    rows, time = [], 0.0
    for step, kernels, pace in ((1, 10, 50), (2, 10, 10), (3, 10, 10), (5, 10, 10), (6, 2, 10)):
        for _ in range(kernels):
            rows.append(kernel_row(step=str(step), start=f"{time:.3f}", dur="3.003"))
            time += pace
    found = findings(write_kernel_table(tmp_path / "k.csv", rows))
    assert found["step-gaps"].count == 1
    assert found["step-cut"].example.startswith("step 6: 2 of usually 10")
    assert found["step-outlier"].example.startswith("step 1")


def test_clocks_that_disagree(tmp_path: Path) -> None:
    events = [x("send", 100, 10, pid=1), x("recv", 50, 10, pid=2), *flow((1, 1, 105), (2, 1, 55))]
    found = findings(write_events(tmp_path / "t.json", events))
    assert found["clock-skew"].example == "by up to 50 µs"
    # core: start 100 cycles, end 200; AICPU: dispatch 110, finish 190, at 20 ns each
    found = findings(write_swimlane(tmp_path / "s", [[0, 1, 1, 100, 200, 0]], [[0, 1, 110, 190]]))
    assert "by up to 200 ns" in found["dispatch-skew"].example
    assert found["finish-skew"].count == 1


def test_full_and_shared_buffers(tmp_path: Path) -> None:
    many = b"".join(point(0, n % 2, n) for n in range(1 << 14))
    found = findings(write_bundle(tmp_path / "full", {1: many}, markerLabels=["A", "B"]))
    assert "16,384" in found["full-buffer"].example
    threads = {1: point(0, 0, 1) + point(0, RESET, 9), 2: point(0, 1, 5) + point(0, RESET, 7)}
    assert findings(write_bundle(tmp_path / "shared", threads, markerLabels=["A", "B"]))["shared-channel"].count == 1


def test_tasks_missing_from_a_cores_sequence(tmp_path: Path) -> None:
    found = findings(write_swimlane(tmp_path, [[0, n, n, n * 10, n * 10 + 5, 0] for n in (1, 2, 5, 6)]))
    assert found["lost-tasks"].count == 2


def test_a_damaged_counter_of_lost_records_is_told_and_fits_a_table(tmp_path: Path) -> None:
    layout = swimlanes.built_by_the_host()
    layout["metadata"]["host_capture"]["dropped_records"] = 10**30
    told = symptoms_of(npuscope.read(swimlanes.write(tmp_path / "run", layout)))
    assert told.as_dict()["symptoms"]  # as a table with a column of counts
    assert ("dropped-records", MOST_COUNTED) in {(one.id, one.count) for one in told.symptoms}


def test_graph_replays(tmp_path: Path) -> None:
    header = ["Name", "Start Time(us)", "Duration(us)", "Model ID", "Stream ID"]
    rows = [{**kernel_row(), "Model ID": "3"}, {**kernel_row(), "Model ID": "4294967295"}]
    assert findings(write_kernel_table(tmp_path / "k.csv", rows, header))["graph"].count == 1
    kernels = [x("gemm", start, 1, pid=0, tid=7, cat="kernel") for start in (9, 12)]
    events = [x("hipGraphLaunch", 0, 5, cat="cuda_runtime"), *kernels, *flow((1, 1, 1), (0, 7, 9), "ac2g")]
    assert "1 of 2 device tasks" in findings(write_events(tmp_path / "t.json", events))["replay"].example


def test_dependencies_that_were_refused_are_told(tmp_path: Path) -> None:
    path = write_swimlane(tmp_path, [[0, 9, 1, 10, 20, 0]])
    (tmp_path / "deps.json").write_text(json.dumps({"tasks": [{"task_id": "1"}], "edges": []}))
    assert "deps-refused" in findings(path)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("ascend/longcat_910c/kernel_details.csv", {"duplicates", "step-outlier", "graph"}),
        ("ascend/msinsight_cnn/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", {"no-streams"}),
        ("gpu/hta_t1_df_index_resolver.json.gz", {"whole-us"}),
        ("gpu/tracelens_sglang_qwen3_8b_decode.json.gz", {"replay"}),
        ("tracr/flow", {"clock-skew"}),
        ("simpler/tracr/bgemm0_both_quiet/tracr/perfetto.json.gz", {"cut-short"}),
    ],
)
def test_real_captures_show_their_known_faults(shared: Path, name: str, ids: set[str]) -> None:
    assert ids <= set(findings(shared / name))


@pytest.mark.parametrize("level", [1, 4])
def test_what_recording_added_is_told_with_its_source(tmp_path: Path, level: int) -> None:
    # GIVEN four tasks on one core, of which two follow within 1.22 µs, at 20 ns a cycle
    rows = [[0, 1, 1, 1000, 1100, 0], [0, 2, 2, 1140, 1200, 0], [0, 3, 3, 1260, 1300, 0], [0, 4, 4, 1400, 1500, 0]]
    trace = npuscope.read(write_swimlane(tmp_path, rows, chip_swimlane_level=level))
    # WHEN
    (found,) = (f for f in symptoms_of(trace).symptoms if f.id == "instrumented")
    # THEN
    assert (found.severity, found.count, found.example) == ("note", 4, "2 back to back")
    assert "1.04 to 1.62 µs on the core with most of them (simpler's investigation of July 2026)" in found.effect
    assert ("9% longer" in found.effect) == (level == 4)


def test_kernels_with_hardware_counters_say_what_those_cost(tmp_path: Path) -> None:
    header = [*KERNEL_HEADER, "aic_total_cycles"]
    rows = [{**kernel_row(), "aic_total_cycles": told} for told in ("12", "N/A", "7")]
    assert findings(write_kernel_table(tmp_path / "k.csv", rows, header))["instrumented"].count == 2
    assert "instrumented" not in findings(write_kernel_table(tmp_path / "l.csv", rows))


def test_an_empty_capture_is_not_sound(tmp_path: Path) -> None:
    assert "empty" in findings(write_events(tmp_path / "t.json", []))


def test_a_register_that_starts_over_loses_nothing(tmp_path: Path) -> None:
    ids = [65534, 65535, 0, 1]
    found = findings(write_swimlane(tmp_path, [[0, n, id, 10 + n * 10, 15 + n * 10, 0] for n, id in enumerate(ids)]))
    assert "lost-tasks" not in found


def test_checks_see_through_a_root_of_ranks(tmp_path: Path) -> None:
    header = ["Name", "Start Time(us)", "Duration(us)"]
    for rank, start in ((0, "10.001"), (1, "900.001")):
        (tmp_path / f"rank{rank}").mkdir()
        write_kernel_table(tmp_path / f"rank{rank}" / "kernel_details.csv", [kernel_row(start=start)], header)
    found = findings(tmp_path)
    assert found["no-streams"].count == 2
    assert found["ranks-apart"].count == 1
