"""Names, places and disks that would make a careless tool lose or mix up data."""

import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import swimlanes
from builders import (
    as_older,
    balanced,
    count,
    flow,
    kernel_row,
    point,
    refused,
    write_bundle,
    write_events,
    write_kernel_table,
    x,
)
from typer.testing import CliRunner, Result

import npuscope
from npuscope.cli import app
from npuscope.explain.doctor import symptoms_of
from npuscope.trace import source


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def is_refused(result: Result) -> bool:
    """In one sentence, with exit code 2, as the entry point makes of it."""
    return isinstance(result.exception, npuscope.NpuscopeError)


def table(path: Path, rows: int = 1) -> Path:
    return write_kernel_table(path, [kernel_row(start=f"{n * 10}.125") for n in range(rows)])


# ---- names that a shell would expand


@pytest.mark.parametrize("name", ["run[1].npu", "run*.npu", "run?.npu"])
def test_a_folders_name_is_a_name_and_no_pattern(tmp_path: Path, name: str) -> None:
    # GIVEN a folder whose name, as a pattern, would be another folder's
    npuscope.read(table(tmp_path / "a.csv", 2)).write(tmp_path / name)
    npuscope.read(table(tmp_path / "b.csv", 5)).write(tmp_path / "run1.npu")
    # WHEN / THEN
    assert npuscope.read(tmp_path / name).slices.height == 2
    assert npuscope.read(tmp_path / name, window=(0, 10**9)).slices.height == 2


def test_a_kernel_tables_name_is_a_name_and_no_pattern(tmp_path: Path) -> None:
    table(tmp_path / "k1.csv", 5)
    assert npuscope.read(table(tmp_path / "k[1].csv", 2)).slices.height == 2


@pytest.mark.parametrize("exchanged", ["slices", "lanes", "edges", "counters"])
def test_a_folder_of_tables_that_do_not_belong_together_is_refused(tmp_path: Path, exchanged: str) -> None:
    several = [x("a", 0, 3), x("b", 1, 3, tid=2), *flow((1, 1, 1), (1, 2, 2)), count("c", 1, value=1)]
    npuscope.read(write_events(tmp_path / "a.json", several)).write(tmp_path / "a.npu")
    npuscope.read(write_events(tmp_path / "b.json", [x("a", 0, 3)])).write(tmp_path / "b.npu")
    shutil.copy(tmp_path / f"b.npu/{exchanged}.parquet", tmp_path / f"a.npu/{exchanged}.parquet")
    refused(tmp_path / "a.npu", rf"{exchanged}\.parquet is not as it was written")
    refused(as_older(tmp_path / "a.npu"), f"do not belong together: {exchanged} has")


def test_an_older_folder_whose_slices_do_not_match_its_account_is_refused(tmp_path: Path) -> None:
    for name, rows in (("a", 3), ("b", 2)):
        npuscope.read(table(tmp_path / f"{name}.csv", rows)).write(tmp_path / f"{name}.npu")
    assert npuscope.read(as_older(tmp_path / "a.npu", "rows")).slices.height == 3
    shutil.copy(tmp_path / "b.npu/slices.parquet", tmp_path / "a.npu/slices.parquet")
    refused(tmp_path / "a.npu", "add up to 2 where 3 records were read")


@pytest.mark.parametrize("damage", ["records", "dropped"])
def test_a_folder_whose_account_was_changed_is_refused(damage: str, tmp_path: Path) -> None:
    npuscope.read(table(tmp_path / "a.csv", 3)).write(tmp_path / "a.npu")
    meta = json.loads((tmp_path / "a.npu/meta.json").read_text())
    meta["records" if damage == "records" else "dropped"] = 2 if damage == "records" else {"lost": 1}
    (tmp_path / "a.npu/meta.json").write_text(json.dumps(meta))
    refused(tmp_path / "a.npu", f"do not belong together: {damage} has")
    del meta["records"]
    (tmp_path / "a.npu/meta.json").write_text(json.dumps(meta))
    refused(tmp_path / "a.npu", "do not belong together")


# ---- outputs that are inputs


