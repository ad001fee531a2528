"""Time per token: which steps are simulated, what lies between them, what is told of layers and what is refused."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.answer.prediction import Refused
from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import load
from npuscope.explain.diagnosis import Cause, Diagnosis
from npuscope.explain.work import area_rules
from npuscope.forward.llm.tpot import (
    MOST_STEPS,
    DecodeStep,
    Decoding,
    Tpot,
    decode_step,
    lengths_to_simulate,
    predicted,
    program_file,
    tpot,
)

DECODE = program_file("qwen3-14b")
CHIP = load("ascend910b1")


def test_steps_are_simulated_at_both_ends_and_both_sides_of_a_page() -> None:
    assert lengths_to_simulate(Decoding(context=4096, tokens=48)) == [4097, 4144]  # one page, the 33rd
    assert lengths_to_simulate(Decoding(context=4080, tokens=48)) == [4081, 4096, 4097, 4128]
    assert lengths_to_simulate(Decoding(context=127, tokens=2)) == [128, 129]
    assert lengths_to_simulate(Decoding(context=0, tokens=1)) == [1]


@given(st.integers(0, 10_000), st.integers(1, 5_000))
def test_few_steps_are_simulated_and_always_the_ends(context: int, tokens: int) -> None:
    found = lengths_to_simulate(Decoding(context=context, tokens=tokens))
    assert (found[0], found[-1]) == (context + 1, context + tokens)
    assert len(found) <= MOST_STEPS
    assert found == sorted(set(found))


def test_measures_are_linear_between_simulated_steps() -> None:
    ends = (step(1, ms=1.0, tasks=10), step(5, ms=3.0, tasks=10))
    result = Tpot("m", (), "chip", Decoding(1, 0, 5), ends, 2, {"MLP": 3}, NOTHING, {})
    assert result.over_tokens("ms") == [1.0, 1.5, 2.0, 2.5, 3.0]
    told = result.as_dict()
    assert (told["ms_per_token"], told["first_ms"], told["last_ms"]) == (2.0, 1.0, 3.0)
    assert told["tasks_per_step"] == 10


NOTHING = Diagnosis((Cause("unknown", "Nothing ran.", 0.0),), 0, (0, 0))


def step(length: int, ms: float, tasks: int) -> DecodeStep:
    return DecodeStep(length, ms, tasks, tasks, tasks, 1.0, 2.0, 0.5, 0.1, 0.1, "bandwidth")


def test_a_step_s_measures_agree_with_its_trace() -> None:
    """The small model: 68 tasks a layer (as recorded), and one mixed kernel, whose blocks have three records."""
    one = predicted(DECODE, ["--small"], {"batch": 4, "context": 129}, CHIP)
    found, recording = decode_step(one.simulated, 129), one.recording
    mixed = sum(task.blocks for task in recording.tasks if task.core == "MIX")
    assert mixed > 0
    assert found.records == found.blocks + 2 * mixed
    assert found.tasks == len([task for task in recording.tasks if task.core != "none"])
    assert found.overhead == pytest.approx(1 - found.mean_run_us / found.mean_dispatch_to_finish_us)
    assert 0 < found.schedulers_busy <= 1
    assert 0 < found.orchestrator_busy <= 1


def test_groups_per_layer_are_what_one_more_layer_adds() -> None:
    """The A8W8 issue counts 224 + 40 + 28 + 32 groups per layer, however many layers the step has."""
    file = program_file("qwen3-14b-a8w8")
    rules = area_rules(Path(file).with_name("groups.toml"))
    found = tpot(file, ["--layers", "3"], Decoding(16, 255, 1), CHIP, rules)
    assert found.layers == 3
    assert found.groups == {"MLP": 224, "out_proj": 40, "other": 32, "QKV": 28}


def test_time_is_told_by_the_areas_of_every_other_command() -> None:
    # GIVEN the small step, and what its trace says of kernels and their areas
    found = tpot(DECODE, ["--small"], Decoding(4, 128, 1), CHIP, area_rules())
    kernels = predicted(DECODE, ["--small"], {"batch": 4, "context": 129}, CHIP).timeline.tables()["kernels"].frame
    areas = kernels.group_by("area").agg(pl.col("core_ns", "path_ns").sum())
    # THEN times of areas are those of their kernels, attention among them, and none is lost
    table = found.tables()["group_table"].frame
    told = {area: (core, path) for area, core, path in table.select("area", "core_ns", "path_ns").iter_rows()}
    assert {area: times for area, times in told.items() if times[0]} == {
        area: (core, path) for area, core, path in areas.iter_rows()
    }
    assert told["attention"][0] > 0
    assert table["core_share"].sum() == pytest.approx(1)


def test_a_program_without_layers_is_counted_per_step(tmp_path: Path) -> None:
    file = tmp_path / "step.py"
    file.write_text(STEP)
    found = tpot(str(file), [], Decoding(2, 127, 2), CHIP, area_rules())
    assert found.layers is None
    assert found.groups == {"attention": 2}
    assert found.as_dict()["groups_per"] == "step"
    assert [one.tasks for one in found.simulated] == [1, 2]  # a task per page
    assert found.as_dict()["tasks_per_step"] == 1.5
    assert found.simulated[0].ms < found.simulated[1].ms


def test_a_program_that_takes_no_context_is_refused_with_what_it_said(tmp_path: Path) -> None:
    file = tmp_path / "step.py"
    file.write_text(STEP.replace('"--context"', '"--length"'))
    with pytest.raises(Refused, match=r"step\.py: refuses --batch 2 --context 128 .*unrecognized arguments.*--context"):
        tpot(str(file), [], Decoding(2, 127, 2), CHIP, area_rules())


@pytest.mark.parametrize(("name", "sizes"), [("batch", (0, 1, 1)), ("context", (1, -1, 1)), ("tokens", (1, 1, 0))])
def test_sizes_must_make_sense(name: str, sizes: tuple[int, int, int]) -> None:
    with pytest.raises(NpuscopeError, match=f"--{name} is"):
        Decoding(*sizes)


def test_short_names_are_our_programs_and_other_names_must_be_files() -> None:
    assert Path(DECODE).name == "decode.py"
    with pytest.raises(NpuscopeError, match=r"no such file. Name a tile program, or one of qwen3-14b, qwen3-14b-a8w8"):
        program_file("llama")


STEP = """
import argparse
import numpy as np
import npuscope.tile as pl

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int)
parser.add_argument("--context", type=int)
options = parser.parse_args()
PAGES = -(-options.context // 128)

@pl.jit
def step(k: pl.Tensor, out: pl.Out[pl.Tensor]):
    for page in pl.parallel(PAGES):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="attention_page"):
            out[page * 128 : page * 128 + 128, :] = pl.exp(k[page * 128 : page * 128 + 128, :])
    return out

