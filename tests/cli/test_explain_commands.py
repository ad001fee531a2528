"""report, compare, whatif and gate as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import kernel_row, write_kernel_table, write_swimlane
from command import npuscope
from made import DEPENDS, DOZEN

TICKS = 50  # of a 50 MHz counter per microsecond
LATER = 1000  # ticks before the first start


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The drawn dozen as simpler writes a run: swimlane, dependencies and names."""
    return write_run(tmp_path / "run")


def write_run(folder: Path, stretch: float = 1.0) -> Path:
    cores = {"AIC_0": 0, "AIC_1": 1, "AIV_0": 2, "AIV_1": 3}
    ticks = lambda us: round(us * stretch * TICKS) + LATER  # noqa: E731
    rows = [[cores[t.lane], t.task, t.task, ticks(t.start), ticks(t.end), 0] for t in DOZEN]
    seen = [[cores[t.lane], t.task, ticks(t.dispatch or 0), ticks(t.finish or 0)] for t in DOZEN]
    metadata = {"clock_freq_hz": 50_000_000, "num_cores": 4, "core_types": ["aic"] * 2 + ["aiv"] * 2}
    write_swimlane(folder, rows, seen, metadata=metadata)
    kernels = list(dict.fromkeys(t.kernel for t in DOZEN))
    ids = {
        t.task: [kernels.index(t.kernel), -1, -1] if t.lane.startswith("AIC") else [-1, kernels.index(t.kernel), -1]
        for t in DOZEN
    }
    tasks = [{"task_id": str(task), "kernel_ids": functions} for task, functions in ids.items()]
    edges = [{"pred": str(a), "succ": str(b), "source": "tensormap"} for a, b in DEPENDS]
    (folder / "deps.json").write_text(json.dumps({"tasks": tasks, "edges": edges}))
    names = {str(number): name for number, name in enumerate(kernels)}
    (folder / "name_map_run.json").write_text(json.dumps({"level": 2, "callable_id_to_name": names}))
    return folder


def test_report_says_the_verdict_first_in_half_a_screen(run: Path) -> None:
    told = npuscope("report", run)
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0].startswith("Tasks wait for one another: a chain of 6 tasks takes 39 µs (39.0% of the time")
    assert len(lines) <= 45
    assert "`silu` waited 10 µs for `up` in 1 gap" in told.stdout
    assert "dispatch→finish 12.9 µs, overhead 16.8%; 1.6 in flight on 4 cores" in told.stdout
    # sentences about causes are whole lines, which terminals wrap; numbers and tables fit as they are
    shown = lines[lines.index("The run:") :]
    assert max(len(line.replace(str(run), "run")) for line in shown) <= 110


def test_report_as_json_keeps_its_contract(run: Path) -> None:
    data = json.loads(npuscope("report", run, "--json", "--kernels", "qk|softmax|sv").stdout)
    assert data["verdict"].startswith("Tasks wait for one another: a chain of 6 tasks takes 39 µs (39.0% of the time")
    assert [cause["kind"] for cause in data["causes"]] == ["dependency", "dispatch", "core", "tail"]
    assert (data["bound"], data["wall_ns"]) == ("dependency", 100_000)
    assert data["units"] == {
        "AIC": {"lanes": 2, "busy_ns": 112_000, "idle_ns": 88_000, "share": 0.56},
        "AIV": {"lanes": 2, "busy_ns": 17_000, "idle_ns": 183_000, "share": 0.085},
    }
    assert data["bubbles"] == {
        "edge": 167_000, "dependency": 48_000, "starved": 25_000, "dispatch": 14_000, "pickup": 10_000, "FIN": 7_000,
    }  # fmt: skip
    gate = next(kernel for kernel in data["kernels"] if kernel["name"] == "gate")
    assert (gate["count"], gate["core_ns"], gate["on_core_ns"]) == (1, 30_000, 30_000)
    scheduling = data["scheduling"]
    assert scheduling["tasks"] == 12
    assert scheduling["mean_run_ns"] == pytest.approx(10_750)
    assert scheduling["mean_dispatch_to_finish_ns"] == pytest.approx(155_000 / 12)
    assert scheduling["overhead"] == pytest.approx(26 / 155)
    assert scheduling["in_flight"] == pytest.approx(1.55)
    assert data["critical_path"]["kind"] == "chain"
    assert data["critical_path"]["parts"] == {"run": 75_000, "dispatch": 9_000, "pickup": 9_000, "FIN": 7_000}
    assert data["overlap"]["units"]["AIC"] == {"lanes": 2, "run_ns": 20_000, "hidden_ns": 25_000, "exposed_ns": 19_000}


