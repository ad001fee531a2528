"""`npuscope align` as a user runs it: files in, a verdict, JSON, Markdown and a page out."""

from __future__ import annotations

import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest
from builders import kernel_row, write_events, write_kernel_table, x
from command import npuscope
from page_data import charts_in

KERNELS = [("MatMulV2", "40.0"), ("FusedInferAttentionScore", "60.0"), ("SwiGlu", "5.0"), ("ArgMaxV2", "18.0")]


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Two steps of four kernels; the second takes a microsecond more each."""
    rows, now = [], 1000.0
    for step in (1, 2):
        for kernel, us in KERNELS:
            us = f"{float(us) + step - 1:.3f}"
            rows.append(kernel_row(step=str(step), name=f"{kernel}_1", type=kernel, start=f"{now:.3f}\t", dur=us))
            now += float(us)
    return write_kernel_table(tmp_path / "kernel_details.csv", rows)


@pytest.fixture
def predicted(tmp_path: Path) -> Path:
    path = tmp_path / "model.csv"
    path.write_text("kernel,latency_us\nMatMul,70\nattention,30\nfused_act,5\n")
    return path


def test_the_verdict_comes_first(predicted: Path, measured: Path) -> None:
    run = npuscope("align", predicted, measured, "--step", "1")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[1] == "model.csv against kernel_details.csv, step 1"
    # 70 + 30 + 5 against 40 + 60 + 5 + 18; up to attention both sides have 100
    assert lines[0] == (
        "Predicted 105 µs against 123 µs measured (-14.6%); 2 of 4 measured calls matched, 2 missing from the "
        "prediction, 1 extra in it. Errors cancel: families are 35 µs too long and 53 µs "
        "too short, first of all MatMul (+30 µs) against Attention (-30 µs)."
    )
    assert "Missing from the prediction: 2 calls" in lines
    assert "Extra in the prediction: 1 call" in lines
    assert any("the measured pass has 2 calls, 23 µs, after the last shared call" in line for line in lines)


def test_a_kernel_with_another_name_is_given(predicted: Path, measured: Path) -> None:
    run = npuscope("align", predicted, measured, "--step", "1", "--map", "fused_act=SwiGlu", "--json")
    told = json.loads(run.stdout)
    assert told["matched"] == 3
    assert [row["kernel"] for row in told["missing"]] == ["ArgMaxV2"]
    assert told["extra"] == []


def test_the_contract_of_the_json(predicted: Path, measured: Path) -> None:
    told = json.loads(npuscope("align", predicted, measured, "--step", "2", "--json").stdout)
    assert told["matched"] == 2
    assert [row["kernel"] for row in told["missing"]] == ["SwiGlu", "ArgMaxV2"]
    assert [row["kernel"] for row in told["extra"]] == ["fused_act"]
    assert told["families"]["MatMul"] == pytest.approx(70 / 41 - 1)
    assert told["m6"] == pytest.approx(105 / 127)
    assert told["m6_honest"] == pytest.approx(100 / 102)
    assert [told[f"m{n}"] for n in range(1, 6)] == [None] * 5
    assert "source" in told["metric_reasons"]["m1"]
    assert told["scope"]["measured"]["after"] == {"calls": 2, "ns": 25_000}
    assert told["cancelling"]["cancels_ns"] == 34_000  # 29 of the matmul and 5 of the unknown kernel


def test_several_steps_need_a_choice(predicted: Path, measured: Path) -> None:
    run = npuscope("align", predicted, measured)
    assert (run.returncode, run.stdout) == (2, "")
    assert "it holds 2 steps: 1, 2. Choose one forward pass with --step N." in run.stderr
    run = npuscope("align", predicted, measured, "--step", "9")
    assert run.returncode == 2
    assert "no step 9. It has 1, 2." in run.stderr
    run = npuscope("align", measured, measured, "--step", "1", "--predicted-step", "2", "--json")
    assert json.loads(run.stdout)["cancelling"]["net_ns"] == 4000


def test_columns_can_be_said(tmp_path: Path, measured: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text("what,old_us,fresh\nMatMul,1,0.04\n")
    said = ("--kernel-column", "what", "--time-column", "fresh", "--unit", "ms")
    told = json.loads(npuscope("align", path, measured, "--step", "1", *said, "--json").stdout)
    assert told["kernels"][0]["predicted_ns"] == 40_000
    run = npuscope("align", path, measured, "--step", "1", "--kernel-column", "nope")
    assert run.returncode == 2
    assert "no column 'nope'. It has what, old_us, fresh." in run.stderr
    run = npuscope("align", path, measured, "--step", "1", "--kernel-column", "what", "--time-column", "fresh")
    assert "does not say its unit" in run.stderr


def test_a_chrome_trace_is_a_prediction_too(tmp_path: Path, measured: Path) -> None:
    events = [x("aten.mm.default", 0, 40), x("attention", 40, 60), x("aten.view", 100, 0)]
    run = npuscope("align", write_events(tmp_path / "model.json", events), measured, "--step", "1", "--json")
    assert json.loads(run.stdout)["m6_honest"] == 1.0


def test_what_the_docs_say_of_a_models_table_is_true(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "align.md").read_text()
    (model,) = re.findall(r"^```csv\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "model.csv").write_text(model)
    npuscope("demo", "--keep", tmp_path / "demo_out")
    (command,) = re.findall(r"^\$ npuscope (align .*)$", text, re.MULTILINE)
    words = [tmp_path / word if "." in word else word for word in shlex.split(command)]
    told = json.loads(npuscope(*words, "--json").stdout)
    # "The total is right within 2 %, and hardly a kernel is: matmuls that are too long pay for norms and collectives …"
    predicted, measured = 2_170_000, 2_150_000  # ns, as the page's session has them in three digits
    assert told["m6_honest"] == pytest.approx(predicted / measured, rel=0.005)
    assert abs(told["m6_honest"] - 1) < 0.02
    assert [name for name, error in told["families"].items() if abs(error) < 0.04] == []
    assert told["families"]["MatMul"] > 0 > max(told["families"][name] for name in ("RmsNorm", "AllReduce"))
    assert {pair["over"] for pair in told["cancelling"]["pairs"]} == {"MatMul"}
    # and every word that the page explains is a word of the printed table
    explained = re.findall(r"^\| ([a-z ]+) \|", text.partition("| word |")[2], re.MULTILINE)
    printed = npuscope(*words).stdout
    assert len(explained) == 5
    assert [word for word in explained if word not in printed] == []


class Page(HTMLParser):
    """Counts what matters on a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href") and value != "data:,"]


