"""Chips: files read and checked, inherited, listed and compared."""

from pathlib import Path

import pytest

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.chip import devices as device
from npuscope.chip.devices import Constant, inheriting_file, load

OWN = """
name = "mine"
title = "a chip of mine"
inherits = "a3"
[clock]
core = { value = 1.0e9, unit = "Hz", source = "my bench", confidence = "measured" }
[family.gemm]
fixed_us = { value = 4.2, unit = "us", source = "a fit", confidence = "fitted" }
"""


@pytest.mark.parametrize("name", device.names())
def test_every_constant_says_where_it_comes_from(name: str) -> None:
    chip = device.load(name)
    shown = dict(device.constants(chip))
    assert {"cores.cube", "memory.size", "memory.bandwidth", "cube.bf16", "vector.fp32"} <= shown.keys()
    assert all(constant.source.strip() and constant.unit for constant in shown.values())
    # a vector unit is far slower than a matrix unit, and half the width is never slower
    assert (chip.peak("cube", "bf16") or 0) > 3 * (chip.peak("vector", "fp32") or 0)
    assert (chip.peak("cube", "int8") or 0) >= (chip.peak("cube", "bf16") or 0)


def test_names_are_taken_as_people_and_captures_write_them() -> None:
    for name in ("a3", "A3", "910C", "ascend910_93", "Ascend910C"):
        assert device.load(name).name == "a3"
    assert device.load("NVIDIA H100 80GB HBM3").name == "h100"  # deviceProperties of a torch profile
    assert device.load("AMD Instinct MI300X").name == "mi300x"


def test_the_910_variants_are_one_die_with_other_cores_and_clocks() -> None:
    # 16x16x16 multiply-adds per cycle: 8192 FLOP x cores x clock
    expected = {"ascend910b1": 24 * 1.85e9, "ascend910b2": 24 * 1.8e9, "ascend910b3": 20 * 1.8e9, "a3": 24 * 1.85e9}
    for name, cycles in expected.items():
        assert device.load(name).peak("cube", "bf16") == pytest.approx(8192 * cycles)
    assert device.load("910b4").bandwidth == device.load("910b3").bandwidth / 2
    # the best public GEMM on this die, 308 TFLOP/s (measured.md 1) and 316.8 (41040x5120x3200), stay below the peak
    assert 316.8e12 < (device.load("a3").peak("cube", "fp16") or 0) < 376e12


def test_chips_that_can_be_timed_have_the_same_constants_and_say_what_they_take_over() -> None:
    base = device.load("910b1")
    timed = [chip for chip in map(device.load, device.names()) if chip.timing]
    assert {chip.name for chip in timed} >= {"ascend910b1", "ascend910b3", "ascend910b4", "a3", "ascend950"}
    for chip in timed:
        assert chip.timing.keys() == base.timing.keys(), chip.name
        # what blocks together draw from memory was fitted on one die; others have it in proportion to the data sheet's
        expected = base.timing["hbm_rate"].value * chip.bandwidth / base.bandwidth
        assert chip.timing["hbm_rate"].value == pytest.approx(expected, rel=0.005)
        assert chip.name in ("ascend910b1", "a3") or chip.timing["hbm_rate"].confidence == "guessed"
        for name, constant in chip.timing.items():
            if constant.source.startswith("taken from the 910B, where it was fitted"):
                assert constant.value == base.timing[name].value, name


def test_a_file_of_ones_own_names_only_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    mine = device.load(path)
    assert mine.peak("cube", "bf16") == 24 * 8192 * 1e9
    assert mine.bandwidth == device.load("a3").bandwidth
    assert mine.family["gemm"]["fixed_us"].value == 4.2
    assert [link.name for link in mine.link] == [link.name for link in device.load("a3").link]


def test_an_unknown_device_is_answered_with_the_known_ones() -> None:
    with pytest.raises(NpuscopeError, match=r"no device 'b200'. Known are a3, ascend910b1, .*mi300x"):
        device.load("b200")


