"""`npuscope simulate`: a program's cost on the chip as text, JSON and trace, from the outside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from adds_up import check
from command import npuscope as entry
from typer.testing import CliRunner, Result

import npuscope
from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.chip.devices import load
from npuscope.cli import app
from npuscope.trace import Trace

MODELS = Path(__file__).resolve().parents[2] / "models"
GEMM, LAYER = MODELS / "basics/gemm.py", MODELS / "qwen3_14b/decode_layer.py"
TWO = '''"""Adds a number, and then another to the result."""
import argparse
import os

import numpy as np

import npuscope.tile as pl

ROWS, COLUMNS = 512, 512
TILE = 64


@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor], z: pl.Out[pl.Tensor]):
    for i in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="first"):
            y = pl.assemble(y, pl.add(pl.slice(x, [TILE, COLUMNS], [i, 0]), 1.0), [i, 0])
    for i in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="second"):
            z = pl.assemble(z, pl.add(pl.slice(y, [TILE, COLUMNS], [i, 0]), 1.0), [i, 0])
    return z


parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=1)
parser.add_argument("--twice", action=argparse.BooleanOptionalAction)
options = parser.parse_args()
data = np.zeros((ROWS, COLUMNS), np.float32)
times = options.layers * (2 if options.twice else 1) * int(os.environ.get("AGAIN", "1"))
assert times == 1, f"{times} times"
program(data, data.copy(), data.copy())
'''


@pytest.fixture
def two(tmp_path: Path) -> Path:
    (tmp_path / "two.py").write_text(TWO)
    return tmp_path / "two.py"


def simulate(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def told(*arguments: object) -> dict[str, Any]:
    done = simulate(*arguments, "--json")
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


def test_what_a_layer_costs_is_printed_with_its_bound_and_the_report() -> None:
    # GIVEN a model WHEN it is simulated through the real entry point
    done = entry("simulate", LAYER, "--device", "910b2", "--", "--small")
    # THEN
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[:2]
    assert "decode_layers on ascend910b2, simulated:" in first
    assert re.search(r": [\d.,]+ µs \(80%: [\d.,]+ to [\d.,]+\), ", first)
    assert "published times that were predicted like this, 80% lie in such an interval" in done.stdout
    assert "blocks" in first
    assert re.search(r"\d% of the time", second)  # the verdict
    assert "-bound" not in done.stdout  # and no other
    wide = entry("simulate", LAYER, "--wide", "--", "--small").stdout
    assert "the time rests on constants of the chip's file: " in wide
    assert "where core time went" in done.stdout
    assert "does not say how many" not in done.stdout  # the simulated chip's cores are known


def test_the_contract(two: Path) -> None:
    found = told(two)
    assert found["tasks"] == 16
    assert found["blocks"] == 16
    assert found["bound"] == max(found["causes"], key=lambda cause: cause["gain"]["ns"])["kind"]
    assert 0.9 < sum(cause["share"] for cause in found["causes"]) <= 1 + 1e-9  # less what lies after the last end
    likely = found["wall_interval_ns"]
    assert likely["low"] <= found["wall_ns"] <= likely["high"]
    assert likely["coverage"] == 0.8
    assert likely["learnt_from"]["commits"] >= 10
    assert sum(found["constants"]["shares"].values()) == pytest.approx(1)
    kernels = {row["kernel"]: row for row in found["per_kernel"]}
    assert kernels.keys() == {"first", "second"}
    for row in kernels.values():
        assert row["tasks"] == row["blocks"] == row["count"] == 8
        assert row["core_ns"] >= row["on_core_ns"] > 0
        assert row["mean_interval_ns"][0] <= row["mean_ns"] <= row["mean_interval_ns"][1]
        assert row["mean_ns"] == pytest.approx(row["core_ns"] / 8)
    # the second cannot begin before the first has written, so the whole takes longer than both on-core times
    assert found["wall_ns"] > kernels["first"]["mean_ns"] + kernels["second"]["mean_ns"]
    assert told(two) == found  # to the nanosecond, again and again


def test_a_chip_with_half_the_memory_rate_takes_longer(tmp_path: Path) -> None:
    rate = load("910b1").timing["hbm_rate"].value
    own = f"""name = "mine"