@pytest.mark.parametrize("how", ["itself", "link", "hard link", "roundabout"])
def test_an_input_is_never_overwritten(tmp_path: Path, how: str) -> None:
    capture = write_events(tmp_path / "t.json", [x("k", 0, 1, args={"a": [1]})], mood="good")
    before = capture.read_bytes()
    out = {"itself": capture, "roundabout": tmp_path / "x/../t.json"}.get(how, tmp_path / "u.json")
    (tmp_path / "x").mkdir()
    if how == "link":
        out.symlink_to(capture)
    if how == "hard link":
        os.link(capture, out)
    commands: list[list[str | Path]] = [["convert", capture, out], ["info", capture, "-o", out]]
    for command in commands:
        done = run(*command)
        assert is_refused(done)
        assert "input" in str(done.exception)
        assert capture.read_bytes() == before


def test_nor_is_what_a_folder_was_read_from(tmp_path: Path) -> None:
    # GIVEN a profiler root, and a run with a bundle in it
    root = tmp_path / "root"
    root.mkdir()
    capture = table(root / "kernel_details.csv")
    bundle = write_bundle(tmp_path / "run/tracr", {1: point(0, 0, 5) + point(0, 65535, 9)}, markerLabels=["A"])
    # WHEN / THEN
    assert is_refused(run("convert", root, capture))
    assert is_refused(run("convert", tmp_path / "run", bundle))
    assert run("info", root, "-o", root / "new.npu").exit_code == 0
    assert npuscope.read(bundle).slices.height == 1


def test_a_folder_can_be_replaced_from_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npuscope.read(table(tmp_path / "k.csv", 2)).write(tmp_path / "o.npu")
    table(tmp_path / "k.csv", 7)
    monkeypatch.chdir(tmp_path / "o.npu")
    done = run("convert", "../k.csv", "../o.npu")
    assert done.exit_code == 0, done.output
    assert npuscope.read(tmp_path / "o.npu").slices.height == 7
    assert sorted(child.name for child in tmp_path.iterdir()) == ["k.csv", "o.npu"]


