"""understand/trust.md says how far to trust a simulated time: every row is on it, and nothing is old or left out."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from fitting.solve import LARGEST, REACH, Near, step  # noqa: E402
from fitting.solve import Evidence as OneNumber  # noqa: E402
from validation import page, predictions, public  # noqa: E402
from validation.blocks import Simulated, compared, in_total, merged, phase_pairs, plain  # noqa: E402
from validation.evidence import KEPT, Evidence, evidence  # noqa: E402
from validation.measured import Kernel, Pair, Phase, agreement  # noqa: E402  # noqa: E402
from validation.plot import BLUE, Plot, Point, svg  # noqa: E402

from npuscope.chip.devices import load  # noqa: E402

NOTES = tomllib.loads(page.NOTES.read_text())


@pytest.fixture(scope="module")
def known(shared: Path) -> Evidence:
    return evidence(shared / "measured")


def test_every_public_row_has_a_prediction_and_every_note_a_row() -> None:
    keys = [row.key for row in public.rows()]
    assert len(set(keys)) == len(keys)
    for key in keys:
        assert key in predictions.ROWS or key.startswith(tuple(predictions.FAMILIES)), key
    assert set(NOTES["row"]) <= set(keys)
    assert set(NOTES["changes"]) <= {row["id"] for row in json.loads((KEPT / "changes.json").read_text())["rows"]}


def test_what_is_kept_are_predictions_alone() -> None:
    """Measured tables stay where they are."""
    for file in KEPT.iterdir():
        assert "measured" not in file.read_text(), file


def test_the_page_and_its_plot_are_those_of_what_is_kept(known: Evidence, tmp_path: Path) -> None:
    """WHEN this fails, `python benchmarks/validate.py --page` writes them anew."""
    page.write(known, tmp_path)
    tables = sorted(f"tables/{file.name}" for file in (tmp_path / "tables").iterdir())
    there = sorted(f"tables/{file.name}" for file in (page.DOCS / "tables").glob("trust_[0-9]*.csv"))
    assert tables == there
    for name in ("trust.md", "trust.svg", *tables):
        assert (tmp_path / name).read_text() == (page.DOCS / name).read_text(), name


def test_the_page_has_every_row_and_the_plot_a_point_for_each_with_its_miss(known: Evidence, tmp_path: Path) -> None:
    told = page.page(known)  # before its long tables go into files of their own
    page.write(known, tmp_path)
    plot = (tmp_path / "trust.svg").read_text()
    for one in known.public:
        assert f"| {one.row.what} |" in told
    for change in known.changes:
        row = change.row
        assert f"| [{row.id}]" in told
        assert not change.ran or f"<title>{row.id}, {row.quantity_name}: measured {row.ratio:.2f}" in plot
        if change.error > page.LABELLED:
            assert f"| {row.id} | {row.ratio:.2f} |" in told  # among those that are missed
    for name in ("q_proj, AIC", "down_proj_residual__windowed_aic, AIC"):
        assert f"| {name} |" in told


def test_parts_that_were_not_run_are_said_to_be_missing_and_those_that_were_are_shown(
    known: Evidence, shared: Path, tmp_path: Path
) -> None:
    # GIVEN predictions without those of the fit
    kept = tmp_path / "predicted"
    shutil.copytree(KEPT, kept)
    for name in ("crossvalidated", "ablation"):
        (kept / f"{name}.json").unlink(missing_ok=True)
    # WHEN the page is made, THEN it says what is missing
    told = page.page(evidence(shared / "measured", kept))
    assert "| … commit left out | 109 of 69 commits | not run |" in told
    assert "was not run: there is no `predicted/ablation.json`" in told
    # AND with them it has their scores: what was measured, told by constants fitted without it, is never wrong
    rows = [{"id": one.row.id, "predicted_ratio": one.row.ratio} for one in known.changes]
    (kept / "crossvalidated.json").write_text(json.dumps({"rows": rows}))
    without = {"direction": 0.0, "median": 0.5, "median_large": 0.6, "within_15": 1.0}
    rows_of = {"fixed": ["pl718"], "cost": ["pl190"]}
    ablated = {"mechanism": "HBM", "constants": ["timing.hbm_rate"], "without": without, **rows_of}
    (kept / "ablation.json").write_text(json.dumps([ablated]))
    told = page.page(evidence(shared / "measured", kept))
    assert "| … commit left out | 109 of 69 commits | held aside | 100 % | 0 % | 100 % | 1.00 | 100 % | 0 % |" in told
    rate = load("910b1").timing["hbm_rate"].value
    assert f"| without HBM | `hbm_rate` {rate:.3g} B/s | pl718 | pl190 | 0 % | 50 % | 60 % | **100 %** |" in told


def test_the_page_says_so_where_its_parts_are_of_different_versions_or_constants(known: Evidence) -> None:
    mixed = replace(known, simulators={"changes": "one", "blocks": "two", "public": "two"}, old=["blocks"])
    assert "predicted by different versions of the simulator:** changes by `one`, blocks by `two`" in page.page(mixed)
    assert "may not be those of the device file: blocks.**" in page.page(mixed)
    assert "device file:" not in page.page(replace(known, old=[]))


def test_kernels_of_one_name_are_one_and_others_are_named() -> None:
    assert {plain(name) for name in ("gate_proj", "gate_proj_3", "gate_proj_spmd", "gate_proj__windowed_aic")} == {
        "gate_proj"
    }
    told = [Simulated("gate", "AIC", 1, 10.0), Simulated("gate_0", "AIC", 3, 20.0), Simulated("mine", "AIV", 1, 1.0)]
    assert merged(told)["gate", "AIC"] == Simulated("gate", "AIC", 4, 17.5)
    table = [Kernel("gate", "AIC", 4, 35.0), Kernel("theirs", "AIV", 1, 1.0), Kernel("attention", "MIX", 1, 9.0)]
    found = compared(table, told, frozenset({"attention"}))
    assert found.all == [Pair("gate, AIC", 35.0, 17.5)]
    assert (found.only_measured, found.only_simulated) == (("theirs",), ("mine",))
    assert found.of_size(small=False) == found.all
    assert found.of_size(small=True) == []


def test_a_phase_costs_its_turn_and_its_blocks() -> None:
    device = load("910b1")
    timing = {name: one.value * 1e6 for name, one in device.timing.items()}
    table = [Phase("dispatch", 3, (2.0, 2.2, 9.0)), Phase("complete", 2, (2.0,)), Phase("submit", 1, (0.5,))]
    found = phase_pairs(table, device, submit=1.5)
    dispatch, complete, submit = (pair for _, pair in found)
    assert dispatch.measured == 2.2
    assert dispatch.predicted == pytest.approx(timing["dispatch_turn"] + 3 * timing["dispatch_block"])
    polling = 8 * timing["poll_core"]  # one of three threads, 24 cube cores that run
    assert complete.predicted == pytest.approx(timing["complete_turn"] + 2 * timing["complete_block"] + polling)
    assert submit.predicted == 1.5
    total = in_total(found)["dispatch"]
    assert (total.measured, total.predicted, total.weight) == pytest.approx((13.2, 3 * dispatch.predicted, 3))


def test_half_and_double_are_the_same_error() -> None:
    half, double, near = Pair("", 2.0, 1.0), Pair("", 1.0, 2.0), Pair("", 10.0, 11.0)
    assert half.error == double.error == 1.0
    found = agreement([half, double, near])
    assert found.median_error == 1.0
    assert found.within_15 == pytest.approx(1 / 3)


def test_a_point_lies_where_its_value_is_and_says_its_miss() -> None:
    points = [Point(1.0, 1.0, "low", BLUE), Point(100.0, 100.0, "a <row>", BLUE), Point(10.0, 100.0, "off", BLUE)]
    drawn = svg([Plot("Times", "µs", points, [])])
    circles = [line for line in drawn.splitlines() if line.startswith("<circle")]
    places = {
        line.split("<title>")[1].split("<")[0]: tuple(float(line.split(f'{axis}="')[1].split('"')[0]) for axis in "xy")
        for line in (circle.replace("cx=", "x=").replace("cy=", "y=") for circle in circles)
    }
    (x1, y1), (x2, y2), (x3, y3) = places["low"], places["a &lt;row&gt;"], places["off"]
    assert x2 - x1 == pytest.approx(y1 - y2, abs=0.2)  # on the diagonal
    assert x3 - x1 == pytest.approx((x2 - x1) / 2, abs=0.2)  # a decade of two
    assert y3 == y2


@pytest.mark.parametrize("name", predictions.CHANGES)
def test_a_variant_finds_what_it_replaces(name: str) -> None:
    assert (predictions.folder(name) / "decode_layer.py").is_file()


# mean misses of the weighted least squares that 0.2.0 had written by hand, on the same made-up evidence
@pytest.mark.parametrize(("seed", "by_hand"), [(0, 0.0924), (1, 0.0895), (2, 0.0976)])
def test_a_step_of_the_fit_is_as_good_as_the_one_by_hand_was(seed: int, by_hand: float) -> None:
    random = np.random.default_rng(seed)
    rows, constants = 80, 12
    slopes = random.normal(0, 0.4, (rows, constants)) * (random.random((rows, constants)) < 0.4)
    true = random.normal(0, 0.25, constants)
    predicted = random.normal(0, 0.3, rows)
    measured = predicted + slopes @ true + random.laplace(0, 0.05, rows)
    measured[:6] += random.normal(0, 1.5, 6)  # nobody learns from these
    weight = random.choice([0.5, 1, 2], rows)
    numbers = tuple(OneNumber(str(n), "", "all", *pair) for n, pair in enumerate(zip(weight, measured, strict=True)))
    point = {str(n): 1.0 for n in range(constants)}
    moved = step(Near(point, numbers, predicted, slopes), dict.fromkeys(point, (0.5, 2.0)))
    assert np.all(np.abs(moved) <= REACH)
    misses = np.minimum(np.abs(predicted + slopes @ moved - measured), LARGEST)
    assert np.sum(weight * misses) / np.sum(weight) <= by_hand
