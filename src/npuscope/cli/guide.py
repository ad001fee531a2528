"""What a writer of kernels must know, for people and for models.

The language, the chip's limits, what is fast and what is slow, how to read a verdict: made from the tables of ops,
rules and the chip.

Examples:

  npuscope guide

  npuscope guide --device ascend950 > guide.md
"""

from __future__ import annotations

from npuscope.agents.guide import guide
from npuscope.cli import options


def command(device: options.Device = "ascend910b1") -> None:
    print(guide(device))
