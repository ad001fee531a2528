"""A kernel's author in an editor: a save shows what is wrong, what it costs and where, and typing never waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types as lsp

pytest.importorskip("pygls")

from lsp_client import Editor, applied, place

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.editor import look as look_module
from npuscope.editor.messages import LookJob
from npuscope.table.formats import duration

GEMM = '''"""C = A · B, a column of tiles per block."""

import numpy as np
import pypto.language as pl
from golden import TensorSpec, run_jit

M, N, K, TN, TK = 128, 1024, 1024, 64, 128


@pl.jit
def gemm(a: pl.Tensor[[M, K], pl.BF16], b: pl.Tensor[[K, N], pl.BF16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
    with pl.spmd(N // TN, name_hint="gemm"):
        n = pl.tile.get_block_idx()
        a0 = a[:, 0:TK]
        b0 = b[0:TK, n * TN : n * TN + TN]
        acc = pl.matmul(a0, b0, out_dtype=pl.FP32)
        for k in pl.range(1, K // TK):
            left = a[:, k * TK : (k + 1) * TK]
            right = b[k * TK : (k + 1) * TK, n * TN : n * TN + TN]
            acc = pl.matmul_acc(acc, left, right)
        c[:, n * TN : n * TN + TN] = acc
    return c


def golden(tensors):
    tensors["c"][:] = tensors["a"].astype(np.float64) @ tensors["b"].astype(np.float64)


if __name__ == "__main__":
    specs = [
        TensorSpec("a", [M, K], pl.BF16, init_value=lambda rng: rng.normal(size=(M, K))),
        TensorSpec("b", [K, N], pl.BF16, init_value=lambda rng: rng.normal(size=(K, N))),
        TensorSpec("c", [M, N], pl.FP32, is_output=True),
    ]
    raise SystemExit(run_jit(fn=gemm, specs=specs, golden_fn=golden, rtol=1e-4, atol=1e-4).error)
'''


RACING = """import numpy as np
import npuscope.tile as pl


@pl.jit
def program(x: pl.Tensor[[64, 64], pl.FP32], y: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    half = pl.create_tensor([16, 64], dtype=pl.FP32)
    for i in pl.parallel(4):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="halve"):
            half[:, :] = pl.mul(x[i * 16 : i * 16 + 16, :], 0.5)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="store"):
            y[i * 16 : i * 16 + 16, :] = pl.exp(half[:, :])
    return y


