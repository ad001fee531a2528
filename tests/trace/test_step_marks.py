"""What the names of annotations say of steps."""

from __future__ import annotations

import pytest

from npuscope.trace.names import StepMark, numbered, step_mark

VLLM, SGLANG, TORCH = "execute_", "step[", "ProfilerStep#"


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("ProfilerStep#17", StepMark(TORCH, 17)),
        ("execute_context_1(888_788544)_generation_0(0)", StepMark(VLLM, None, "prefill", 888)),
        ("execute_context_0(0)_generation_32(32)", StepMark(VLLM, None, "decode", 32)),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
         StepMark(VLLM, None, "decode", 32)),
        ("execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk34489)", StepMark(VLLM, None, "mixed", 8192)),
        ("step[EXTEND bs=15 toks=15360]", StepMark(SGLANG, None, "prefill", 15360)),
        ("step[DECODE bs=32]", StepMark(SGLANG, None, "decode", 32)),
        ("step[TARGET_VERIFY bs=4]", StepMark(SGLANG, None, "target_verify", None)),
        ("execute_diffusion_1_256x256", None),
        ("execute_context", None),
        ("ProfilerStep#x", None),
        ("capture_32_DECODE", None),
    ],
)  # fmt: skip
def test_names(name: str, mark: StepMark | None) -> None:
    assert step_mark(name) == mark


def test_the_spelling_with_most_marks_counts() -> None:
    decode, extend = "execute_context_0(0)_generation_1(1)", "step[EXTEND bs=1 toks=5]"
    assert numbered(["ProfilerStep#4", decode, "ProfilerStep#5", decode]) == [4, None, 5, None]  # one in each
    assert numbered(["ProfilerStep#4", decode, decode]) == [None, 0, 1]  # many in one
    assert numbered([decode, extend]) == [0, None]  # SGLang's is inside the other
    assert numbered(["nothing"]) == [None]
