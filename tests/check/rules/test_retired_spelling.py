"""Spellings of before June 2026: one finding per scope."""

from __future__ import annotations

from pathlib import Path

from scripts import findings, line_of

OLD = """
@pl.jit
def old(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    # Scope 1: by hand
    with pl.incore():  # first
        out = pl.assemble(out, pl.slice(x, [16, 64], [0, 0]), [0, 0])
    with pl.incore():
        out = pl.assemble(out, pl.slice(x, [16, 64], [16, 0]), [16, 0])
    # Scope 2: by the compiler
    with pl.auto_incore():  # whole
        for i in pl.parallel(2, 3, 1, chunk=1):
            out = pl.assemble(out, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])
        for i in pl.parallel(3, 4, 1, chunk=2):
            out = pl.assemble(out, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])
    return out


def never_run(x):
    with pl.incore():
        pass

old(np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32))
"""


def test_each_scope_is_told_once_and_functions_that_did_not_run_never(tmp_path: Path) -> None:
    found = findings(tmp_path, OLD, "retired-spelling")
    assert [(f.line, f.count) for f in found] == [
        (line_of(OLD, "# first"), 2),
        (line_of(OLD, "# whole"), 1),
        (line_of(OLD, "chunk=1"), 1),
        (line_of(OLD, "chunk=2"), 1),
    ]
    assert found[0].change == "with pl.at(level=pl.Level.CORE_GROUP):  # first"
    assert [line for _, line in found[0].also] == [line_of(OLD, "# first") + 2]


def test_todays_spelling_is_fine(tmp_path: Path) -> None:
    new = OLD.replace("pl.incore()", "pl.at(level=pl.Level.CORE_GROUP)")
    new = (
        new.replace("    with pl.auto_incore():  # whole\n", "    if True:\n")
        .replace(", chunk=2", "")
        .replace(", chunk=1", "")
    )
    inner = "            out = pl.assemble(out, pl.slice(x, [16, 64], [i"
    new = new.replace(inner, f"            with pl.at(level=pl.Level.CORE_GROUP):\n {inner}")
    assert findings(tmp_path, new, "retired-spelling") == []
