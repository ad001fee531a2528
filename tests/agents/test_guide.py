"""`npuscope guide`: what a writer of kernels must know, short, and made from the tables."""

from __future__ import annotations

import re

from command import npuscope

from npuscope.agents.guide import MOST_WORDS, REMEDY, guide
from npuscope.check.rules import own_rules
from npuscope.ops import table
from npuscope.report.reference import first_call
from npuscope.time.bound import KIND_OF


def test_it_has_every_op_every_rule_and_the_chips_memories_in_few_words() -> None:
    text = guide()
    assert len(text.split()) < MOST_WORDS
    for spec in table.BY_NAME.values():
        assert not spec.names or f"`{first_call(spec)}`" in text
    for limit in KIND_OF.values():  # the words that an answer's `bound` has
        assert f"**{limit}**: {REMEDY[limit]}" in text
    for rule in own_rules():
        assert f"`{rule.id}`" in text
    assert "Vec: 188,416 bytes" in text
    assert "Mat: 524,288 bytes" in text


def test_its_program_runs(tmp_path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", guide(), re.DOTALL)
    (tmp_path / "gemm.py").write_text(program)
    assert npuscope("run", tmp_path / "gemm.py").returncode == 0


def test_it_is_printed_for_a_chip() -> None:
    assert "Ascend 950" in npuscope("guide", "--device", "ascend950").stdout