def test_report_writes_markdown_to_post_and_a_page(run: Path, tmp_path: Path) -> None:
    told = npuscope(
        "report", run, "--md", tmp_path / "r.md", "--html", tmp_path / "r.html", "--kernels", "qk|softmax|sv"
    )
    assert told.returncode == 0
    text = (tmp_path / "r.md").read_text()
    for part in (
        "# Profiling report: run",
        "4 channels; lanes with device work: 2 AIC, 2 AIV.",
        "**Tasks wait for one another: a chain of 6 tasks takes 39 µs (39.0% of the time",
        "| gate | 1 | 30.0 | 30.0 | 30.0 | 30.0 | 30.0 | 23.3% | MLP | 0 |",
        "| ready, not handed out yet | – | 9.00 | 9.0% |",
        "| overhead, 1 − run / (dispatch → finish) | 16.8% |",
        "| AIC | 2 | 20.0 | 25.0 | 19.0 |",
        "## How to reproduce",
        f"npuscope report {run} --md",
        "--kernels 'qk|softmax|sv'",
    ):
        assert part in text, part
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert f"wrote {tmp_path / 'r.html'}" in told.stdout


def test_markdown_does_not_obey_names(tmp_path: Path) -> None:
    rows = [kernel_row(type="<script>alert(1)</script>|x", start="1.0"), kernel_row(type="a`b[c](d)", start="9.0")]
    write_kernel_table(tmp_path / "kernel_details.csv", rows)
    assert npuscope("report", tmp_path / "kernel_details.csv", "--md", tmp_path / "r.md").returncode == 0
    text = (tmp_path / "r.md").read_text()
    assert "<script>" not in text
    assert "| &lt;script>alert(1)&lt;/script>\\|x |" in text
    assert "a\\`b\\[c\\](d)" in text


def test_compare_two_runs(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", stretch=2.0)
    told = npuscope(
        "compare", a, b, "--kernels", "qk|softmax|sv", "--md", tmp_path / "c.md", "--html", tmp_path / "c.html"
    )
    assert (told.returncode, told.stderr) == (0, "")
    line = next(line for line in told.stdout.splitlines() if "on-core time of qk|softmax|sv" in line)
    assert line.split()[-4:] == ["26.0", "52.0", "26.0", "2.00x"]
    assert (
        r"| on-core time of qk\|softmax\|sv, while any core ran | 26.0 | 52.0 | 26.0 | 2.00x |"
        in (tmp_path / "c.md").read_text()
    )
    data = json.loads(npuscope("compare", a, b, "--json").stdout)
    assert data["totals"] == {
        "core_ns": [129_000, 258_000],
        "on_core_ns": [88_000, 176_000],
        "wall_ns": [100_000, 200_000],
    }
    assert sum(bar["ns"] for bar in data["waterfall"]) == 100_000
    assert {"part", "ns"} == set(data["waterfall"][0])
    assert data["kernels"][0]["name"] == "gate"
    assert data["not_like_for_like"] == []


def test_compare_three_runs_is_a_trend(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, stretch) for name, stretch in (("a", 1.0), ("b", 2.0), ("c", 1.5))]
    told = npuscope("compare", *runs)
    assert told.stdout.startswith("trend over 3 traces")
    trend = json.loads(npuscope("compare", *runs, "--json").stdout)["trend"]
    assert [(row["trace"], row["wall_ns"]) for row in trend] == [("a", 100_000), ("b", 200_000), ("c", 150_000)]


