"""What commands print can be read without the docs: no private words, the answer first, at most about a screen."""

from __future__ import annotations

import re
from pathlib import Path

import command
import pytest

from npuscope.cli import GROUPS, summary_of
from npuscope.explain.waits import IN_WORDS, PARTS

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs/reference/glossary.md"
SOFTMAX = ROOT / "models/basics/softmax.py"
LAYER = ROOT / "models/qwen3_14b/decode_layer.py"
SCREEN = 60  # lines: half a screen more than a small one, for programs of many kernels
PRIVATE = re.compile(
    r"\bFIN\b|\bpickup\b|\bstarved\b|\bedge\b|\bepisodes?\b|\bstretch(es)?\b|\bcover of\b|told twice|under way|"
    r"work again|not told\b|\bhonest\b|\buntold\b|telling\b"
)
COMMANDS = {
    "report": ("report", "run"),
    "compare": ("compare", "run", "slow_scheduler"),
    "whatif": ("whatif", "run"),
    "forward": ("forward", "kernel_details.csv"),
    "roofline": ("roofline", "kernel_details.csv", "--device", "a3"),
    "report of a kernel table": ("report", "kernel_details.csv"),
    "predict": ("predict", "--config", "qwen3_32b.json", "--batch", "16", "--context", "4096", "--tp", "16"),
    "info": ("info", "run"),
    "info of a kernel table": ("info", "kernel_details.csv"),
    "doctor": ("doctor", "run"),
    "doctor of a kernel table": ("doctor", "kernel_details.csv"),
    "formats": ("formats",),
    "device": ("device", "list"),
    "run": ("run", str(SOFTMAX)),
    "check": ("check", str(SOFTMAX)),
    "memory": ("memory", str(LAYER)),
    "graph": ("graph", str(LAYER)),
    "simulate": ("simulate", str(SOFTMAX)),
    "whatif of a program": ("whatif", str(SOFTMAX)),
    "simulate, times alone": ("simulate", str(SOFTMAX), "--no-report", "--wide"),
    "inside a block": ("simulate", str(SOFTMAX), "--pipes", "softmax"),
    "rank": ("rank", str(SOFTMAX), str(SOFTMAX.with_name("rms_norm.py")), "--jobs", "1"),
    "sweep": ("sweep", str(SOFTMAX.with_name("gemm.py")), "--set", "TILE=64,128", "--jobs", "1", "--no-why"),
    "judge": ("judge", str(SOFTMAX), "--no-golden"),
    "tpot": ("tpot", str(LAYER.with_name("decode.py")), "--batch", "4", "--context", "120", "--tokens", "1", "--",
             "--small"),
    "gate": ("gate", "run", "--budget", "budget.toml"),
    "history": ("history", "times.jsonl"),
    "convert": ("convert", "run", "run.json"),
}  # fmt: skip
BUDGET = """[[limit]]
metric = "wall_us"
max = 958
[[limit]]
metric = "mean_us"
kernel = "up_proj"
max = 33.3
"""
LINES = "".join(f'{{"commit": "c{n}", "wall_ns": {1234567.8 + n}, "kernels": {{"k": 1234.5678}}}}\n' for n in range(4))
# People read three digits; 100.0% and 1,234 have four. A whole number without a unit is a count, a size or a line.
NUMBER = re.compile(r"(?<![\w.:#-])(\d[\d,]*(?:\.\d+)?)( ?(?:ns|µs|ms|s|%|x|[kMGT]?B|[kMGT]?FLOP|[KMG]iB)\b)?")
NOUNS = "tasks|blocks|kernels|slices|calls|steps|captures|limits|findings|variants|runs|commits|changes|rows|gaps"
ONE_OF_MANY = re.compile(rf"(?<![\d.,])\b1 (?:more )?(?:{NOUNS}|launches|switches|passes)\b|\(s\)")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("demo")
    run = command.npuscope("demo", "--keep", folder)
    assert run.returncode == 0, run.stderr
    assert not PRIVATE.search(run.stdout)
    assert "What to try next:" in run.stdout
    (folder / "budget.toml").write_text(BUDGET)
    (folder / "times.jsonl").write_text(LINES)
    return folder


def digits(number: str) -> int:
    """Significant ones; zeros at the end of a whole number are none."""
    bare = number.replace(",", "")
    return len((bare.replace(".", "") if "." in bare else bare.rstrip("0")).lstrip("0"))


