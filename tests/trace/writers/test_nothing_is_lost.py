"""A capture that was written and read again says the same verdict, busy and core time; or `left_out` names the loss."""

from pathlib import Path

import pytest
from builders import kernel_row, write_kernel_table, write_swimlane
from made import Task, made
from planted_ranks import Programs
from real_data import DATA

import npuscope
from npuscope import explain as analysis
from npuscope.base.errors import BadInput
from npuscope.explain.choosing import split_ranks
from npuscope.explain.ranks import explain_ranks
from npuscope.trace import Trace

KINDS = (
    "ascend/**/kernel_details.csv", "ascend/**/trace_view.json", "ascend/**/*.db", "gpu/*", "pypto/*", "cann_pypto/*",
    "simpler/swimlane*/*", "simpler/tracr/*", "simpler_ranks/*", "simpler_misc/examples/fragments/*", "tracr/*/*/tracr",
)  # fmt: skip
REAL = sorted({str(found.relative_to(DATA)) for kind in KINDS for found in DATA.glob(kind)})


def said(trace: Trace) -> list[object]:
    """Per rank: verdict, when anything ran, core time by unit, blocks and tasks; then what all ranks suffer from."""
    found: list[object] = []
    for part in split_ranks(trace):
        e = analysis.explain(part.trace)
        units = sorted(e.busy.units.select("unit", "lanes", "busy_ns").rows())
        counts = (e.scheduling.tasks, e.scheduling.launches)
        found.append((part.rank, part.device, e.diagnosis.verdict.sentence, e.busy.running, units, counts))
    return [*found, explain_ranks(trace).diagnosis.verdict.sentence]


@pytest.mark.full
@pytest.mark.parametrize("name", REAL)
def test_real_captures_come_back_from_chrome_json(shared: Path, tmp_path: Path, name: str) -> None:
    try:
        trace = npuscope.read(shared / name)
    except BadInput:
        pytest.skip("no capture")
    left_out = trace.write(tmp_path / "out.json.gz")
    back = npuscope.read(tmp_path / "out.json.gz")
    assert said(back) == said(trace)
    assert back.edges.height + left_out.get("edge without a slice at both ends", 0) == trace.edges.height


def cores() -> Trace:
    tasks = [Task(1, "qk", "AIC_3", 0, 10, 0, 11), Task(2, "softmax", "AIV_5", 12, 20, 11, 21)]
    return made(tasks, [(1, 2)])


def test_units_cores_stamps_and_edges_come_back(tmp_path: Path) -> None:
    trace = cores()
    assert trace.write(tmp_path / "t.json") == {}
    back = npuscope.read(tmp_path / "t.json")
    assert said(back) == said(trace)
    columns = ["task", "dispatch", "finish"]
    assert back.slices.select(columns).rows() == trace.slices.select(columns).rows()
    assert (
        back.lanes.select("unit", "core", "device", "rank").rows()
        == trace.lanes.select("unit", "core", "device", "rank").rows()
    )
    assert back.edges.select("src", "dst", "source").rows() == trace.edges.select("src", "dst", "source").rows()


def test_blocks_of_a_task_stay_one_task_beside_slices_without_one(tmp_path: Path) -> None:
    blocks = [[2, 7, 1, 100, 200, 5], [3, 7, 1, 100, 230, 5], [4, 8, 1, 300, 350, 5]]
    stamps = [[core, 1, start - 20, end + 10] for core, _, _, start, end, _ in blocks]
    phases = [[{"kind": "dispatch", "start_cycles": 60, "end_cycles": 90, "loop_iter": 1, "tasks_processed": 2}]]
    trace = npuscope.read(write_swimlane(tmp_path, blocks, stamps, aicpu_scheduler_phases=phases))
    assert trace.slices["task"].null_count() == 1
    trace.write(tmp_path / "t.json")
    back = npuscope.read(tmp_path / "t.json")
    assert back.slices["task"].to_list() == trace.slices["task"].to_list()
    assert said(back) == said(trace)


def test_runs_over_ranks_and_profiles_of_servers_come_back(tmp_path: Path) -> None:
    launched, staged = [[0, 600], [5000, 5600]], [[100, 100], [100, 100]]
    root = Programs(launched, staged, [0, 70_000]).write(tmp_path / "root")
    profile = tmp_path / "trace.60.jsonl"
    profile.write_text(
        '{"name": "scheduler.schedule", "cat": "scheduler", "ph": "X", "ts": 5, "dur": 9, "pid": 6, "tid": 6}\n'
    )
    for number, source in enumerate((root, profile)):
        trace = npuscope.read(source)
        assert trace.write(tmp_path / f"{number}.json") == {}
        assert said(npuscope.read(tmp_path / f"{number}.json")) == said(trace)
    assert str(said(npuscope.read(root))[-1]).startswith("The host launched rank 1 600 µs after rank 0")


def test_ranks_devices_and_duplicate_marks_come_back(tmp_path: Path) -> None:
    for rank in (0, 1):
        out = tmp_path / "root" / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        out.mkdir(parents=True)
        logical = kernel_row(name="HcomAllReduce_6_0_1", type="HcomAllReduce", core="COMMUNICATION", stream="N/A")
        physical = kernel_row(name="AivKernel", type="HcomAllReduce", core="COMMUNICATION", stream="165")
        write_kernel_table(out / "kernel_details.csv", [logical, physical])
    trace = npuscope.read(tmp_path / "root")
    assert trace.slices["duplicate_of"].count() == 2
    trace.write(tmp_path / "t.json")
    back = npuscope.read(tmp_path / "t.json")
    assert said(back) == said(trace)
    assert back.slices["duplicate_of"].count() == 2


def test_a_table_names_what_it_has_no_room_for(tmp_path: Path) -> None:
    left_out = cores().write(tmp_path / "t.csv")
    assert left_out == {"edge": 1, "core of a lane": 2, "time of dispatch or finish": 4}
