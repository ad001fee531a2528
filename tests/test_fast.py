"""`make check` leaves out slow files by name: those names must be of files that are there."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_files_left_out_are_there() -> None:
    listed = [line.split("\t") for line in (ROOT / "tests" / "slow.tsv").read_text().splitlines()]
    assert [path for _, path in listed if not (ROOT / path).is_file()] == []
    assert all(float(seconds) > 0 for seconds, _ in listed)