program(np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32))
"""


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    one = Editor(seconds=20, fixes=False)
    yield one
    one.end()


@pytest.fixture
def gemm(tmp_path: Path) -> Path:
    file = tmp_path / "gemm.py"
    file.write_text(GEMM)
    return file


def line_of(text: str, part: str) -> int:
    return place(text, part, part)[0] + 1


def test_opening_a_program_shows_its_time_and_findings_where_they_are(editor: Editor, gemm: Path) -> None:
    # WHEN a program is opened
    editor.open(gemm)
    editor.wait(lambda: "short-row" in editor.codes(gemm))
    # THEN findings stand at the lines that `check` names
    expected = {one.id: one.line for one in Prediction(Request(str(gemm))).findings}
    assert editor.codes(gemm) == expected
    # AND the lens above the program has the same time as every other surface, the one at the launch its kernel's
    wall = Prediction(Request(str(gemm))).estimate
    first, verdict, kernel = editor.lenses(gemm)
    assert duration(round(wall.value)) in first
    assert verdict == Prediction(Request(str(gemm))).diagnosis.verdict.sentence
    assert kernel.startswith("gemm: ")
    # AND lines say what they take: the loads of the loop most
    hints = editor.hints(gemm)
    most = max(hints, key=lambda line: float(hints[line].split()[2].rstrip("%")))
    assert most in range(line_of(GEMM, "left ="), line_of(GEMM, "acc = pl.matmul_acc") + 1)


def test_hovering_tells_what_an_op_costs_and_where_a_tile_lies(editor: Editor, gemm: Path) -> None:
    editor.open(gemm)
    editor.wait(lambda: "short-row" in editor.codes(gemm))
    # an op: unit, cost, how sure; and what this line takes
    op = editor.hover(gemm, "acc = pl.matmul_acc", "matmul_acc")
    assert "cube" in op
    assert "cycles" in op
    assert "of all blocks" in op
    # a tile: a[128 x 128] of BF16 is 32 KiB in the cube core's memory, and its lifetime ends at the product
    tile = editor.hover(gemm, "left = a", "left")
    assert "Mat: [128, 128] BF16, 32 KiB" in tile
    assert f"lines {line_of(GEMM, 'left =')} to {line_of(GEMM, 'acc = pl.matmul_acc')}" in tile
    # what is not the program's is nobody's
    assert editor.hover(gemm, "import numpy", "numpy") == ""


def test_a_save_shows_what_it_changed(editor: Editor, gemm: Path) -> None:
    editor.open(gemm)
    editor.wait(lambda: "short-row" in editor.codes(gemm))
    # WHEN blocks get twice as wide, and half as many
    wider = GEMM.replace("TN, TK = 128, 1024, 1024, 64, 128", "TN, TK = 128, 1024, 1024, 128, 128")
    editor.save(gemm, wider)
    # THEN the lens holds it against the save before
    editor.wait(lambda: any("against the save before" in one for one in editor.lenses(gemm)))
    assert "sure)" in editor.lenses(gemm)[0]
    # AND lines say how they changed
    assert any("(" in hint for hint in editor.hints(gemm).values())


def test_typing_is_looked_at_without_running(editor: Editor, gemm: Path) -> None:
    editor.open(gemm)
    editor.wait(lambda: "short-row" in editor.codes(gemm))
    found = editor.codes(gemm)["short-row"]
    # two lines above: what is known moves along, and is not lost
    editor.type(gemm, "# mine\n# all mine\n" + GEMM)
    editor.wait(lambda: editor.codes(gemm).get("short-row") == found + 2)
    # a name that the language lacks, and what it may have meant
    editor.type(gemm, GEMM.replace("pl.matmul(", "pl.matmull("))
    editor.wait(lambda: "no-such-name" in editor.codes(gemm))
    assert editor.codes(gemm)["no-such-name"] == line_of(GEMM, "acc = pl.matmul(")
    # no Python
    editor.type(gemm, GEMM.replace("return c", "return return"))
    editor.wait(lambda: editor.codes(gemm).get("syntax") == line_of(GEMM, "return c"))


def test_what_does_not_run_is_said_at_its_line(editor: Editor, gemm: Path) -> None:
    editor.open(gemm)
    # one that does not fit: 128 x 4096 of BF16 are 1 MiB for a memory of half of that
    large = GEMM.replace("N, K, TN, TK = 128, 1024, 1024, 64, 128", "N, K, TN, TK = 128, 1024, 8192, 64, 4096")
    editor.save(gemm, large)
    editor.wait(lambda: "does-not-run" in editor.codes(gemm))
    assert "no run" in editor.lenses(gemm)[0]
    # one that raises
    editor.save(gemm, GEMM.replace("return c", "return c / 0").replace("acc = pl.matmul(", "acc = 1 / 0; pl.matmul("))
    editor.wait(lambda: editor.codes(gemm).get("does-not-run") == line_of(GEMM, "acc = pl.matmul("))
    # one that leaves
    editor.save(gemm, GEMM.replace("import numpy as np\n", "import sys\n\nimport numpy as np\n\nsys.exit(3)\n"))
    editor.wait(lambda: any("exit code 3" in one.message for one in editor.problems[gemm.as_uri()]))
    # mended
    editor.save(gemm, GEMM)
    editor.wait(lambda: "short-row" in editor.codes(gemm) and "does-not-run" not in editor.codes(gemm))


def test_races_are_known_before_anything_is_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, sent = tmp_path / "program.py", []
    file.write_text(RACING)
    made: list[Prediction] = []

    def predicted(request: Request) -> Prediction:
        made.append(Prediction(request))
        return made[-1]

    monkeypatch.setattr(look_module, "Prediction", predicted)
    monkeypatch.setattr(look_module, "send_early", lambda _, answer: sent.append((answer, "plain" in vars(made[0]))))
    whole = look_module.look(LookJob(Request(str(file)), early="somewhere"))
    (first, simulated), (second, _) = sent
    assert ({one.id for one in first.findings}, first.wall, simulated) == ({"race"}, None, False)
    assert second.wall == whole.wall is not None
    assert set(first.findings) <= set(whole.findings)


def test_a_newer_save_ends_the_work_on_one_that_never_ends(editor: Editor, gemm: Path) -> None:
    editor.open(gemm)
    editor.save(gemm, GEMM.replace("import numpy as np\n", "import numpy as np\n\nwhile True:\n    pass\n"))
    time.sleep(0.5)  # it is under way
    editor.save(gemm, GEMM)
    editor.wait(lambda: "short-row" in editor.codes(gemm))


def test_a_module_of_a_program_counts_as_a_save_of_it(editor: Editor, gemm: Path) -> None:
    sizes = gemm.with_name("sizes.py")
    sizes.write_text("TN, TK = 64, 128\n")
    gemm.write_text(
        GEMM.replace(
            "M, N, K, TN, TK = 128, 1024, 1024, 64, 128", "from sizes import TN, TK\n\nM, N, K = 128, 1024, 1024"
        )
    )
    editor.open(gemm)
    editor.open(sizes)
    editor.wait(lambda: "short-row" in editor.codes(gemm))
    before = editor.lenses(gemm)[0]
    editor.save(sizes, "TN, TK = 64, 256\n")
    editor.wait(lambda: editor.lenses(gemm)[0] != before)


def test_completion_and_signatures_come_from_the_language(editor: Editor, gemm: Path) -> None:
    editor.open(gemm)
    which = lsp.TextDocumentIdentifier(gemm.as_uri())
    line, column = place(GEMM, "pl.matmul_acc", "matmul_acc")
    found = editor.ask("text_document_completion", lsp.CompletionParams(which, lsp.Position(line, column + 6)))
    assert {"matmul", "matmul_acc"} <= {one.label for one in found}
    assert all(one.label.startswith("matmul") for one in found)
    inside = lsp.Position(line, column + len("matmul_acc(acc, "))
    helped = editor.ask("text_document_signature_help", lsp.SignatureHelpParams(which, inside))
    assert helped.signatures[0].label.startswith("pl.matmul_acc(")
    assert helped.active_parameter == 1
    # behind the last line nothing is called, and a call that is open there is
    editor.type(gemm, GEMM)
    behind = lsp.Position(len(GEMM.splitlines()), 0)
    assert editor.ask("text_document_signature_help", lsp.SignatureHelpParams(which, behind)) is None
    editor.type(gemm, GEMM + "pl.full(\n")
    behind = lsp.Position(behind.line + 1, 0)
    assert editor.ask("text_document_signature_help", lsp.SignatureHelpParams(which, behind)) is not None


def test_a_finding_can_be_silenced_from_the_light_bulb(editor: Editor, gemm: Path) -> None:
    editor.open(gemm)
    editor.wait(lambda: "unpipelined-k" in editor.codes(gemm))
    one = next(action for action in editor.actions(gemm) if action.title == "Ignore unpipelined-k here")
    assert one.edit is not None
    assert one.edit.changes is not None
    edited = applied(GEMM, list(one.edit.changes[gemm.as_uri()]))
    assert len(edited.splitlines()) == len(GEMM.splitlines()) + 1
    editor.save(gemm, edited)
    editor.wait(lambda: "short-row" in editor.codes(gemm) and "unpipelined-k" not in editor.codes(gemm))


@pytest.fixture
def mending_editor() -> Iterator[Editor]:
    one = Editor(seconds=30)
    yield one
    one.end()


def test_a_fix_is_offered_after_it_was_tried_and_applies(mending_editor: Editor, gemm: Path) -> None:
    editor = mending_editor
    # GIVEN a sum that a vector core adds up, from zeros
    start, loop = GEMM.index("        a0 ="), GEMM.index("            left =")
    zeros = "        acc = pl.full([M, TN], dtype=pl.FP32, value=0.0)\n        for k in pl.range(K // TK):\n"
    added = "acc = pl.add(acc, pl.matmul(left, right, out_dtype=pl.FP32))  # the sum"
    slow = GEMM[:start] + zeros + GEMM[loop:].replace("acc = pl.matmul_acc(acc, left, right)", added)
    gemm.write_text(slow)
    editor.open(gemm)

    def offered() -> list[lsp.CodeAction]:
        return [one for one in editor.actions(gemm) if one.edit and "likely faster" in one.title]

    # WHEN its fixes were tried and one is applied
    editor.wait(lambda: "add-matmul" in editor.codes(gemm))
    one = editor.wait(offered)[0]
    assert one.edit is not None
    assert one.edit.changes is not None
    mended = gemm.with_name("mended.py")
    mended.write_text(applied(slow, list(one.edit.changes[gemm.as_uri()])))
    # THEN the sum is the cube's, its comment is still there, and every surface calls it faster
    assert "pl.matmul_acc(acc, left, right)  # the sum" in mended.read_text()
    after, before = (Prediction(Request(str(file))).estimate.value for file in (mended, gemm))
    assert after < before
    # AND what was tried for nothing says why it is not offered
    assert any(one.disabled for one in editor.wait(lambda: _not_offered(editor, gemm)))


def _not_offered(editor: Editor, file: Path) -> list[lsp.CodeAction]:
    return [one for one in editor.actions(file) if one.disabled]


def test_a_file_that_is_no_program_is_never_run(editor: Editor, tmp_path: Path) -> None:
    marker, file = tmp_path / "ran", tmp_path / "script.py"
    file.write_text(f"open({str(marker)!r}, 'w')\n")
    editor.open(file)
    editor.save(file, file.read_text() + "# saved\n")
    other = tmp_path / "gemm.py"
    other.write_text(GEMM)
    editor.open(other)
    editor.wait(lambda: "short-row" in editor.codes(other))  # so that a run of the first would be over, too
    assert not marker.exists()


def test_options_that_are_wrong_are_named() -> None:
    one = Editor(device="ascend910b1", colour="red", seconds="many")
    try:
        one.wait(lambda: one.messages)
        assert "colour" in one.messages[0]
        assert "seconds" in one.messages[0]
    finally:
        one.end()


@pytest.mark.full
def test_a_thousand_saves_leave_nothing_behind(editor: Editor, gemm: Path) -> None:
    process = editor.client._server
    assert process is not None

    def resident() -> int:
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    editor.open(gemm)
    for number in range(100):
        editor.save(gemm, GEMM + f"# {number}\n")
    editor.wait(lambda: "short-row" in editor.codes(gemm))
    before = resident()
    for number in range(1000):
        editor.save(gemm, GEMM + f"# {number} again\n")
    editor.save(gemm, GEMM)
    editor.lenses(gemm)
    time.sleep(2)
    assert resident() < before + 20_000  # kB
