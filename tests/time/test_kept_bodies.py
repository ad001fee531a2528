"""Bodies that are kept between runs: nothing changes but the time, and nothing is taken that is out of date."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace as changed
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import fields, replace
from random_programs import arguments, module, source
from tiers import examples

from npuscope.base import files
from npuscope.base.errors import NpuscopeError
from npuscope.base.files import FOLDERS
from npuscope.chip.devices import OP_PARTS, Constant, Device, OpCost, ReduceCost, load
from npuscope.lower import program as lower_program
from npuscope.lower.lowering import LoweringOptions
from npuscope.lower.program import KIND, Lowerer, Program
from npuscope.ops import table
from npuscope.ops.spec import VECTOR, OpSpec
from npuscope.tile.record.model import Op, Recording
from npuscope.tile.run.execute import record
from npuscope.time.chip.prepare import Prepared, prepare
from npuscope.time.core import stream as kept_streams
from npuscope.time.run import run
from tests.lower.kernels import tensor

CHIP = load("910b1")
OPTIONS = LoweringOptions()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that bodies are kept in."""
    place = tmp_path / "kept"
    place.mkdir()
    monkeypatch.setitem(FOLDERS, KIND, place)
    return place


def prepared(recording: Recording, folder: Path | None, device: Device = CHIP) -> Prepared:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FOLDERS, KIND, folder)
        return prepare(Program(recording, device))


def prepared_from_kept(recording: Recording, folder: Path) -> Prepared:
    """Fails where anything is lowered."""
    with pytest.MonkeyPatch.context() as patch:
        for place, name in ((lower_program, "passed"), (lower_program, "build"), (kept_streams, "_StreamWriter")):
            patch.setattr(place, name, lambda *_: pytest.fail("it was made anew"))
        return prepared(recording, folder)


def same(one: Prepared, other: Prepared) -> None:
    """In every number and every line."""
    ours, theirs = one.program.planned, other.program.planned
    assert [(key, a.kernel, a.task, a.lowered, a.plan) for key, a in ours.items()] == [
        (key, b.kernel, b.task, b.lowered, b.plan) for key, b in theirs.items()
    ]
    for a, b in zip(one.classes.streams, other.classes.streams, strict=True):
        for name in type(a).__dataclass_fields__:
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for name in ("run", "draws", "block_class", "submit", "out"):
        np.testing.assert_array_equal(getattr(one.job, name), getattr(other.job, name), err_msg=name)
    assert run(one).wall == run(other).wall


@given(random=st.randoms(use_true_random=False))
@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_program_is_the_same_with_and_without_what_is_kept(random: Random, tmp_path: Path) -> None:
    program = module(source(random), tmp_path / f"program_{random.getrandbits(40)}.py")
    recording = program.main.record(*arguments(), mode="shapes").recording
    folder = Path(mkdtemp(dir=tmp_path))
    try:
        fresh = prepared(recording, None)
    except NpuscopeError as refused:  # one in fifty wants a way that the chip does not have
        for _ in ("cold", "warm"):
            with pytest.raises(NpuscopeError, match=re.escape(str(refused))):
                prepared(recording, folder)
        return
    cold, warm = prepared(recording, folder), prepared_from_kept(recording, folder)
    same(fresh, cold)
    same(fresh, warm)


PROGRAM = """
import npuscope.tile as pl

{above}
@pl.jit
def main(x: pl.Tensor, w: pl.Tensor, out: pl.Out[pl.Tensor]):
    {before}
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        total = pl.matmul(x[:, 0:64], w[0:64, :])
        for k in pl.pipeline(64, {deep}, 64, stage={stage}):
            total = pl.matmul_acc(total, x[:, k : k + 64], w[k : k + 64, :])
        {name} = pl.exp({operand})
        out = pl.assemble(out, {name}, [0, 0])
    return out
"""
BEFORE = """with pl.at(level=pl.Level.CORE_GROUP, name_hint="other"):
        out = pl.assemble(out, pl.full([16, 128], dtype=pl.FP32, value=0.0), [0, 0])
"""


IDLE = """with pl.at(level=pl.Level.CORE_GROUP, name_hint="idle"):
        for k in pl.range(0):
            out = pl.assemble(out, pl.full([16, 128], dtype=pl.FP32, value=0.0), [0, 0])
"""


def written(folder: Path, **other: object) -> Recording:
    told = {"above": "", "before": "pass", "deep": 256, "stage": 2, "name": "grown", "operand": "total", **other}
    file = folder / f"program_{len(list(folder.iterdir()))}.py"
    main: Any = module(PROGRAM.format(**told), file).main
    tensors = tensor((16, 256), "BF16"), tensor((256, 128), "BF16"), tensor((16, 128), "FP32")
    return record(main, *tensors, mode="shapes").recording


def content(recording: Recording, device: Device = CHIP, options: LoweringOptions = OPTIONS) -> str | None:
    """What the last task's body is known by."""
    task = recording.tasks[-1]
    return Lowerer(recording, device, options).planned(task, task.groups[0].body)[2]


def test_a_body_that_moves_in_its_file_is_taken_and_has_its_new_lines(folder: Path, tmp_path: Path) -> None:
    # GIVEN a program that ran
    places = tmp_path / "sources"
    places.mkdir()
    same(prepared(written(places), None), prepared(written(places), folder))
    kept = set(folder.iterdir())
    # WHEN lines are put in above the function, which moves every line
    moved = written(places, above="# one\n# and another")
    # THEN nothing is lowered, and lines are those of the new file
    same(prepared(moved, None), prepared_from_kept(moved, folder))
    # WHEN a task is put in before it, which gives every line of the recording another number
    later = written(places, before=BEFORE)
    same(prepared(later, None), prepared(later, folder))
    # THEN only the new task's body and stream came to be kept, and a stream of the body that reads what it has made
    assert len(set(folder.iterdir()) - kept) == 3


