"""What `simulate` and `check` of every public PyPTO script cost, and which of them are refused.

    python benchmarks/public_scripts.py CHECKOUT:FOLDER,FOLDER --keep FILE [--command simulate --command check]

e.g. `python benchmarks/public_scripts.py ../pypto-lib:examples,models --keep public.json`. Every script that
`benchmarks/compatibility.py` would run is given to each command in a process of its own, without arguments, in its
checkout, under limits of CPU seconds and memory. Results are kept script by script, so that a run that was stopped goes
on where it was; `--again TEXT` runs those whose path has this text once more. `--page` writes the table, which is
`docs/understand/tables/public_scripts.csv`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from io import FileIO
from pathlib import Path

from compatibility import Checkout, cards

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("simulate", "check")
OPTIONS = {"simulate": ("--program", "0"), "check": ()}  # of several programs of a script the first
ANSWER = re.compile(rb"fits on chip|will not work")  # what `check` says in a terminal as soon as it knows
DUE = 3.0  # CPU seconds in which it should
WITH_VALUES = "was run with values"


@dataclass(frozen=True)
class Measured:
    """One command on one script. `first`: CPU seconds until `check` said if it fits; `said`: why it was refused."""

    script: str
    command: str
    result: str  # answered, refused, time, memory
    cpu: float
    wall: float
    first: float
    megabytes: float
    said: str = ""
    values: bool = False  # whether all values were computed, because some of them decide what runs
    day: str = ""


def measured(checkout: Checkout, script: str, command: str, cpu: float, gigabytes: float) -> Measured:
    """Runs one command in a process of its own."""
    called = [sys.executable, "-m", "npuscope", command, script, *OPTIONS[command]]
    begin = time.perf_counter()
    mine, terminal = os.openpty()
    with tempfile.TemporaryFile() as printed, os.fdopen(mine, "rb", buffering=0) as errors:
        process = subprocess.Popen(
            called,
            cwd=checkout.path,
            stdout=printed,
            stderr=terminal,
            preexec_fn=lambda: _limited(cpu, gigabytes),
            env={**os.environ, "NPUSCOPE_NO_CACHE": "1", "COLUMNS": "400", "TERM": "dumb"},
        )
        os.close(terminal)
        said, first = _heard(errors, process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read().decode(errors="replace")
    used = usage.ru_utime + usage.ru_stime
    result, why = _judged(process.returncode, said, checkout.path)
    peak, values = usage.ru_maxrss / 1024, WITH_VALUES in re.sub(r"\s+", " ", text + said)
    day = date.today().isoformat()
    return Measured(script, command, result, round(used, 1), round(wall, 1), round(first, 1), peak, why, values, day)


def _heard(terminal: FileIO, pid: int) -> tuple[str, float]:
    """All that a process says in its terminal, and the CPU seconds that it had taken when it first knew an answer."""
    said, first = b"", 0.0
    with suppress(OSError):  # Linux says so when the process has closed it
        while part := terminal.read(1 << 16):
            said += part
            if not first and ANSWER.search(said):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                first = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", said.decode(errors="replace")), first


def _limited(cpu: float, gigabytes: float) -> None:
    size = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu), int(cpu) + 5))


def _judged(code: int, said: str, path: Path) -> tuple[str, str]:
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "time", ""
    if "MemoryError" in said or "has not the memory" in said or "can't allocate memory" in said:
        return "memory", ""
    if code == 2:
        lines = [line for line in said.strip().splitlines() if line.strip()]
        return "refused", re.sub(r"\s+", " ", " ".join(lines)).replace(f"{path}/", "").replace("|", "\\|")[:400]
    if code < 0 or "Traceback" in said:
        return "died", said[-300:]
    return "answered", ""


# --- the table


def table(found: Sequence[Measured]) -> list[list[str]]:
    """A row per script: what each command takes, and on which day that was seen."""
    commands = [c for c in COMMANDS if any(one.command == c for one in found)]
    known = {(one.script, one.command): one for one in found}
    rows = [["script", *(cell for c in commands for cell in (f"`{c}`, CPU-s", *_ANSWERS[c], "GiB", "day"))]]
    for script in sorted({one.script for one in found}):
        rows.append([script, *(cell for c in commands for cell in _cells(c, known.get((script, c))))])
    return rows


_ANSWERS = {"simulate": (), "check": ("first answer",)}


def _cells(command: str, one: Measured | None) -> list[str]:
    if one is None:
        return [""] * (3 + len(_ANSWERS[command]))
    words = {"answered": "", "refused": " refused", "time": " over", "memory": " no memory", "died": " died"}
    first = [f"{one.first:.1f}" if one.first else "" for _ in _ANSWERS[command]]
    return [f"{one.cpu:.1f}{words[one.result]}", *first, f"{one.megabytes / 1024:.1f}", one.day]


def summary(found: Sequence[Measured]) -> str:
    lines = []
    for command in COMMANDS:
        mine = sorted((one for one in found if one.command == command), key=lambda one: one.cpu)
        if not mine:
            continue
        cpu, memory = [one.cpu for one in mine], sorted(one.megabytes for one in mine)
        late = [f"{one.script} {one.first:.1f}" for one in mine if one.first > DUE]
        at = min(int(0.95 * len(mine)), len(mine) - 1)
        answered = sum(one.result == "answered" for one in mine)
        lines.append(
            f"{command}: {answered} of {len(mine)} answered; CPU-s median {cpu[len(cpu) // 2]:.1f}, "
            f"95 % {cpu[at]:.1f}, most {cpu[-1]:.1f}; GiB 95 % {memory[at] / 1024:.1f}, most {memory[-1] / 1024:.1f}"
        )
        if late:
            lines.append(f"  first answer after more than {DUE} CPU-s: {len(late)}: {', '.join(late)}")
        lines += [f"  {one.result}: {one.script}: {one.said}" for one in mine if one.result != "answered"]
    return "\n".join(lines)


def read(file: Path) -> list[Measured]:
    return [] if not file.exists() else [Measured(**one) for one in json.loads(file.read_text())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", help="CHECKOUT:FOLDER,FOLDER")
    parser.add_argument("--keep", type=Path, required=True, help="results, script by script")
    parser.add_argument("--command", action="append", choices=COMMANDS)
    parser.add_argument("--cpu", type=float, default=120, help="CPU seconds for one command")
    parser.add_argument("--memory", type=float, default=12, help="GiB of addresses for one command")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", help="run scripts with this text in their path again")
    parser.add_argument("--only", default="", help="run only scripts with this text in their path")
    parser.add_argument("--cards", choices=["one", "several"], help="run only scripts for so many cards")
    parser.add_argument("--page", type=Path, help="write the table to this CSV file")
    args = parser.parse_args()
    checkout = Checkout.named(args.checkout)
    kept = {(one.script, one.command): one for one in read(args.keep)}
    wanted = [
        (script, command)
        for command in args.command or COMMANDS
        for script in reversed(checkout.scripts())  # long ones, which take longest, first
        if args.only in script and ((script, command) not in kept or (args.again and args.again in script))
        if args.cards in (None, cards((checkout.path / script).read_text(errors="replace")))
    ]

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(args.jobs) as pool:
        for one in pool.map(lambda job: measured(checkout, *job, args.cpu, args.memory), wanted):
            about = f"{one.first:4.1f} {one.command} {one.script}  {one.said}{' (values)' if one.values else ''}"
            print(f"{one.result:9}{one.cpu:7.1f} s {one.megabytes / 1024:5.1f} GiB  {about}", flush=True)
            kept[one.script, one.command] = one
            args.keep.write_text(json.dumps([asdict(each) for each in kept.values()], indent=1))
    print(summary(list(kept.values())))
    if args.page is not None:
        with args.page.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table(list(kept.values())))


if __name__ == "__main__":
    main()
