"""Whoever asks gets the same answer: every output of one run has the same verdict, wall and causes."""

import json
import re
from pathlib import Path

import command
import pytest

import npuscope
from npuscope import explain as analysis
from npuscope.lab.program_runs import captures_of
from npuscope.report.captures import OTHERS, WORTH_A_LINE
from npuscope.table.formats import duration

MADE = ["decode_run", "decode_steps", "kineto", "trace_view", "merged_swimlane", "tracr", "ranks"]
REAL = [
    "ascend/longcat_910c/kernel_details.csv",
    "ascend/npu_mfu_sample/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    "gpu/tracelens_sglang_qwen3_8b_decode.json.gz",
    "pypto/esl_proxy_qwen3_single_buffer.json",
    "simpler/swimlane/paged_attention_CaseVarSeq4",
]
SOFTMAX = Path(__file__).parents[2] / "models" / "basics" / "softmax.py"


def told_in(page: Path) -> dict[str, object]:
    """The document inside a page."""
    found = re.search(r'<script type="application/json" id="document">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    document: dict[str, object] = json.loads(found[1])
    return document


def diagnosed(told: dict[str, object]) -> dict[str, object]:
    return {key: told[key] for key in ("verdict", "bound", "wall_ns", "window", "causes", "together")}


def plain(text: str) -> str:
    """Words without what a format adds: line breaks, escapes, marks."""
    return re.sub(r"[\s\u200b\\*`_]+", "", text)


def check_words(text: str, told: dict[str, object], every: bool) -> None:
    """The verdict comes first of all causes, and the others follow in their order."""
    causes = told["causes"]
    assert isinstance(causes, list)
    others = [cause for cause in causes[1:] if every or cause["share"] >= WORTH_A_LINE]
    shown = [causes[0], *(others if every else others[:OTHERS])]
    places = [plain(text).find(plain(cause["sentence"])) for cause in shown]
    assert -1 not in places, [cause["sentence"] for cause, at in zip(shown, places, strict=True) if at < 0]
    assert places == sorted(places)
    assert causes[0]["sentence"] == told["verdict"]


def check_capture(path: Path, folder: Path) -> None:
    html, md = folder / "report.html", folder / "report.md"
    text = command.npuscope("report", path, "--html", html, "--md", md).stdout
    told = json.loads(command.npuscope("report", path, "--json").stdout)
    # text and Markdown say what JSON holds
    check_words(text, told, every=False)
    check_words(md.read_text(), told, every=True)
    # the page, and the live one, hold it for every rank
    ranks = analysis.explain_ranks(npuscope.read(path))
    each = told["ranks"]["each"] if "ranks" in told else [told]
    document = told_in(html)
    runs = document["runs"]
    assert isinstance(runs, list)
    live = [json.loads(version.made.run) for version in captures_of(["x"], [ranks]).versions if version.made]
    for shown in (runs, live):
        assert [run["diagnosis"] for run in shown] == [diagnosed(one) for one in each]
        assert [run["wall"] for run in shown] == [one["wall_ns"] for one in each]
    if len(each) > 1:
        shared = document["shared"]
        assert isinstance(shared, dict)
        assert diagnosed(shared["ranks"]) == diagnosed(told)
    else:
        assert f"window {duration(told['wall_ns'])}" in text
        assert told["wall_ns"] == told["window_ns"]
    # Python has it, too
    assert json.loads(json.dumps(ranks.diagnosis.as_dict())) == diagnosed(told)


@pytest.mark.parametrize("name", MADE)
def test_every_output_of_a_capture_agrees(name: str, small: dict[str, Path], tmp_path: Path) -> None:
    check_capture(small[name], tmp_path)


@pytest.mark.parametrize("name", REAL)
def test_every_output_of_a_real_capture_agrees(name: str, shared: Path, tmp_path: Path) -> None:
    check_capture(shared / name, tmp_path)


def test_a_comparison_says_of_both_sides_what_their_reports_say(tmp_path: Path) -> None:
    command.npuscope("demo", "--keep", tmp_path)
    sides = [tmp_path / "run", tmp_path / "slow_scheduler"]
    html, md = tmp_path / "c.html", tmp_path / "c.md"
    text = command.npuscope("compare", *sides, "--html", html, "--md", md).stdout
    told = json.loads(command.npuscope("compare", *sides, "--json").stdout)
    alone = [diagnosed(json.loads(command.npuscope("report", side, "--json").stdout)) for side in sides]
    assert told["diagnoses"] == alone
    assert told["totals"]["wall_ns"] == [one["wall_ns"] for one in alone]
    for one in alone:
        assert plain(str(one["verdict"])) in plain(text)
        assert plain(str(one["verdict"])) in plain(md.read_text())
    runs = told_in(html)["runs"]
    assert isinstance(runs, list)
    assert [run["diagnosis"] for run in runs] == alone
    # the demo's own words are those of a report
    assert str(alone[0]["verdict"]) in command.npuscope("demo").stdout


def test_every_output_of_a_simulated_program_agrees(tmp_path: Path) -> None:
    html = tmp_path / "s.html"
    text = command.npuscope("simulate", SOFTMAX, "--html", html).stdout
    told = json.loads(command.npuscope("simulate", SOFTMAX, "--json").stdout)
    check_words(text, told, every=False)
    runs = told_in(html)["runs"]
    assert isinstance(runs, list)
    assert runs[0]["diagnosis"] == diagnosed(told)
    # what-if starts from the same wall
    assert json.loads(command.npuscope("whatif", SOFTMAX, "--json").stdout)["wall_ns"] == told["wall_ns"]
