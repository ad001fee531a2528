"""A sweep of 1,000 variants that is killed in the middle and goes on: what is lost, what is run twice, and its time.

python benchmarks/sweep.py               # two processes; also compiles the simulator once more, in a copy

Variants count as run where the program wrote a line of its own when it had been recorded.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

from measure import table

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """import os

import numpy as np

import npuscope.tile as pl

ROWS, COLUMNS, TURNS = 16, 256, 1


@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for i in pl.parallel(0, 1280, ROWS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="add"):
            part = pl.slice(x, [ROWS, COLUMNS], [i, 0])
            for _ in pl.range(TURNS):
                part = pl.add(part, 1.0)
            y = pl.assemble(y, part, [i, 0])
    return y


program(np.zeros((1280, COLUMNS), np.float32), np.zeros((1280, COLUMNS), np.float32))
with open(os.environ["RAN"], "a") as file:
    file.write(f"ROWS={ROWS} COLUMNS={COLUMNS} TURNS={TURNS}\\n")
"""
# 10 x 10 x 10; the largest tiles do not fit into the 184 KiB of a vector core and are results too
GRID = {
    "ROWS": (1, 2, 4, 5, 8, 10, 16, 20, 40, 80),
    "COLUMNS": tuple(range(64, 641, 64)),
    "TURNS": tuple(range(1, 11)),
}
JOBS = 2


def environment(package: Path, ran: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(package), "RAN": str(ran)}


def command(file: Path, results: Path) -> list[str]:
    words = [sys.executable, "-m", "npuscope", "sweep", str(file), "--results", str(results), "--jobs", str(JOBS)]
    for name, values in GRID.items():
        words += ["--set", f"{name}={','.join(map(str, values))}"]
    return [*words, "--no-why", "--json"]


def timed(words: list[str], ran: Path) -> tuple[str, float, float]:
    """What a command says, its seconds on the clock, and CPU seconds with those of its processes."""
    begin, before = time.perf_counter(), os.times()
    done = subprocess.run(words, cwd=ROOT, env=environment(ROOT, ran), check=True, stdout=subprocess.PIPE, text=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, time.perf_counter() - begin, cpu


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def killed_and_resumed(folder: Path) -> int:
    file, results, ran = folder / "add.py", folder / "results.jsonl", folder / "ran.txt"
    file.write_text(PROGRAM)
    total = 1
    for values in GRID.values():
        total *= len(values)
    begin = time.perf_counter()
    sweep = subprocess.Popen(
        command(file, results),
        cwd=ROOT,
        env=environment(ROOT, ran),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while lines(results) < total // 2:
        if sweep.poll() is not None:
            raise SystemExit("the sweep ended before it was half done")
        time.sleep(0.02)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    first = time.perf_counter() - begin
    time.sleep(1)  # its workers end by themselves
    finished = {json.loads(line)["variant"] for line in results.read_bytes().splitlines(True) if line.endswith(b"\n")}
    started = Counter(ran.read_text().splitlines())
    ran.unlink()
    told, second, work = timed(command(file, results), ran)
    again = Counter(ran.read_text().splitlines())
    _, third, rest = timed(command(file, results), ran)
    kept = Counter(json.loads(line)["variant"] for line in results.read_text().splitlines())
    twice = sum(again[name] for name in finished) + sum(count - 1 for count in kept.values())
    lost = total - len(kept)
    ranked = json.loads(told)
    table(
        f"{total:,} variants, {JOBS} processes, killed (SIGKILL) when half were done",
        ("", "variants", "s on the clock", "CPU s", "CPU ms a variant"),
        [
            ("until it was killed", len(finished), f"{first:.1f}", "", ""),
            ("run again: the rest", len(again), f"{second:.1f}", f"{work:.1f}", f"{1e3 * work / len(again):.0f}"),
            ("once more: nothing to do", 0, f"{third:.1f}", f"{rest:.1f}", ""),
        ],
    )
    in_work = sum((started - Counter(finished)).values())
    print(f"\nlost: {lost}; finished and yet run again: {twice}; in work when it was killed, and run again: {in_work}")
    print(f"in the ranking: {len(ranked):,}, of which {sum('error' in one for one in ranked)} do not fit")
    return lost + twice + (len(ranked) != total)


def first_use(folder: Path) -> None:
    """`npuscope simulate` in a copy of the package, which has no machine code yet, and again; with a terminal."""
    shutil.copytree(ROOT / "src/npuscope", folder / "npuscope", ignore=shutil.ignore_patterns("__pycache__"))
    words = [sys.executable, "-m", "npuscope", "simulate", str(ROOT / "models/basics/gemm.py"), "--no-report"]
    rows = []
    for name in ("first use", "second"):
        terminal, theirs = pty.openpty()
        begin, before = time.perf_counter(), os.times()
        process = subprocess.Popen(
            words, cwd=folder, env=environment(folder, folder / "ran.txt"), stdout=subprocess.DEVNULL, stderr=theirs
        )
        os.close(theirs)
        said = b"".join(iter(partial(_read, terminal), b""))
        if process.wait() != 0:
            raise SystemExit(said.decode())
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        shown = "yes" if b"compiling the simulator" in said else "no"
        rows.append((name, f"{cpu:.1f}", f"{time.perf_counter() - begin:.1f}", shown))
    table("first use: compiling", ("", "CPU s", "s on the clock", "compiling is shown"), rows)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side is closed
        return b""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        bad = killed_and_resumed(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        first_use(Path(folder))
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
