"""Runs pieces of Python in fresh processes and tells their CPU seconds and peak memory.

CPU seconds include imports and every thread, so that a faster reader cannot hide work. Times on a shared
machine are noisy: look at ratios, and at the best of several runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Cost(NamedTuple):
    """The best run's CPU seconds, its wall seconds, and the largest resident set in megabytes."""

    cpu: float
    wall: float
    megabytes: float


def cost(command: list[str], runs: int = 3, around: Mapping[str, str] | None = None) -> Cost:
    """Run a command several times, in this environment or another; the cheapest run counts."""
    return min((_run(command, around) for _ in range(runs)), key=lambda c: c.cpu)


def python_cost(code: str, *, python: str = sys.executable, runs: int = 3) -> Cost:
    """Run code in a fresh interpreter."""
    return cost([python, "-c", code], runs)


def _run(command: list[str], around: Mapping[str, str] | None) -> Cost:
    import time

    begin = time.perf_counter()
    # standard error goes to a file: a pipe that nobody reads would stop a talkative program
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=around)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)[:200]} failed: {errors.read().decode(errors='replace')[-800:]}")
    wall = time.perf_counter() - begin
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


def table(title: str, header: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)


def make(maker: str, *arguments: object) -> None:
    """A capture, made in a process of its own, so that its memory does not count."""
    script = Path(__file__).with_name("captures.py")
    subprocess.run([sys.executable, str(script), maker, *map(str, arguments)], check=True)