title = "half"
inherits = "ascend910b1"
[timing]
hbm_rate = {{ value = {rate / 2}, unit = "B/s", confidence = "guessed", source = "this test" }}
"""
    (tmp_path / "mine.toml").write_text(own)
    whole = told(LAYER)
    half = told(LAYER, "--device", tmp_path / "mine.toml")
    assert half["bound"] == "bandwidth"  # a decode layer reads 600 MB of weights
    before, after = (
        next(cause["share"] for cause in one["causes"] if cause["kind"] == "bandwidth") for one in (whole, half)
    )
    # what the memory limits takes twice as long, be it hidden in part; nothing else gets faster
    assert half["wall_ns"] > (1 + 0.5 * before) * whole["wall_ns"]
    assert after > before


def test_what_does_not_fit_is_told_as_check_tells_it(two: Path) -> None:
    # GIVEN a tile of 512 KiB WHEN it is simulated
    done = simulate(two, "--set", "TILE=256")
    checked = CliRunner().invoke(app, ["check", str(two), "--no-races"])
    # THEN
    assert checked.exit_code == 0, "as it is, it fits"
    assert done.exit_code == 1
    assert "first Vec buffer usage 524288 > 188416" in done.output
    assert "[buffer-overflow]" in done.output
    assert "remedy:" in done.output
    refused = json.loads(simulate(two, "--set", "TILE=256", "--json").stdout)
    assert refused["error"].startswith("first Vec buffer usage 524288 > 188416")
    assert len(refused["errors"]) == 2


def test_what_only_a_larger_chip_holds_names_that_chip(two: Path) -> None:
    # GIVEN tiles of 208 KiB: more than a 910B's vector core has, less than a 950's
    settings = ("--set", "ROWS=416", "--set", "TILE=104")
    small, large = simulate(two, *settings), simulate(two, *settings, "--device", "ascend950")
    assert (small.exit_code, large.exit_code) == (1, 0)
    assert "212992 > 188416" in small.output
    assert "--device ascend950)" in small.output
    assert "--device" not in simulate(two, "--set", "TILE=256").output  # none holds 512 KiB


def test_settings_are_options_constants_and_variables(two: Path) -> None:
    assert told(two, "--set", "TILE=32")["tasks"] == 32  # a constant
    assert told(two, "--set", "ROWS=256")["tasks"] == 8  # one of several in a line
    for setting, times in (("LAYERS=2", 2), ("TWICE=1", 2), ("AGAIN=3", 3)):  # options and a variable
        done = simulate(two, "--set", setting)
        assert isinstance(done.exception, BadInput)
        assert f"{times} times" in str(done.exception)
    assert told(two, "--set", "TWICE=0")["tasks"] == 16
    assert isinstance(simulate(two, "--layers", 2).exception, BadInput)
    unknown = simulate(two, "--set", "TILES=32").exception
    assert "no option, constant, field or environment variable TILES" in str(unknown)
    assert "TILE" in str(unknown)
    assert "--layers" in str(unknown)
    assert "no option" in str(simulate(GEMM, "--layers", 2).exception)


def test_the_trace_is_like_a_capture(two: Path, tmp_path: Path) -> None:
    # GIVEN a run WHEN its trace is written as our own folder and read again
    simulate(two, "-o", tmp_path / "two.npu")
    trace = npuscope.read(tmp_path / "two.npu")
    # THEN every block was handed out, ran and was seen done in this order, after its producer
    work = trace.slices.filter(pl.col("kind") == "task")
    assert work.height == 16
    start, end = work["start"], work["start"] + work["dur"]
    assert (work["dispatch"] <= start).all()
    assert (work["finish"] >= end).all()
    ends = dict(zip(work["task"], end, strict=True))
    starts = dict(zip(work["task"], start, strict=True))
    assert trace.edges.height == 64  # every task of the second reads the tensor that all of the first write
    assert all(starts[dst] >= ends[src] for src, dst in trace.edges.select("src", "dst").iter_rows())
    assert dict(trace.lanes.group_by("unit").len().iter_rows()) == {"AICPU": 4, "AIC": 24, "AIV": 48}
    labels = set(trace.slices.filter(pl.col("kind") == "schedule")["kernel"].cast(pl.String))
    assert labels - {"Drain"} == {"Orchestrating", "Scheduling", "Phase1", "Phase4"}  # Drain: room given back


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    place = tmp_path_factory.mktemp("layer") / "layer.npu"
    done = simulate(LAYER, "-o", place, "--", "--small")
    assert done.exit_code == 0, done.exception
    return npuscope.read(place)


def test_reports_add_up(layer: Trace, tmp_path: Path) -> None:
    check(layer)
    simulate(GEMM, "-o", tmp_path / "gemm.npu")
    explained = check(npuscope.read(tmp_path / "gemm.npu"))
    assert not any("No edges" in note for note in explained.notes)  # one task: nobody waits for anybody


def test_a_tracr_bundle_and_back(layer: Trace, tmp_path: Path) -> None:
    # GIVEN a simulated run WHEN it is written as the runtime writes TraCR
    layer.write(tmp_path / "tracr")
    metadata = json.loads((tmp_path / "tracr/proc.1000/metadata.json").read_text())
    # THEN it has the runtime's channels and markers
    assert len(metadata["channel_names"]) == 77
    assert metadata["channel_names"][:4] == [f"AICPU_{n}" for n in range(4)]
    assert metadata["channel_names"][4] == "AICube_0"
    assert metadata["channel_names"][28] == "AIVector_0"
    assert metadata["channel_names"][-1] == "INVALID"
    assert {"Orchestrating", "Scheduling", "Phase1", "Phase4", "Running_Task_Single"} <= set(metadata["markerLabels"])
    # and read again, each block reaches from dispatch to retired on its core under its kernel's name
    back = npuscope.read(tmp_path / "tracr")
    assert back.meta.dropped == {}
    mine = layer.slices.filter(pl.col("kind") == "task").join(layer.lanes.select("lane", "name"), on="lane")
    theirs = back.slices.filter(pl.col("kind") == "task").join(back.lanes.select("lane", "name"), on="lane")
    name = pl.col("kernel").cast(pl.String)
    held = mine.select("name", name, pl.col("dispatch").alias("start"), dur=pl.col("finish") - pl.col("dispatch"))
    assert sorted(held.iter_rows()) == sorted(theirs.select("name", name, "start", "dur").iter_rows())
    roles = dict(back.lanes.filter(pl.col("unit") == "AICPU").select("name", "role").iter_rows())
    assert roles == {"AICPU_0": "scheduler 0", "AICPU_1": "scheduler 1", "AICPU_2": "scheduler 2",
                     "AICPU_3": "orchestrator 3"}  # fmt: skip
    check(back)


def test_inside_a_block(tmp_path: Path) -> None:
    # GIVEN a product whose 16 blocks load eight pairs of tiles of 128 x 128 each
    found = told(GEMM, "--pipes", "gemm", "-o", tmp_path / "pipes.json")
    # THEN the cube core's pipes are there, none is busier than the block is long, and someone waits for the loads
    pipes = {row["pipe"]: row for row in found["pipes"]}
    assert {"AIC MTE2", "AIC MTE1", "AIC M", "AIC FIXP"} == pipes.keys()
    assert pipes["AIC MTE2"]["instructions"] == 16
    assert all(0 < row["busy_ns"] <= found["duration_ns"] for row in pipes.values())
    assert any(row["pipe"] == "AIC MTE1" and row["for"] == "AIC MTE2" for row in found["waits"])
    assert all(row["source"].startswith("gemm.py:") for row in found["waits"])
    # and its trace has a lane per pipe, on which nothing overlaps
    trace = npuscope.read(tmp_path / "pipes.json")
    assert trace.slices.height == found["instructions"]
    for lane in trace.slices.sort("lane", "start").partition_by("lane"):
        assert np.all((lane["start"] + lane["dur"]).to_numpy()[:-1] <= lane["start"].to_numpy()[1:])
    text = simulate(GEMM, "--pipes", "gemm").output
    assert "who waited longest" in text
    # one row of bars per pipe: a block begins with loads, and multiplies later
    drawn = dict(line[2:].split("  ", 1) for line in text.splitlines() if line.startswith("  AIC ") and "█" in line)
    assert len(drawn["AIC MTE2"]) - len(drawn["AIC MTE2"].lstrip()) < len(drawn["AIC M"]) - len(drawn["AIC M"].lstrip())
    page = tmp_path / "pipes.html"
    assert f"wrote {page}" in simulate(GEMM, "--pipes", "gemm", "--html", page).output
    assert "AIC MTE2" in page.read_text()
    wrong = simulate(GEMM, "--pipes", "gem").exception
    assert isinstance(wrong, NpuscopeError)
    assert "Those that did: gemm" in str(wrong)


def test_noise_changes_the_time_and_not_the_answer_s_form() -> None:
    plain, noisy = told(GEMM), told(GEMM, "--jitter", 3)
    assert plain.keys() == noisy.keys()
    assert plain["per_kernel"] != noisy["per_kernel"]
    assert sum(noisy["constants"]["shares"].values()) == pytest.approx(1)