def test_digits_are_counted_as_people_count_them() -> None:
    assert [digits(number) for number in ("0.0129", "1,030.86", "100.0", "45,000", "0", "1.50")] == [3, 6, 4, 2, 0, 3]
    found = NUMBER.findall("1,030.86 µs, 1,088 tasks at layer.py:12345, 33.3333% of 4096 B")
    assert found == [("1,030.86", " µs"), ("1,088", ""), ("33.3333", ""), ("4096", " B")]
    assert ONE_OF_MANY.search("in 1 calls")
    assert not ONE_OF_MANY.search("1 call of 21 calls")


def printed(demo: Path, words: tuple[str, ...], **environment: str) -> str:
    done = command.npuscope(*words, folder=demo, **environment)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_no_line_has_a_private_word_and_the_whole_fits_about_a_screen(demo: Path, words: tuple[str, ...]) -> None:
    text = printed(demo, words)
    found = [line for line in text.splitlines() if PRIVATE.search(line)]
    assert found == []
    assert len(text.splitlines()) <= SCREEN
    assert "\x1b" not in text  # a pipe gets plain text
    # times have a unit that fits: nobody reads 1,234.567 µs
    assert re.findall(r"\d{4,}(?:\.\d+)? (?:ns|µs|ms)\b|\d,\d{3}\.\d+ (?:ns|µs|ms)\b", text) == []
    told = [number + unit for number, unit in NUMBER.findall(text) if digits(number) > 4 and ("." in number or unit)]
    assert told == [], "more than four significant digits"
    assert ONE_OF_MANY.findall(text) == []


def test_the_first_line_is_the_answer(demo: Path) -> None:
    def first(*words: str) -> str:
        return printed(demo, words).splitlines()[0]

    compared = first("compare", "run", "slow_scheduler")
    assert compared == "slow_scheduler is 1.34x slower than run (959 µs → 1.29 ms): +392 µs ready, not handed out yet"
    assert first("compare", "slow_scheduler", "run").startswith("run is 1.34x faster than slow_scheduler (1.29 ms")
    assert first("memory", str(LAYER)) == "Fits: the fullest memory is Right 100.0% (q_proj)"
    assert first("roofline", "kernel_details.csv", "--device", "a3").startswith(
        "Kernels run at 82.5% of the chip's limits"
    )
    assert first("forward", "kernel_details.csv").endswith(
        "3 forward passes (3 decode), 2 of them whole and undisturbed; 4 layers each; one takes 2.21 ms (median)"
    )
    assert first("doctor", "run").startswith("Sound, with 2 notes")


def test_compare_leaves_out_what_is_the_same_and_says_so(demo: Path) -> None:
    text = printed(demo, ("compare", "run", "slow_scheduler"))
    assert "All kernels have the same count and core time in both." in text
    assert "down_proj" not in text
    assert "down_proj" in printed(demo, ("compare", "run", "slow_scheduler", "--wide"))


def test_run_says_that_fit_was_not_checked_and_how_to(demo: Path) -> None:
    text = printed(demo, ("run", str(SOFTMAX)))
    assert f"`npuscope check {SOFTMAX}` tells whether it fits on chip" in text


def test_colour_is_for_terminals_and_can_be_refused(demo: Path) -> None:
    words = ("compare", "run", "slow_scheduler")
    coloured = printed(demo, words, FORCE_COLOR="1", NO_COLOR="")
    assert coloured.startswith("\x1b[1mslow_scheduler is 1.34x slower")
    assert re.search(r"\x1b\[31m +392 *\x1b\[0m", coloured)  # more time is red
    assert re.search(r"\x1b\[32m +-48.6 *\x1b\[0m", coloured)  # less is green
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == printed(demo, words)
    assert "\x1b" not in printed(demo, words, FORCE_COLOR="1", NO_COLOR="1")


def test_an_error_is_red_where_colour_is_wanted(tmp_path: Path) -> None:
    told = command.npuscope("report", tmp_path / "nothing", FORCE_COLOR="1", NO_COLOR="").stderr
    assert told.startswith("\x1b[1;31mnpuscope:\x1b[0m ")
    assert command.npuscope("report", tmp_path / "nothing").stderr.startswith("npuscope: ")


def test_help_shows_every_command_by_question_with_its_whole_summary() -> None:
    lines = command.npuscope("--help", COLUMNS="80", TERMINAL_WIDTH="80").stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "..." not in "".join(lines[5:])
    for title, names in GROUPS.items():
        assert f"{title}:" in lines
        for name in names:
            assert any(line.split() == [name, *summary_of(name).split()] for line in lines), name
    assert "Examples:" in lines


def test_the_glossary_has_every_reason_with_its_words() -> None:
    rows = [line.split(" | ") for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    listed = {row[1].strip("`"): row[0].removeprefix("| ") for row in rows if len(row) == 3}
    assert {key: listed.get(key) for key in PARTS} == IN_WORDS