def test_a_folder_that_cannot_be_replaced_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = npuscope.read(table(tmp_path / "k.csv", 2))
    trace.write(tmp_path / "o.npu")
    move = os.replace

    def refuse(source: Path, target: Path) -> None:
        if target == tmp_path / "o.npu" and source.name != "old":
            raise OSError("no")
        move(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(npuscope.NpuscopeError):
        trace.write(tmp_path / "o.npu")
    assert npuscope.read(tmp_path / "o.npu").slices.height == 2
    assert sorted(child.name for child in tmp_path.iterdir()) == ["k.csv", "o.npu"]


# ---- disks and roots

FULL = """
import resource, signal, sys
import npuscope
trace = npuscope.read(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # every write beyond fails, as on a full disk
try:
    trace.write(sys.argv[2])
except npuscope.NpuscopeError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["o.npu", "o.json", "o.json.gz", "o.json.zst", "o.pftrace", "o.csv", "o_tracr"])
def test_a_full_disk_is_reported_and_leaves_no_crumbs(tmp_path: Path, name: str) -> None:
    rows = [kernel_row(start=f"{n * 10}.{n * n % 1000:03d}", name=f"k{n * n * 7919 % 10007}") for n in range(3000)]
    capture = write_kernel_table(tmp_path / "k.csv", rows)
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(capture), str(tmp_path / name)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert name in done.stdout
    assert [child.name for child in tmp_path.iterdir()] == ["k.csv"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY  # only there


def test_one_broken_capture_leaves_the_others_readable(tmp_path: Path) -> None:
    # GIVEN three ranks, of which one's file is damaged behind a sound beginning
    for rank in range(3):
        events = write_events(tmp_path / "t.json", [x(f"k{rank}_{n}", n, 1, args={"n": n * n}) for n in range(9000)])
        folder = tmp_path / f"root/rank{rank}"
        folder.mkdir(parents=True)
        packed = bytearray(gzip.compress(events.read_bytes()))
        if rank == 1:
            packed[-2000:-1000] = bytes(1000)
        (folder / "trace.json.gz").write_bytes(packed)
    # WHEN
    trace = npuscope.read(tmp_path / "root")
    # THEN
    assert trace.lanes["rank"].unique().sort().to_list() == [0, 2]
    assert balanced(trace)
    (found,) = (f for f in symptoms_of(trace).symptoms if f.id == "files-not-read")
    assert "rank1" in found.example
    # and where nothing can be read, that is done
    for rank in (0, 2):
        (tmp_path / f"root/rank{rank}/trace.json.gz").write_bytes(packed[:3000])
    refused(tmp_path / "root", "no capture in this folder")


# ---- numbers, names and sizes

HUGE = 2**70


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["metadata"].update(num_cores=HUGE),
        lambda d: d["metadata"].update(core_to_thread=[HUGE, -HUGE]),
        lambda d: d.update(chip_swimlane_level=HUGE),
        lambda d: d["aicore_tasks"][0].__setitem__(1, HUGE),
        lambda d: d["aicore_tasks"][0].__setitem__(6, HUGE),
        lambda d: d["scheduler_tasks"]["records"][0].__setitem__(2, -HUGE),
        lambda d: d["scheduler_records"]["streams"][0].update(scheduler_id=HUGE, physical_core_id=HUGE),
        lambda d: d["scheduler_records"]["streams"][0]["capture"].update(dropped=HUGE),
        lambda d: d["scheduler_records"]["streams"][0]["records"][0].update(task_id=HUGE, loop_iter=HUGE, mood=HUGE),
        lambda d: d["scheduler_records"]["streams"][0]["records"][0].update(start_cycles=HUGE),
        lambda d: d["scheduler_records"]["streams"][0]["metrics"][0].update(pop_hit=HUGE, record_index=HUGE),
        lambda d: d["aicpu_orchestrator_phases"][0][0].update(submit_idx=HUGE, run_epoch=HUGE),
    ],
)
def test_whole_numbers_beyond_64_bits_are_refused_or_kept(tmp_path: Path, change: Any) -> None:
    layout = swimlanes.late_september()
    change(layout)
    done = run("info", swimlanes.write(tmp_path, layout), "-o", tmp_path / "o.npu")
    assert done.exit_code == 0 or is_refused(done), done.exception
    if done.exit_code == 0:
        assert balanced(npuscope.read(tmp_path / "o.npu"))


@pytest.mark.parametrize(
    "deps",
    [
        {"tasks": [{"task_id": "1", "kernel_ids": [HUGE]}], "edges": []},
        {"tasks": [{"task_id": str(HUGE)}], "edges": []},
        {"tasks": [], "edges": [{"pred": "1", "succ": str(2**63)}]},
        {"tasks": [{"task_id": HUGE}], "edges": []},
    ],
)
def test_so_they_are_in_dependencies(tmp_path: Path, deps: dict[str, Any]) -> None:
    path = swimlanes.write(tmp_path, swimlanes.august())
    (tmp_path / "deps.json").write_text(json.dumps(deps))
    refused(path, r"deps\.json")


def test_names_of_files_do_not_move_the_terminals_cursor(tmp_path: Path) -> None:
    capture = table(tmp_path / "k\x1b[2J\n.csv")
    for command, out in (("convert", ["o\x1b[31m.json"]), ("info", ["-o", "p\x1b.json"])):
        done = run(command, capture, *out[:-1], tmp_path / out[-1])
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.output


def test_a_small_file_cannot_take_all_memory(tmp_path: Path) -> None:
    # GIVEN events that pack a thousand times, in a file of less than a megabyte
    piece = b'{"ph":"X"},' * 100_000
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb") as packed:
        packed.write(b"[")
        for _ in range(source.BOMB_FLOOR // len(piece) + 10):
            packed.write(piece)
    assert path.stat().st_size < 1 << 20
    # WHEN / THEN it is refused, having unpacked little more than the floor, a piece at a time
    sizes: list[int] = []
    with pytest.raises(npuscope.NpuscopeError, match=f"{source.BOMB_RATIO} times its size.*unpack it first"):
        sizes.extend(map(len, source.chunks(path)))
    assert max(sizes) <= source.CHUNK
    assert sum(sizes) <= source.BOMB_FLOOR
