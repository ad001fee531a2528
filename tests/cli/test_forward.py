"""`npuscope forward` as a user types it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command import npuscope
from planted import QWEN, Plan, plant

SMALL = replace(QWEN, layers=6)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Four decode passes, the third disturbed, the last one cut short."""
    plant(Plan(SMALL, ("decode",) * 4, stall=2, lost_tail=30), path := tmp_path / "kernel_details.csv")
    return path


def test_the_list_flags_what_is_wrong(capture: Path) -> None:
    done = npuscope("forward", capture, "--list")
    assert done.returncode == 0, done.stderr
    assert "passes by sampling and embedding" in done.stdout
    assert "pass 2: hcom_allReduce_ took 6" in done.stdout
    assert "pass 3: its end is not in the capture" in done.stdout
    assert "pass 3: 4 of 6 attentions" in done.stdout


def test_the_json_of_a_list_keeps_its_contract(capture: Path) -> None:
    told = json.loads(npuscope("forward", capture, "--list", "--json").stdout)
    keys = {"index", "phase", "layers", "attentions", "complete", "disturbed", "start_ns", "end_ns", "sum_ns",
            "union_ns", "excluded"}  # fmt: skip
    for number, one in enumerate(told["passes"]):
        assert keys <= set(one)
        assert one["index"] == number
        assert set(one["excluded"]) == {"anchor", "full", "capture"}
    assert [p["complete"] for p in told["passes"]] == [True, True, True, False]
    assert [p["disturbed"] for p in told["passes"]] == [False, False, True, False]
    assert [p["layers"] for p in told["passes"]] == [6, 6, 6, 4]
    assert "statistics" not in told["ranks"][0]


def test_statistics_show_layers_positions_and_sequences(capture: Path) -> None:
    told = json.loads(npuscope("forward", capture, "--json").stdout)["ranks"][0]["statistics"]
    assert told["passes"] == [0, 1]  # neither the disturbed nor the incomplete one
    assert len(told["layers"]) == 6
    assert [kind["layers"] for kind in told["sequences"]] == ["0", "1-5"]
    positions = {(p["part"], p["kernel"], p["nth"]): p for p in told["positions"]}
    assert positions["layer", "MatMulV2", 4]["count"] == 2 * 6
    assert {"mean_ns", "p50_ns", "p95_ns", "cv"} <= set(positions["tail", "ArgMaxV2", 1])


def test_only_clean_passes_are_exported_unless_named(capture: Path, tmp_path: Path) -> None:
    done = npuscope("forward", capture, "--list", "--out", tmp_path / "out")
    assert f"wrote 2 passes to {tmp_path / 'out'}" in done.stdout
    assert sorted(p.name for p in (tmp_path / "out").glob("*.csv")) == ["pass_0000_decode.csv", "pass_0001_decode.csv"]
    done = npuscope("forward", capture, "--list", "--select", "2", "--out", tmp_path / "one.csv")
    assert done.returncode == 0
    assert json.loads((tmp_path / "one.json").read_text())["pass"]["disturbed"] is True


def test_layer_tracks_for_perfetto(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "layers.json"
    assert npuscope("forward", capture, "--list", "--perfetto", out).returncode == 0
    names = [event.get("name") for event in json.loads(out.read_text())["traceEvents"]]
    assert {"pass 0 decode", "pass 2 decode disturbed", "pass 3 decode incomplete", "layer 5", "head", "tail"} <= set(
        names
    )
    assert names.count("layer 0") == 4


def test_an_odd_layer_is_named(tmp_path: Path) -> None:
    """Layer 4's down projection takes three times its time, in every pass."""
    plant(Plan(SMALL, ("decode",) * 3, jitter=0.05), path := tmp_path / "kernel_details.csv")
    rows = path.read_text().splitlines()
    seen = 0
    for place, row in enumerate(rows):
        seen += ",SwiGlu," in row
        if ",SwiGlu," in row and (seen - 1) % 6 == 4:
            cells = row.split(",")
            cells[7] = "150.000"
            rows[place] = ",".join(cells)
    path.write_text("\n".join(rows) + "\n")
    assert re.search(r"layer 4 stands out: .* [mµ]s; SwiGlu 1 takes 14\d", npuscope("forward", path).stdout)


def test_a_profiler_root_is_named_either_way(tmp_path: Path) -> None:
    for rank in range(2):
        (place := tmp_path / "prof" / f"rank{rank}" / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
        plant(Plan(SMALL, ("decode",) * 2, seed=rank), place / "kernel_details.csv")
    done = npuscope("forward", "--profiler-root", tmp_path / "prof", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "ranks over 2 common passes" in done.stdout
    assert (tmp_path / "out" / "rank1" / "pass_0001_decode.json").is_file()
    again = npuscope("forward", tmp_path / "prof", "--json", "--list")
    assert {p["rank"] for p in json.loads(again.stdout)["passes"]} == {0, 1}
    refused = npuscope("forward", tmp_path / "prof", "--perfetto", tmp_path / "x.pftrace")
    assert refused.returncode == 2
    assert "holds one rank" in refused.stderr


def test_a_selection_shows_and_counts_only_those_passes(capture: Path) -> None:
    told = json.loads(npuscope("forward", capture, "--select", "2", "--json").stdout)
    assert [p["index"] for p in told["passes"]] == [2]
    assert told["ranks"][0]["statistics"]["passes"] == [2]
    refused = npuscope("forward", capture, "--select", "prefill")
    assert refused.returncode == 2
    assert "no pass is prefill" in refused.stderr


def test_what_is_not_an_export_is_left_alone(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert npuscope("forward", capture, "--out", out).returncode == 0
    (out / "notes.txt").write_text("mine")
    refused = npuscope("forward", capture, "--select", "1", "--out", out)
    assert refused.returncode == 2
    assert (out / "notes.txt").read_text() == "mine"
    (tmp_path / "one.json").write_text('{"mine": true}')
    assert npuscope("forward", capture, "--select", "1", "--out", tmp_path / "one.csv").returncode == 2
    assert not (tmp_path / "one.csv").exists()


def test_markdown_is_ready_to_post(capture: Path, tmp_path: Path) -> None:
    capture.write_text(capture.read_text().replace("SwiGlu,", "a|b<i>,"))
    assert npuscope("forward", capture, "--md", tmp_path / "passes.md").returncode == 0
    text = (tmp_path / "passes.md").read_text()
    assert "| pass | step | phase |" in text
    assert "- pass 3: 4 of 6 attentions" in text
    assert "a\\|b&lt;i>" in text
    assert "<i>" not in text
    assert f"npuscope forward {capture} --md" in text
