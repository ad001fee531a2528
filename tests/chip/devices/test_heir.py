"""Device files that inherit: from a known device, from a file beside them, and as npuscope writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuscope.base.errors import BadInput
from npuscope.chip.devices import Constant, inheriting_file, load


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
