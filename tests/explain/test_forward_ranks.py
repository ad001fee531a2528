"""Many ranks: the same answer in one process, in many and on a Ray cluster; and who waits for whom."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import npuscope
from planted import QWEN, Plan, plant

from npuscope.base.errors import CannotWrite, NpuscopeError
from npuscope.base.pool import ENGINES
from npuscope.explain.passes.ranks import ForwardOptions, ForwardRanks, forward
from npuscope.trace import read

SMALL = replace(QWEN, layers=6)


def root_of(folder: Path, plans: list[Plan]) -> Path:
    for rank, plan in enumerate(plans):
        place = folder / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        place.mkdir(parents=True)
        plant(plan, place / "kernel_details.csv")
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ranks that run the same passes; a collective of rank 1's second pass waits 60 ms for the others."""
    plans = [Plan(SMALL, ("decode",) * 3, seed=seed, stall=1 if seed == 1 else None) for seed in range(3)]
    return root_of(tmp_path_factory.mktemp("root"), plans)


@pytest.mark.full
def test_processes_and_ray_give_the_same(root: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
    wanted = ForwardOptions(statistics=True)
    here: Any = forward(root, wanted, jobs=1).as_dict()
    assert [rank["rank"] for rank in here["ranks"]] == [0, 1, 2]
    assert forward(root, wanted, "processes", jobs=2).as_dict() == here
    assert forward(root, wanted, "ray", jobs=2).as_dict() == here


def test_an_error_in_a_rank_is_one_sentence_with_its_file(root: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
    for workers in ENGINES:
        with pytest.raises(NpuscopeError, match="no kernel matches the anchor 'nothing'"):
            forward(root, ForwardOptions(anchor="nothing"), workers, jobs=2)


def test_a_bad_cell_in_a_rank_is_told_with_file_and_line(tmp_path: Path) -> None:
    root_of(tmp_path, [Plan(SMALL, ("decode",) * 2)] * 2)
    path = next((tmp_path / "rank1_ascend_pt").rglob("*.csv"))
    rows = path.read_text().splitlines()
    cells = rows[6].split(",")
    rows[6] = ",".join([*cells[:7], "soon", *cells[8:]])
    path.write_text("\n".join(rows))
    result = forward(tmp_path, ForwardOptions(), jobs=2)
    assert [rank.rank for rank in result.ranks] == [0]  # the others are cut all the same
    (why,) = result.not_read.values()
    assert "kernel_details.csv, line 7: 'soon' in column Duration" in why
    with pytest.raises(NpuscopeError, match="no engine 'slurm'"):
        forward(tmp_path, ForwardOptions(), "slurm")


def test_the_rank_that_waits_longest_is_not_the_slow_one(root: Path) -> None:
    """Rank 1 spends 60 ms more in one collective of one of three passes: 20 ms per pass, waiting for the others."""
    skew = forward(root, ForwardOptions(), jobs=1).skew
    assert skew is not None
    assert skew.passes == 3
    waits = dict(skew.table.select("rank", "wait_ns").iter_rows())
    assert waits[1] == pytest.approx(20_000_000, rel=0.01)
    assert max(waits[0], waits[2]) < 100_000
    assert "wait for rank 1" not in skew.title()


def waits_by_hand(result: ForwardRanks) -> list[float]:
    """The wait of each rank, collective by collective, in plain Python."""
    waits = [0.0 for _ in result.ranks]
    passes = len(result.ranks[0].collectives)
    for number in range(passes):
        for together in zip(*(rank.collectives[number].tolist() for rank in result.ranks), strict=True):
            for place, ns in enumerate(together):
                waits[place] += (ns - min(together)) / passes
    return waits


def test_waits_are_what_a_plain_loop_finds(root: Path) -> None:
    result = forward(root, ForwardOptions(), jobs=1)
    assert result.skew is not None
    assert result.skew.table["wait_ns"].to_list() == pytest.approx(waits_by_hand(result))


def test_passes_of_ranks_meet_by_time_where_a_capture_began_late(tmp_path: Path) -> None:
    """Rank 1's capture lacks the first pass and a half: its passes 0 and 1 are rank 0's passes 1 and 2."""
    rows = sum(map(len, SMALL.kernels()))
    plans = [Plan(SMALL, ("decode",) * 4), Plan(SMALL, ("decode",) * 4, lost_head=rows + rows // 2)]
    skew = forward(root_of(tmp_path, plans), ForwardOptions(), jobs=1).skew
    assert skew is not None
    assert skew.passes == 2  # the half one has fewer attentions
    assert skew.table["wait_ns"].to_list() == [0.0, 0.0]  # the same seed runs the same times


def test_a_trace_of_many_ranks_is_taken_apart(root: Path, tmp_path: Path) -> None:
    read(root).write(tmp_path / "all.npu")
    together = forward(tmp_path / "all.npu", ForwardOptions()).as_dict()
    apart = forward(root, ForwardOptions(), jobs=1).as_dict()
    assert together["passes"] == apart["passes"]
    assert together["skew"] == apart["skew"]


def two_devices(path: Path) -> None:
    """One table in which two devices ran the same passes."""
    plant(Plan(SMALL, ("decode",) * 2), path)
    header, *rows = path.read_text().splitlines()
    again = [",".join([row.split(",", 2)[0], "1", row.split(",", 2)[2]]) for row in rows]
    path.write_text("\n".join([header, *rows, *again]) + "\n")


def test_devices_of_one_table_are_kept_apart(tmp_path: Path) -> None:
    for rank in range(2):
        (place := tmp_path / "prof" / f"rank{rank}").mkdir(parents=True)
        two_devices(place / "kernel_details.csv")
    result = forward(tmp_path / "prof", ForwardOptions(out=tmp_path / "out"), jobs=1)
    assert [(rank.rank, rank.device) for rank in result.ranks] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(list((tmp_path / "out").rglob("pass_*.csv"))) == 8
    assert (tmp_path / "out" / "rank1_device0" / "pass_0001_decode.csv").is_file()
    lines = npuscope("forward", tmp_path / "prof").stdout.splitlines()
    places = [line.split(f", {tmp_path}")[0] for line in lines if "forward passes" in line and line[:4] == "rank"]
    assert places == ["rank 0, device 0", "rank 0, device 1", "rank 1, device 0", "rank 1, device 1"]
    with pytest.raises(CannotWrite, match="one file holds one rank"):
        forward(tmp_path / "prof" / "rank0", ForwardOptions(select=("0",), out=tmp_path / "one.csv"))


def test_an_export_inside_the_root_is_not_read_as_a_rank(root: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(root, tmp_path / "prof")
    forward(tmp_path / "prof", ForwardOptions(out=tmp_path / "prof" / "passes"), jobs=1)
    assert len(forward(tmp_path / "prof", ForwardOptions(), jobs=1).ranks) == 3


def test_a_cluster_that_is_not_there_is_said_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
    ray.shutdown()  # of an earlier test
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(NpuscopeError, match="nobody answers at RAY_ADDRESS"):
        forward(root, ForwardOptions(), "ray")
