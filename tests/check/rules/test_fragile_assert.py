"""Checks of constants that a sweep over tile sizes runs into."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuscope.check.rules.fragile_assert import findings_in
from npuscope.lower.source import read


def fragile(tmp_path: Path, text: str) -> list[tuple[int, str]]:
    file = tmp_path / "layer.py"
    file.write_text(text)
    source = read(str(file))
    assert source
    return [(f.line, f.message.partition(": ")[2]) for f in findings_in(source)]


def test_the_neighbour_that_breaks_is_named(tmp_path: Path) -> None:
    # 5120 = 5 · 1024: a tile of 2048 does not divide it, one of 512 does
    text = "HIDDEN = 5120\nK_TILE = 1024\nassert HIDDEN % K_TILE == 0\n"
    assert fragile(tmp_path, text) == [(3, "K_TILE = 2048 fails `HIDDEN % K_TILE == 0`")]
    assert fragile(tmp_path, text.replace("1024", "512")) == []


def test_a_guard_that_raises_and_constants_that_follow_from_the_tile(tmp_path: Path) -> None:
    text = """HIDDEN = 5120

def factory():
    TILE = 256
    PAIR = 2 * TILE
    if HIDDEN % PAIR:
        raise ValueError("no")
    if HIDDEN % (2 * PAIR) != 0:
        raise ValueError("no")
"""
    # twice the tile: PAIR is 1024 and 2 * PAIR is 2048
    assert fragile(tmp_path, text) == [(8, "TILE = 512 fails `not HIDDEN % (2 * PAIR) != 0`")]


def test_one_finding_per_tile(tmp_path: Path) -> None:
    text = "H, I, N_TILE = 5120, 17408, 1024\nassert H % N_TILE == 0\nassert I % N_TILE == 0 and N_TILE > 1\n"
    ((line, said),) = fragile(tmp_path, text)
    assert line == 2
    assert said.count("N_TILE = 2048") == 2


@pytest.mark.parametrize(
    "guard",
    [
        "assert N_TILE == K_TILE",  # they change together
        "assert N_TILE * 64 <= 128 * 1024",  # a limit of the chip
        "assert N_TILE % 1024 == 0",  # an alignment: the tile is what is divided
        "assert ROWS % N_TILE == 0",  # the tile is the whole tensor
        "assert HIDDEN % N_TILE == 0 or open('/etc/passwd')",  # nothing is called
        "assert size.hidden % N_TILE == 0",
        "assert 2 ** HIDDEN % N_TILE == 0",
        "assert HIDDEN % 0 == N_TILE",
    ],
)
def test_what_is_meant_to_fail_or_cannot_be_told_is_left_alone(tmp_path: Path, guard: str) -> None:
    assert fragile(tmp_path, f"HIDDEN, ROWS, N_TILE, K_TILE = 5120, 1024, 1024, 1024\n{guard}\n") == []