def timing(name: str, value: float, unit: str) -> str:
    return f'\n[timing]\n{name} = {{ value = {value}, unit = "{unit}", confidence = "guessed", source = "a test" }}\n'


def curve(columns: str, slope: str) -> str:
    bias = 'bias = [1, 2], confidence = "guessed", source = "a test"'
    return f"\n[reduce]\nrow_max = {{ columns = {columns}, slope = {slope}, {bias} }}\n"


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ('name = "mine"', "missing required field `title`"),
        ("not toml at all [", "not a device file"),
        (OWN.replace("1.0e9", "-1"), "clock.core is -1"),
        (OWN.replace("1.0e9", "nan"), "clock.core is nan"),
        (OWN.replace("1.0e9", "0"), "clock.core is zero"),
        (OWN.replace("1.0e9", "1e-9"), "clock.core is 1e-09, which no chip has"),
        (OWN + timing("hbm_rate", 0, "B/s"), "timing.hbm_rate is zero"),
        (OWN + timing("idle_loop", 0, "s"), "timing.idle_loop is zero"),
        (OWN + timing("submit_base", 1e9, "s"), "timing.submit_base is 1e+09, which no chip has"),
        (OWN + curve("[64, 128]", "[0.1]"), "reduce.row_max needs widths from narrow to wide"),
        (OWN + curve("[128, 64]", "[0.1, 0.2]"), "reduce.row_max needs widths from narrow to wide"),
        (OWN.replace("my bench", " "), "clock.core has no source"),
        (OWN.replace('"measured"', '"rumoured"'), "Invalid enum value 'rumoured'"),
        (OWN.replace('inherits = "a3"', 'inherits = "nobody"'), "inherits 'nobody'"),
        (OWN.replace("title", "tittle"), "unknown field"),
    ],
)
def test_broken_files_are_told_with_their_place(tmp_path: Path, change: str, shown: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(change)
    with pytest.raises(BadInput) as error:
        device.load(path)
    assert shown in str(error.value)
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NpuscopeError, match=r"missing\.toml"):
        device.load(tmp_path / "missing.toml")


def constant(value: float, source: str = "a capture") -> Constant:
    return Constant(value, "s", source, "fitted")


def test_a_written_file_reads_as_it_was_meant(tmp_path: Path) -> None:
    source = 'of "run 1\\2", µs'
    (tmp_path / "mine.toml").write_text(
        inheriting_file("mine", "my chip", "ascend910b1", {"pickup": constant(4.6e-7, source)})
    )
    mine, known = load(tmp_path / "mine.toml"), load("ascend910b1")
    assert (mine.name, mine.title, mine.inherits) == ("mine", "my chip", "ascend910b1")
    assert mine.timing == {**known.timing, "pickup": constant(4.6e-7, source)}


def test_a_file_inherits_from_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        inheriting_file("base", "base", "910b2", {"pickup": constant(4e-7), "switch": constant(1e-7)})
    )
    (tmp_path / "mine.toml").write_text(inheriting_file("mine", "mine", "base.toml", {"pickup": constant(5e-7)}))
    mine = load(tmp_path / "mine.toml")
    assert (mine.timing["pickup"].value, mine.timing["switch"].value) == (5e-7, 1e-7)
    assert mine.clock == load("910b2").clock


def test_a_circle_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(inheriting_file("a", "a", "b.toml", {}))
    (tmp_path / "b.toml").write_text(inheriting_file("b", "b", "a.toml", {}))
    with pytest.raises(BadInput, match=r"inherits 'a\.toml', which inherits from it"):
        load(tmp_path / "a.toml")
    (tmp_path / "c.toml").write_text(inheriting_file("c", "c", "nowhere.toml", {}))
    with pytest.raises(BadInput, match=r"nowhere\.toml: a device file .* cannot be read"):
        load(tmp_path / "c.toml")
