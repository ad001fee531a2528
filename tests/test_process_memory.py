"""Tiles that come and go do not cost page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Two tiles of 256 KB alive at a time, 100 times over: 12,800 pages of 4 KB if none is reused.
PROGRAM = """
import resource
import numpy as np
from npuscope.base.process_memory import keep_freed_memory
if {on}:
    assert keep_freed_memory()
tile = np.ones((256, 256), np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    (tile + tile).astype(np.int32)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(on: bool) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(on=on)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_tiles_are_used_again() -> None:
    assert faults(on=True) < 1000
