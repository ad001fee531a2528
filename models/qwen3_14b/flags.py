"""The experiments of the A8W8 layer: switches with the environment variables' names that its tracking issue gives them.

All off (the default) is the layer as that issue found it: 224 + 40 + 28 + 32 tasks. AFTER is the layer after the fixes.
`serialised` is not of the issue: what the layer declared of its dependencies then is not public, and without the
opt-outs of the later form it takes about as long as was measured (docs/understand/trust.md).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Flags:
    """What the layer does differently."""

    fused_qkv_dequant: bool = False  # q, k, v_proj scale their own results; else qk_norm and v_norm do
    fused_qk_norm: bool = False  # QK-norm and RoPE are one kernel
    batched_q_rope: bool = False  # FAULTY, with fused_qk_norm: one rotation for all rows and heads of a KV head
    dual_gate_up_proj: bool = False  # gate and up of one N tile in one task, two accumulators
    dual_down_proj: bool = False  # two N tiles of down in one task, K in two parts
    mlp_tn: int = 0  # N tile of gate, up and silu; 0: the model's
    down_splitk_atomic: bool = False  # K of down in two tasks that add up in GM
    fuse_out_proj_npair: bool = False  # two N tiles of out_proj in one task
    quant_rowmax_transpose: bool = False  # quantisation keeps the rows' maxima as a row, not as a column
    spmd: bool = False  # equal tasks are blocks of one task
    serialised: bool = False  # tasks that write parts of one tensor wait for one another

    def __post_init__(self) -> None:
        if self.batched_q_rope and not self.fused_qk_norm:
            raise ValueError("QWEN_A8W8_BATCHED_Q_ROPE changes the fused kernel: set QWEN_A8W8_FUSED_QK_NORM too")
        if self.dual_down_proj and self.down_splitk_atomic:
            raise ValueError("QWEN_A8W8_DUAL_DOWN_PROJ and DOWN_SPLITK_ATOMIC are two ways to cut down_proj: set one")

    def apart(self, *tensors: Any) -> list[Any]:
        """For `no_dep_args=`: tensors of which sibling tasks write parts, and that readers wait for by task id."""
        return [] if self.serialised else list(tensors)


AFTER = Flags(fused_qkv_dequant=True, dual_gate_up_proj=True, dual_down_proj=True, fuse_out_proj_npair=True, spmd=True)

VARIABLES = {
    "fused_qkv_dequant": "QWEN_A8W8_FUSED_QKV_DEQUANT",
    "fused_qk_norm": "QWEN_A8W8_FUSED_QK_NORM",
    "batched_q_rope": "QWEN_A8W8_BATCHED_Q_ROPE",
    "dual_gate_up_proj": "QWEN_A8W8_DUAL_GATE_UP_PROJ",
    "dual_down_proj": "QWEN_A8W8_DUAL_DOWN_PROJ",
    "mlp_tn": "MLP_TN",
    "down_splitk_atomic": "DOWN_SPLITK_ATOMIC",
    "fuse_out_proj_npair": "FUSE_OUT_PROJ_NPAIR",
    "quant_rowmax_transpose": "QUANT_ROWMAX_TRANSPOSE",
    "spmd": "QWEN_A8W8_SPMD",
    "serialised": "QWEN_A8W8_SERIALISED",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """One option per flag; an option goes before the environment variable."""
    for name, variable in VARIABLES.items():
        option = f"--{name.replace('_', '-')}"
        if name == "mlp_tn":
            parser.add_argument(option, type=int, help=f"also {variable}=n")
        else:
            parser.add_argument(option, action=argparse.BooleanOptionalAction, help=f"also {variable}=1")


def chosen(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Flags:
    """The flags of a command line and its environment."""
    found = {}
    for field in fields(Flags):
        given = getattr(options, field.name)
        if given is None:
            text = environment.get(VARIABLES[field.name], str(int(field.default)))
            if not text.isdigit():
                raise SystemExit(f"{VARIABLES[field.name]} is {text!r}: it takes a whole number, 0 for off")
            given = int(text) if field.name == "mlp_tn" else text != "0"
        found[field.name] = given
    try:
        return Flags(**found)
    except ValueError as error:
        raise SystemExit(str(error)) from None