def test_whatif(run: Path) -> None:
    told = npuscope("whatif", run, "--scale", "down=0.5", "--dispatch-cost", "1")
    assert told.returncode == 0
    assert "What if: 100 µs → 93 µs (-7.0%)" in told.stdout
    assert "replay error -6.0%" in told.stdout
    data = json.loads(npuscope("whatif", run, "--merge", "gate+up", "--json").stdout)
    assert data["tasks"] == [12, 11]
    assert data["low_ns"] <= data["new_ns"] <= data["high_ns"]


def test_gate_passes_fails_and_posts_a_table(run: Path, tmp_path: Path) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text('[[limit]]\nmetric = "wall_us"\nmax = 120\n')
    told = npuscope("gate", run, "--budget", budget)
    assert (told.returncode, told.stderr) == (0, "")
    headline, _, head, row = told.stdout.splitlines()
    assert headline == "Gate passed: 1 limit (1 capture)"
    assert head.split() == ["limit", "value", "allowed", "baseline", "change", "noise", "status"]
    assert row.split() == ["wall_us", "100", "at", "most", "120", "–", "–", "5.0%", "ok"]
    budget.write_text('[[limit]]\nmetric = "core_us"\nkernel = "down"\nmax_increase = 0.1\n')
    slower = write_run(tmp_path / "slower", stretch=1.5)
    told = npuscope("gate", slower, "--budget", budget, "--baseline", run, "--md", tmp_path / "gate.md")
    assert told.returncode == 1
    assert told.stdout.startswith("Gate FAILED: 1 of 1 limit (1 capture, 1 of the baseline)\n")
    assert "|" not in told.stdout  # Markdown is for the file
    assert (tmp_path / "gate.md").read_text().startswith("### gate FAILED: 1 of 1 limit")
    assert "| core_us of down | 21 | at most +10.0% | 14 | +50.0% | 7.3% | FAIL |" in (tmp_path / "gate.md").read_text()
    assert json.loads(npuscope("gate", run, "--budget", budget, "--baseline", run, "--json").stdout)["passed"] is True


def test_a_page_that_cannot_be_written_leaves_nothing_behind(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "page.html").mkdir()  # a folder where the file should go
    assert npuscope("report", run, "--html", folder / "page.html").returncode == 2
    assert [p.name for p in folder.iterdir()] == ["page.html"]


def test_one_step_of_a_capture(tmp_path: Path) -> None:
    rows = [kernel_row(start=f"{10 * n}.000", dur="4.000", step=str(n // 2)) for n in range(6)]
    write_kernel_table(tmp_path / "kernel_details.csv", rows)
    data = json.loads(npuscope("report", tmp_path / "kernel_details.csv", "--step", "1", "--json").stdout)
    assert (data["window_ns"], data["kernels"][0]["count"]) == (14_000, 2)


def test_markdown_links_in_names_stay_text(tmp_path: Path) -> None:
    write_kernel_table(tmp_path / "kernel_details.csv", [kernel_row(type=r"\[click](http://evil.example) __b__")])
    assert npuscope("report", tmp_path / "kernel_details.csv", "--md", tmp_path / "r.md").returncode == 0
    assert r"\\\[click\](http&#8203;://evil.example) \_\_b\_\_" in (tmp_path / "r.md").read_text()


def test_a_window_too_long_to_add_up_is_refused(tmp_path: Path) -> None:
    rows = [[core, core, 1, 1000 if core else 2**57, 2**57 + 10, 0] for core in range(6)]
    told = npuscope("report", write_swimlane(tmp_path, rows))
    assert (told.returncode, told.stdout) == (2, "")
    assert "too long to add up" in told.stderr


def test_a_cycle_of_edges_is_said(run: Path) -> None:
    deps = json.loads((run / "deps.json").read_text())
    deps["edges"].append({"pred": "12", "succ": "1", "source": "explicit"})
    (run / "deps.json").write_text(json.dumps(deps))
    told = npuscope("report", run)
    assert told.returncode == 0
    assert "began before a producer of theirs had ended" in told.stdout
    refused = npuscope("whatif", run)
    assert (refused.returncode, "cycle" in refused.stderr) == (2, True)
