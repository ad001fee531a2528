"""`npuscope improve`: from a naive program to a fast one, step by step; stopped, resumed, and never half."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import npuscope
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.selection import WORLDS, World, searches
from npuscope.answer.fixes import Tried, tried
from npuscope.answer.improve import applied, improve, moved
from npuscope.answer.request import Request
from npuscope.base.errors import CannotWrite
from npuscope.check.fixes.patch import Patch
from npuscope.time.uncertainty import against

PROGRAM = """import numpy as np
from ml_dtypes import bfloat16

import npuscope.tile as pl

M, N, K = 16, 1024, 1024
TILE = 64


@pl.jit
def product(a: pl.Tensor[[M, K], pl.BF16], b: pl.Tensor[[K, N], pl.BF16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
    for n in pl.parallel(0, N, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            total = pl.full([M, TILE], dtype=pl.FP32, value=0.0)
            for k in pl.range(0, K, TILE):  # over K
                total = pl.add(total, pl.matmul(a[:, k : k + TILE], b[k : k + TILE, n : n + TILE]))
            c = pl.assemble(c, total, [0, n])
    return c


rng = np.random.default_rng(0)
a, b = (rng.normal(size=shape).astype(bfloat16) for shape in ((M, K), (K, N)))
product(a, b, np.zeros((M, N), np.float32))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_a_naive_product_becomes_fast_and_every_step_is_a_patch(file: Path) -> None:
    done = npuscope("improve", file, "--trials", "14", "--json", "--patches", "steps", folder=file.parent)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert file.read_text() == PROGRAM  # nothing is written unless it is asked for
    times = [told["wall_ns"], *(one["wall_ns"] for one in told["steps"])]
    assert times == sorted(times, reverse=True)
    assert times[-1] == told["best_ns"] < 0.7 * times[0]
    assert len(told["trials"]) <= 14
    assert all(row["why"] or row["taken"] for row in told["trials"])
    assert {one["numbers"] for one in told["steps"]} <= {"bits", "order"}  # it has no golden
    # the patches, one after the other, are the best program
    for patch in sorted((file.parent / "steps").iterdir()):
        subprocess.run(["git", "apply", str(patch)], cwd=file.parent, check=True)
    assert file.read_text() == told["texts"][str(file)]
    (judged,) = json.loads(npuscope("judge", file, "--json", folder=file.parent).stdout)["answers"]
    assert judged["time"]["wall_ns"] == told["best_ns"]


def test_a_step_in_one_file_leaves_the_others_to_be_tried_again(file: Path) -> None:
    sizes = "M, N, K = 16, 1024, 1024\nTILE = 64\n"
    assert sizes in PROGRAM
    (file.parent / "sizes.py").write_text(sizes)
    file.write_text(PROGRAM.replace(sizes, "from sizes import TILE, K, M, N\n"))
    told = json.loads(npuscope("improve", file, "--trials", "24", "--json", "--no-golden", folder=file.parent).stdout)
    assert {Path(one).name for one in told["texts"]} == {"program.py", "sizes.py"}


def test_it_can_be_stopped_and_goes_on_from_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = 0

    def stop(taken: object) -> None:
        nonlocal stopped
        stopped += 1
        raise KeyboardInterrupt

    first = improve(Request(str(file)), trials=8, tell=stop)
    assert stopped == 1
    assert "stopped" in first.ended
    assert len(first.taken) == 1
    assert file.read_text() == PROGRAM
    known = {one.patch.key for one, _ in first.tried}

    new: list[str] = []

    def noting(at: Request, patches: list[Patch], *rest: Any) -> Iterator[Tried]:
        new.extend(one.key for one in patches)
        return tried(at, patches, *rest)

    monkeypatch.setattr("npuscope.answer.improve.tried", noting)
    again = improve(Request(str(file)), trials=8, resume=True)
    assert not known & set(new)  # none of them is tried again
    assert [step.patch.key for step in again.taken][:1] == [step.patch.key for step in first.taken]


def test_a_file_that_somebody_saved_meanwhile_stays_as_it_is(file: Path) -> None:
    found = improve(Request(str(file)), trials=6)
    assert found.taken
    file.write_text(PROGRAM + "# mine\n")
    with pytest.raises(CannotWrite, match="changed since"):
        applied(found.taken)
    assert file.read_text() == PROGRAM + "# mine\n"


LINES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12)


@given(before=LINES, at=st.integers(0, 11), other=st.integers(0, 11), new=LINES)
def test_edits_move_with_the_text_and_never_touch_what_changed(
    before: list[str], at: int, other: int, new: list[str]
) -> None:
    at, other = at % len(before), other % len(before)
    lines = [f"{name}{n}\n" for n, name in enumerate(before)]
    mine = [*lines[:at], *(f"new_{one}\n" for one in new), *lines[at + 1 :]]
    theirs = [*lines[:other], "theirs\n", "more\n", *lines[other + 1 :]]
    patch = Patch("test", "", "f", "".join(lines), "".join(mine))
    found = moved(patch, "".join(theirs))
    if at == other:
        assert found is None
    else:
        assert found is not None
        both = [*theirs]
        place = both.index(lines[at])
        both[place : place + 1] = [f"new_{one}\n" for one in new]
        assert found.after == "".join(both)


@given(
    ratio=st.floats(0.2, 5).filter(lambda r: r != 1),
    bounds=st.tuples(*[st.sampled_from(["core", "dependency", "bandwidth"])] * 2),
    of=st.integers(1, 200),
)
def test_the_best_of_many_is_less_sure_than_one(ratio: float, bounds: tuple[str, str], of: int) -> None:
    one, best = (against(1.0, ratio, *bounds, of=n) for n in (1, of))
    assert abs(best.faster - 0.5) <= abs(one.faster - 0.5) + 1e-12
    assert (best.faster - 0.5) * (one.faster - 0.5) >= 0
    assert best.ratio.low <= one.ratio.low <= one.ratio.value <= one.ratio.high <= best.ratio.high
    assert best.ratio.value == one.ratio.value
    more = against(1.0, ratio, *bounds, of=of + 1)
    assert abs(more.faster - 0.5) <= abs(best.faster - 0.5) + 1e-12


@pytest.mark.parametrize("world", WORLDS[1:], ids=lambda world: world.name)
def test_an_interval_of_what_was_chosen_holds_what_it_says(world: World) -> None:
    """In worlds whose truth is known; not in the one where predictions are worth nothing."""
    found = list(searches(world, 12, 300))
    once, chosen = (sum(one[way][2] for one in found) / len(found) for way in ("once", "improve"))
    assert chosen >= 0.8
    assert once < chosen
    stated, true = (sum(one["improve"][n] for one in found) / len(found) for n in (0, 1))
    assert stated <= true + 0.06