def test_a_task_that_does_nothing_is_none_the_worse(folder: Path, tmp_path: Path) -> None:
    recording = written(tmp_path, before=f"{BEFORE}    {IDLE}")
    assert len(recording.tasks) == 3
    same(prepared(recording, None), prepared(recording, folder))
    same(prepared(recording, None), prepared(recording, folder))


def test_what_a_body_is_decides_what_is_taken(folder: Path, tmp_path: Path) -> None:
    places = tmp_path / "sources"
    places.mkdir()
    changes: list[dict[str, object]] = [
        {}, {"deep": 192}, {"stage": 3}, {"name": "other"}, {"operand": "pl.neg(total)"}, 
        {"operand": "pl.mul(total, 2.0)"},
    ]  # fmt: skip
    found = [content(written(places, **one)) for one in changes]
    assert None not in found
    assert len(set(found)) == len(found)
    assert content(written(places)) == found[0]


def constants(thing: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number of a device file with the file in which it is another."""
    if isinstance(thing, Constant):
        yield path, replace(thing, value=thing.value * 2 + 1)
    elif isinstance(thing, OpCost):
        yield from ((f"{path}.{name}", replace(thing, **{name: 7.5})) for name in OP_PARTS)
    elif isinstance(thing, ReduceCost):
        yield from ((f"{path}.{name}", replace(thing, **{name: (7.5,)})) for name in ("columns", "slope", "bias"))
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from ((where, {**thing, key: other}) for where, other in constants(value, f"{path}.{key}"))
    elif hasattr(thing, "__struct_fields__"):
        for one in fields(thing):
            for where, other in constants(getattr(thing, one.name), f"{path}.{one.name}"):
                yield where, replace(thing, **{one.name: other})


def test_every_constant_of_the_chip_every_option_and_npuscope_itself_decide(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = written(tmp_path)
    found = {"as it is": content(recording)}
    for where, chip in constants(CHIP):
        assert isinstance(chip, Device)
        found[where] = sha256(lower_program.device_content(chip)).hexdigest()
    assert len(found) > 200
    assert len(set(found.values())) == len(found), "two chips are taken for one"
    for where in (".timing.load_fixed", ".core.fractal", ".space.Mat.size", ".op.vexp.slope"):
        chip = dict(constants(CHIP))[where]
        found[f"lowered with {where}"] = content(recording, chip)
    found["eight slots"] = content(recording, options=LoweringOptions(ring_slots=8))
    found["nothing streams"] = content(recording, options=LoweringOptions(stream=False))
    monkeypatch.setattr(lower_program, "source_digest", lambda: "another version")
    found["another version"] = content(recording)
    assert len(set(found.values())) == len(found)


def test_a_chip_of_other_times_has_other_streams(folder: Path, tmp_path: Path) -> None:
    """Lowering does not look at times, but streams are made of them: also where a program takes its bodies along."""
    recording = written(tmp_path)
    program = Program(recording, CHIP)
    slower = replace(CHIP, timing={**CHIP.timing, "load_fixed": replace(CHIP.timing["load_fixed"], value=1e-6)})
    before, after = prepare(program), prepare(program.with_timing(slower))
    assert np.all(after.job.run > before.job.run)
    same(prepared(recording, None, slower), after)


def test_an_op_of_ones_own_is_not_kept(folder: Path, tmp_path: Path) -> None:
    recording = written(tmp_path)
    assert content(recording) is not None
    spec = OpSpec("my_exp", VECTOR, "custom", "Another one.", cost="op.vexp")
    task = recording.tasks[-1]
    body = recording.bodies[task.groups[0].body]
    items = [
        changed(item, name=spec.name) if isinstance(item, Op) and item.name == "exp" else item for item in body.items
    ]
    other = changed(recording, bodies=(changed(body, items=tuple(items)),))
    table.add(spec)
    try:
        assert content(other) is None
    finally:
        del table.BY_NAME[spec.name], table.BY_SPELLING[spec.name]
        table.FAMILIES[table.ADDED].remove(spec)


def test_what_a_disk_has_spoilt_is_made_anew(folder: Path, tmp_path: Path) -> None:
    recording = written(tmp_path)
    fresh = prepared(recording, folder)
    for n, file in enumerate(sorted(folder.iterdir())):
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2] if n % 2 else b"\0" * len(data))
    same(fresh, prepared(recording, folder))
    same(fresh, prepared_from_kept(recording, folder))


def test_files_that_are_kept_have_a_bound_and_can_be_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(files, "FOLDERS", {})
    monkeypatch.setattr(files, "MOST", 10_000)
    made: list[str] = []

    def kept(key: str) -> bytes:
        return files.cached("things", key, lambda: made.append(key) or bytes(1000))  # type: ignore[func-returns-value]

    keys = [f"{n:02}" for n in range(1, 20)]
    for key in (*keys, *keys):
        assert kept(key) == bytes(1000)
    assert made == keys, "each is made once"
    kept("0020")  # one of those that find too much, and drop the oldest
    assert sum(file.stat().st_size for file in (tmp_path / "npuscope" / "things").iterdir()) <= 5_000
    assert [kept("0020"), made[-1]] == [bytes(1000), "0020"]
    assert [kept("01"), made[-1]] == [bytes(1000), "01"]
    files.FOLDERS.clear()
    monkeypatch.setenv(files.OFF, "1")
    assert [kept("0020"), made[-1]] == [bytes(1000), "0020"]
    assert made.count("0020") == 2