def test_reports_are_written(predicted: Path, measured: Path, tmp_path: Path) -> None:
    md, html = tmp_path / "a.md", tmp_path / "a.html"
    run = npuscope("align", predicted, measured, "--step", "1", "--md", md, "--html", html)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-2:] == [f"wrote {html}", f"wrote {md}"]
    text = md.read_text()
    assert "| MatMul | 1 | 0 | 0 | 70.0 | 40.0 | 30.0 | 30.0 | 30.0 | +75.0% | +75.0% | 0 | no |" in text
    assert "| MatMul | 30.0 | Attention | -30.0 | 30.0 |" in text
    (chart,) = charts_in(html, "align")
    assert [len(row["start"]) for row in chart["rows"]] == [3, 4]  # every call of both sides
    page = Page()
    page.feed(html.read_text())
    assert page.links == []


def test_names_from_captures_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[2J|x"
    table = write_kernel_table(
        tmp_path / "k.csv", [kernel_row(name=evil, type=evil), kernel_row(start="2000.0", type="MatMul")]
    )
    model = tmp_path / "m.csv"
    model.write_text("kernel,us\nMatMul,5\n")
    run = npuscope("align", model, table, "--html", tmp_path / "a.html", "--md", tmp_path / "a.md")
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout + (tmp_path / "a.md").read_text() + (tmp_path / "a.html").read_text()
    assert "<script>alert" not in (tmp_path / "a.html").read_text()
    assert "<script" not in (tmp_path / "a.md").read_text()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"\x00\x01\x02\xff" * 40, "binary data"),
        (b"kernel,us\n", "a header and no calls"),
        (b"kernel,us\nMatMul,\xff\xfe\n", "not UTF-8"),
        (b"kernel,us\nMatMul,nan\n", "line 2"),
        (b"one,two\n1,2\n", "no column of kernel among one, two"),
        (b'{"traceEvents":[]}', "holds no kernel"),
        (b"kernel,us,count\nMatMul,1,600000\nMatMul,1,600000\n", "too many to lay out"),
    ],
)
def test_a_bad_prediction_is_one_sentence(tmp_path: Path, measured: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)
    run = npuscope("align", path, measured, "--step", "1")
    assert run.returncode == 2, run.stdout + run.stderr
    assert said in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
