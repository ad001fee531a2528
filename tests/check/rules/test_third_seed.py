"""The review of a 32B decode layer that people made by hand, item by item: found by machine in the layer as it was.

Each item of the review is a rule at a line; the improved layer has none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts import check_file

from npuscope.check.run import Checked
from npuscope.check.source_text import section_of
from npuscope.tile.record.model import short_name

MODELS = Path(__file__).resolve().parents[3] / "models"
AS_FOUND, REFERENCE = "qwen3_32b_tilelet_as_found.py", "qwen3_32b_reference.py"


@dataclass(frozen=True)
class Item:
    """What the review says, the rule that says it, and where: a line that holds `text`, the `nth` of such lines."""

    review: str
    rule: str
    text: str
    nth: int = 0
    scope: str = ""
    file: str = AS_FOUND
    kernel: str = ""  # how its name ends
    names: str = ""  # tensors that the message tells of
    across: str = ""  # the other scope that it reaches into

    @property
    def line(self) -> int:
        lines = (MODELS / self.file).read_text().splitlines()
        return [n for n, line in enumerate(lines, 1) if self.text in line][self.nth]


ONE, TWO, THREE = "Scope 1", "Scope 2", "Scope 3"
ITEMS = [
    # scope 1, performance
    Item("zero-init of q_proj and attn_out", "zero-fill", "zero = pl.full([BATCH_TILE, N_CHUNK]", 0, ONE, kernel="_0"),
    Item("zero-init of k_proj and v_proj", "zero-fill", "zero = pl.full([BATCH_TILE, N_CHUNK]", 1, ONE, kernel="_1"),
    Item("K and V read the same normed tile apart", "shared-load", "with pl.incore()", 5, ONE, kernel="_5"),
    Item("manual incore", "retired-spelling", "with pl.incore()", 0, ONE),
    # scope 1, code quality
    Item("RMSNorm without rsqrt", "variance-not-rsqrt", "pl.row_expand_mul(x, variance)", 0, ONE, kernel="_2"),
    Item("the golden has the same bug", "variance-not-rsqrt", "variance if faulty_norm", 0, "golden", REFERENCE),
    # scope 2, performance
    Item("four stages per block", "gm-round-trip", "with pl.incore()", 8, TWO, names="raw_scores exp_padded products"),
    Item("padded QK matmul", "padded-rows", "pl.matmul(q_padded", 0, TWO, kernel="_8"),
    Item("padded SV matmul", "padded-rows", "pl.matmul(exp_padded", 0, TWO, kernel="_10"),
    Item("matmul_acc for QK after fusing", "add-matmul", "pl.matmul(q_padded", 0, TWO, kernel="_8"),
    Item("matmul_acc for SV after fusing", "add-matmul", "pl.matmul(exp_padded", 0, TWO, kernel="_10"),
    # scope 2, code quality
    Item("raw_scores written, then read", "gm-round-trip", "with pl.incore()", 8, TWO, names="raw_scores"),
    # scope 3, performance
    Item("add(o_acc, matmul) in the output projection", "add-matmul", "o_acc = pl.add(o_acc", 0, THREE),
    Item("down projection in chunks of 4", "retired-spelling", "for step in pl.parallel(0, K_BLOCKS", 0, THREE),
    Item("gate and up load post_normed", "shared-load", "x_tile = pl.slice(post_normed", 0, THREE, names="w_gate w_up"),
    # across scopes
    Item("q_proj from scope 1 to 2", "gm-round-trip", "q_proj = pl.assemble(q_proj, q_acc", 0, ONE, across=TWO),
    Item("k_proj from scope 1 to 2", "gm-round-trip", "k_proj = pl.assemble(k_proj, k_acc", 0, ONE, across=TWO),
    Item("v_proj from scope 1 to 2", "gm-round-trip", "v_proj = pl.assemble(v_proj, v_acc", 0, ONE, across=TWO),
    Item("one matmul pattern: gate", "add-matmul", "gate = pl.add(gate", 0, THREE),
    Item("one matmul pattern: up", "add-matmul", "up = pl.add(up", 0, THREE),
    Item("one matmul pattern: down", "add-matmul", "pl.add(so_far, part)", 0, THREE),
]  # fmt: skip


def checked(*argv: str) -> Checked:
    return check_file(MODELS / "qwen3_32b_tilelet.py", *argv)


@pytest.fixture(scope="module")
def as_found() -> Checked:
    return checked("--as-found")


@pytest.fixture(scope="module")
def improved() -> Checked:
    return checked()


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.review)
def test_an_item_of_the_review_is_found_at_its_place(as_found: Checked, item: Item) -> None:
    at_its_line = [
        one
        for one in as_found.findings
        if one.id == item.rule and (Path(one.file).name, one.line) == (item.file, item.line)
    ]
    assert at_its_line
    assert all(one.section.title.startswith(item.scope) for one in at_its_line)
    assert all(short_name(one.kernel).endswith(item.kernel) for one in at_its_line)
    assert all(one.remedy for one in at_its_line)
    for one in at_its_line:
        assert [name for name in item.names.split() if name not in one.message] == []
        reached = {section_of(*place).title.partition(":")[0] for place in one.also}
        assert not item.across or (one.crosses and item.across in reached)


def test_the_improved_layer_has_none_of_them(improved: Checked) -> None:
    assert {one.id for one in improved.findings} & {item.rule for item in ITEMS} == set()
    assert not improved.errors
    assert not improved.races


def test_wrong_numbers_and_large_waste_are_warnings(as_found: Checked) -> None:
    worst = {item.rule for item in ITEMS} - {"shared-load"}
    assert worst <= {one.id for one in as_found.findings if one.severity == "warning"}