step(np.zeros((PAGES * 128, 64), np.float32), np.zeros((PAGES * 128, 64), np.float32))
"""


def test_sizes_that_a_program_does_not_heed_are_told(tmp_path: Path) -> None:
    # GIVEN a program that looks at --batch alone
    file = tmp_path / "deaf.py"
    file.write_text(
        "import sys\n"
        "import npuscope.tile as pl\n"
        "rows = 16 * int(sys.argv[sys.argv.index('--batch') + 1])\n"
        "@pl.jit\n"
        "def step(x: pl.Tensor, y: pl.Out[pl.Tensor]):\n"
        "    for i in pl.parallel(0, rows, 16):\n"
        "        with pl.at(level=pl.Level.CORE_GROUP, name_hint='add'):\n"
        "            y = pl.assemble(y, pl.add(pl.slice(x, [16, 64], [i, 0]), 1.0), [i, 0])\n"
        "    return y\n"
        "step(pl.Placeholder((rows, 64), pl.FP32), pl.Placeholder((rows, 64), pl.FP32))\n"
    )
    found = tpot(str(file), [], Decoding(4, 100, 2), CHIP, area_rules(None))
    assert found.notes == ("--context makes no difference: the program's tasks are the same for 332 as for 102.",)
    assert found.as_dict()["notes"] == list(found.notes)
    # and the models that come with npuscope heed both
    assert tpot(DECODE, ["--small"], Decoding(4, 120, 2), CHIP, area_rules(None)).notes == ()
