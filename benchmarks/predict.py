"""What a cold `npuscope predict` costs in CPU seconds and memory, beside the peer's published figures.

    python benchmarks/predict.py

The peer is TensorCast (Ascend/msmodeling @84fec853); its figures were measured on a machine of two cores and are quoted
from facts/forward_passes.md §7, not run here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from measure import cost, table

CONFIGS = Path(__file__).resolve().parents[1] / "tests" / "data" / "configs"
# what, config, options, the peer's CPU seconds and peak, our bound
CASES = [
    ("Qwen3-32B decode b16 TP16", "qwen3_32b", "--batch 16 --context 4096 --tp 16", "9.8–11.6", "490", "1.5"),
    ("Qwen3-32B prefill 4096 TP16", "qwen3_32b", "--phase prefill --tokens 4096 --tp 16", "13.3", "490", ""),
    (
        "DeepSeek-V3 decode b5 W8A8 TP8 DP2", "deepseek_v3", "--batch 5 --context 4096 --tp 8 --dp 2 --quant w8a8",
        "27.5 (--compile)", "1010", "",
    ),
    ("GLM-5 decode b8 TP8 DP2", "glm_5", "--batch 8 --context 4096 --tp 8 --dp 2", "", "", ""),
]  # fmt: skip


def main() -> None:
    rows = []
    for what, config, options, peer, peer_memory, bound in CASES:
        command = [sys.executable, "-m", "npuscope", "predict", "--config", str(CONFIGS / f"{config}.json")]
        used = cost(command + options.split())
        rows.append([what, f"{used.cpu:.2f}", f"{used.wall:.2f}", f"{used.megabytes:.0f}", bound, peer, peer_memory])
    header = ["cold prediction", "CPU s", "wall s", "peak MB", "bound CPU s", "TensorCast CPU s", "its peak MB"]
    table("npuscope predict", header, rows)


if __name__ == "__main__":
    main()
