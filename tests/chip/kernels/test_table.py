"""The table of kernels refuses what it cannot mean, with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuscope.base.errors import BadInput
from npuscope.chip.kernels import kernel_table, parse_table

PATH = Path("my_kernels.toml")
GOOD = '[[kernel]]\nfamily = "spin"\nwork = { by = "bytes", ops = 1 }\nnames.Spin = ["spin"]\n\n'


def test_the_table_that_comes_along_is_sound() -> None:
    assert len(kernel_table().kernel) > 50


def test_an_entry_says_several_things() -> None:
    (entry,) = parse_table(GOOD.encode(), PATH).kernel
    assert entry.rule is not None
    assert (entry.rule.family, entry.rule.work.ops, entry.whole_names) == ("spin", 1, ("spin",))


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ('[[kernel]]\nkind = "comm"\nfound = ["x"]\ncolour = "red"\n', 9, "unknown field `colour`"),
        ('[[kernel]]\nkind = "noise"\nfound = ["x"]\n', 7, "noise"),
        ('[[kernel]]\nfamily = "x"\nwork = { by = "bytes", oops = 1 }\nfound = ["x"]\n', 8, "unknown field `oops`"),
        ('[[kernel]]\nkind = "comm"\n', 6, "knows no name"),
        ('[[kernel]]\nfound = ["x"]\n', 6, "says nothing"),
        ('[[kernel]]\nfamily = "x"\nfound = ["x"]\n', 7, "go together"),
        ('[[kernel]]\nkind = "comm"\nfound = ["("]\n', 8, "no regular expression"),
        ('[[kernel]]\nkind = "comm"\nwhole = ["MatMul"]\n', 8, "can fit no plain name"),
        ('[[kernel]]\nfamily = "x"\nwork = { by = "unpriced" }\nfound = ["x"]\n', 8, "says why"),
        ('[[kernel]]\nkind = "comm"\nalign = "X"\nwhole = ["x"]\n', 8, "no `found`"),
        (GOOD, 9, "stands in an entry before"),
        ("[[kernel]\n", 6, "not a table of kernels"),
    ],
)
def test_a_mistake_has_its_line(text: str, line: int, told: str) -> None:
    with pytest.raises(BadInput, match=told) as caught:
        parse_table((GOOD + text).encode(), PATH)
    assert (caught.value.line, str(caught.value).startswith(f"my_kernels.toml, line {line}")) == (line, True)
