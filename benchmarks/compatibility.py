"""Which public PyPTO scripts run as they are, and what each of the others lacks.

    python benchmarks/compatibility.py CHECKOUT:FOLDER,FOLDER … [--python PYTHON] [--timeout SECONDS]

e.g. `python benchmarks/compatibility.py ../pypto-lib:examples,models ../pypto:examples`. Every Python file there that
has a `__main__` and imports PyPTO is run in a process of its own as a user would, by `npuscope run FILE`
in the checkout with no arguments, and the list is written to its page. PYTHON needs torch, for the scripts
do.

Files of tests (`test_*.py`) are run, too: `../pypto:examples,tests/st/runtime`. `--months 2026-05` also tries the
folder `examples` of each checkout as it was at the end of every month since.

`--keep FILE` keeps the results: scripts in it are not run again unless `--only TEXT` (part of the path) or
`--again failed` says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from evidence_page import write_page

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
GIGABYTES = 18  # a script may not take the machine down
SEVERAL_CARDS = "pypto.language.distributed"


@dataclass(frozen=True)
class Outcome:
    """How one script ended: `passed` its own comparison, `ran` without one, `failed`, or out of `time`."""

    checkout: str
    script: str
    cards: str
    result: str
    reason: str = ""
    seconds: float = 0.0
    tasks: int = 0
    findings: int = 0


@dataclass(frozen=True)
class Checkout:
    path: Path
    folders: tuple[str, ...]

    @staticmethod
    def named(text: str) -> Checkout:
        path, _, folders = text.partition(":")
        return Checkout(Path(path).resolve(), tuple(folders.split(",")) if folders else ("examples",))

    @property
    def commit(self) -> str:
        said = subprocess.run(["git", "-C", str(self.path), "rev-parse", "HEAD"], capture_output=True, text=True)
        return said.stdout.strip() or "unknown"

    @property
    def name(self) -> str:
        return self.path.name

    def scripts(self) -> list[str]:
        """Short files first: long ones tend to be long programs."""
        found = []
        for folder in self.folders:
            for file in sorted((self.path / folder).rglob("*.py")):
                text = file.read_text(errors="replace")
                wanted = "__main__" in text or file.name.startswith("test_")
                if wanted and ("pypto" in text or "golden" in text):
                    found.append((len(text), str(file.relative_to(self.path))))
        return [script for _, script in sorted(found)]


def cards(text: str) -> str:
    return "several" if SEVERAL_CARDS in text else "one"


def tried(checkout: Checkout, script: str, python: str, timeout: float) -> Outcome:
    """One script in a process of its own."""
    about = Outcome(checkout.path.name, script, cards((checkout.path / script).read_text(errors="replace")), "failed")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    begin = _children()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [python, "-m", "npuscope", "run", script, "--json"],
            cwd=checkout.path,
            env=environment,
            stdout=out,
            stderr=err,
            preexec_fn=lambda: _limited(timeout),
        )
        code = process.wait()
        seconds = _children() - begin
        if code == -signal.SIGXCPU:
            return replace(about, result="time", reason=f"not done after {timeout:.0f} CPU seconds", seconds=seconds)
        out.seek(0)
        err.seek(0)
        return _judged(about, out.read(), err.read(), code, seconds, checkout.path)


def _children() -> float:
    """CPU seconds of the processes that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _limited(seconds: float) -> None:
    size = GIGABYTES << 30
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))


def _judged(about: Outcome, out: str, err: str, code: int, seconds: float, path: Path) -> Outcome:
    about = replace(about, seconds=round(seconds, 1))
    try:
        report = json.loads(out[out.index("{") :])
    except ValueError:
        return replace(about, reason=_sentence(err or f"exit code {code}", path))
    about = replace(about, tasks=report["tasks"], findings=len(report["notices"]))
    if report["passed"] is False:
        why = next((f for f in report["failures"] if f), None) or err or "its own exit code says so"
        return replace(about, reason=_sentence(why, path))
    return replace(about, result="ran" if report["passed"] is None else "passed")


def _sentence(text: str, path: Path) -> str:
    """The last line of an error, without what only this machine has."""
    if "MemoryError" in text or "can't allocate memory" in text:
        return f"needs more than {GIGABYTES} GB of memory"
    lines = [line for line in text.strip().splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith(("npuscope:", "Output(s)"))), lines[-1] if lines else "")
    said = said.removeprefix("npuscope:").replace(f"{path}/", "").replace("Output(s) does", "output does").strip()
    said = re.sub(r"/(?:tmp|root|home)/(?:[^\s/,:]+/)*", "", said)  # of this machine
    return re.sub(r"\s+", " ", said).replace("|", "\\|")[:300]


# --- the page

KINDS = {  # why a script does not run, by words of its error
    "asks for the compiler's IR or the device": (
        "belongs to PyPTO's compiler", "No module named 'pypto", "as_python", "get_function", "func_type",
        "has no attribute 'prepare'", "orchestration_names", "simpler", "not subscriptable", "compile_for_test",
        "kernel_config", ".pto", "CollectError", "cache entry", "dfx_outputs", "next_levels", "source missing", "'_w'",
        "test_first_call_populates_cache", "test_cache_hit", "test_l3_host_tensor", "test_external_kernel",
    ),
    "it calls no program": ("ran no tile program", "has no function passed"),
    "its own: a file or shape that it lacks": ("No module named 'deepseek", "The size of tensor a", "'Qwen3"),
    "a name that npuscope lacks": ("is not supported by npuscope",),
    "its numbers": ("does not match golden", "tests failed", "AssertionError", "Error: Mismatch"),
    "time or memory": ("not done after", "exit code -24", "GB of memory", "allocate memory"),
}  # fmt: skip


def kind_of(outcome: Outcome) -> str:
    """Why a script does not run."""
    if outcome.result in ("passed", "ran"):
        return ""
    named = (kind for kind, words in KINDS.items() if any(word in outcome.reason for word in words))
    return next(named, "other")


HEAD = """# Which public PyPTO scripts run

Written by `benchmarks/compatibility.py`: every script below was run as it is by `npuscope run FILE`, without arguments,
in its own checkout.

- *passed*: its outputs agreed with its own golden reference. *ran*: it ran to its end, past its own assertions, without
  the harness that compares.
- Seconds are CPU seconds with the script's own inputs and golden reference in torch, often most of it.
- *several* cards: the ranks run side by side in one process.
- Files of tests are PyPTO's own, of its device, under pytest with its harness served.
- What asks for the compiler's IR, its passes or the device's runtime cannot run here.
- Rows that passed once are kept (`--keep`) and not tried again with every version.
- Findings are what npuscope noticed without stopping: reads of memory never written, loads past a run-time dimension.

To repeat it:

```
{command}
```
"""


def page(
    outcomes: Sequence[Outcome], checkouts: Sequence[Checkout], command: str, months: Mapping[str, Sequence[Outcome]]
) -> str:
    parts = [HEAD.format(command=command)]
    for checkout in checkouts:
        mine = [o for o in outcomes if o.checkout == checkout.name]
        parts.append(f"## {checkout.name} at {checkout.commit[:12]}\n")
        parts.append(_counts(mine))
        parts.append(_why(mine))
        left = set(checkout.scripts()) - {o.script for o in mine}
        if left:
            parts.append(f"\n{len(left)} further files there were not tried.")
        for folder in sorted({str(Path(o.script).parent) for o in mine}):
            rows = sorted((o for o in mine if str(Path(o.script).parent) == folder), key=lambda o: o.script)
            good = sum(o.result in ("passed", "ran") for o in rows)
            parts.append(f"\n### {folder}: {good} of {len(rows)}\n")
            parts.append("| script | cards | result | tasks | seconds | findings | what it lacks |")
            parts.append("|---|---|---|---:|---:|---:|---|")
            parts += [_row(o) for o in rows]
        parts.append("")
    if months:
        parts.append(_by_month(months))
    return "\n".join(parts)


def _why(outcomes: Sequence[Outcome]) -> str:
    """How many of those that do not run have which reason."""
    found = Counter(kind for kind in map(kind_of, outcomes) if kind)
    if not found:
        return ""
    lines = ["", "| why not | scripts |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {kind} | {count} |" for kind, count in found.most_common())])


def _by_month(months: Mapping[str, Sequence[Outcome]]) -> str:
    lines = [
        "## By month\n",
        "The folder `examples` as it was at the end of each month, with the npuscope of today.\n",
        "| checkout and month | scripts | passed | ran | failed | why not |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for name, outcomes in months.items():
        numbers = [sum(o.result == r for o in outcomes) for r in ("passed", "ran")]
        failed = len(outcomes) - sum(numbers)
        why = Counter(kind for kind in map(kind_of, outcomes) if kind)
        said = ", ".join(f"{kind} ({count})" for kind, count in why.most_common())
        lines.append(f"| {name} | {len(outcomes)} | {numbers[0]} | {numbers[1]} | {failed} | {said} |")
    return "\n".join([*lines, ""])


@contextmanager
def at_month(checkout: Checkout, month: str) -> Iterator[Checkout | None]:
    """The checkout's examples as they were at the end of a month; None where there was nothing."""
    git = ["git", "-C", str(checkout.path)]
    year, number = map(int, month.split("-"))
    until = f"{year + number // 12}-{number % 12 + 1:02}-01"
    said = subprocess.run([*git, "rev-list", "-1", f"--before={until}", "HEAD"], capture_output=True, text=True)
    commit = said.stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / checkout.name
        place.mkdir()
        if commit:
            packed = subprocess.run([*git, "archive", commit], capture_output=True).stdout
            subprocess.run(["tar", "-x", "-C", str(place)], input=packed)
        yield Checkout(place, ("examples",)) if (place / "examples").is_dir() else None


def _counts(outcomes: Sequence[Outcome]) -> str:
    lines = ["| cards | scripts | passed | ran | failed | out of time |", "|---|---:|---:|---:|---:|---:|"]
    for kind in ("one", "several"):
        mine = [o for o in outcomes if o.cards == kind]
        numbers = [sum(o.result == r for o in mine) for r in ("passed", "ran", "failed", "time")]
        if mine:
            lines.append(f"| {kind} | {len(mine)} | " + " | ".join(str(n) for n in numbers) + " |")
    return "\n".join(lines)


def _row(o: Outcome) -> str:
    result = {"time": "out of time"}.get(o.result, o.result)
    tasks = f"{o.tasks:,}" if o.result in ("passed", "ran") else ""
    name = Path(o.script).name
    return f"| {name} | {o.cards} | {result} | {tasks} | {o.seconds:.0f} | {o.findings or ''} | {o.reason} |"


# --- running them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", help="CHECKOUT:FOLDER,FOLDER")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--timeout", type=float, default=300, help="CPU seconds for one script")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", choices=["failed", "time", "all"])
    parser.add_argument("--months", metavar="YYYY-MM", help="also every month since, up to the checkout's own")
    args = parser.parse_args()
    checkouts = [Checkout.named(text) for text in args.checkouts]
    kept = _kept(args.keep)
    for checkout in checkouts:
        for script in checkout.scripts():
            before = kept.get((checkout.path.name, script))
            if before is not None and not _wanted(before, args.only, args.again):
                continue
            if before is None and args.only not in script:
                continue
            outcome = tried(checkout, script, args.python, args.timeout)
            print(f"{outcome.result:8}{outcome.seconds:7.1f} s  {script}  {outcome.reason}", flush=True)
            kept[checkout.path.name, script] = outcome
            _keep(args.keep, kept)
    months = _months(args, checkouts, kept)
    command = "python benchmarks/compatibility.py " + " ".join(f"{c.name}:{','.join(c.folders)}" for c in checkouts)
    command += f" --months {args.months}" if args.months else ""
    write_page(PAGE, page(list(kept.values()), checkouts, command + " --python PYTHON_WITH_TORCH", months))


def _months(
    args: argparse.Namespace, checkouts: Sequence[Checkout], kept: dict[tuple[str, str], Outcome]
) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for checkout in checkouts if args.months else ():
        said = subprocess.run(
            ["git", "-C", str(checkout.path), "log", "-1", "--format=%cs"], capture_output=True, text=True
        ).stdout[:7]
        month = args.months
        while month < said:
            name = f"{checkout.name}, {month}"
            with at_month(checkout, month) as then:
                for script in then.scripts() if then else ():
                    outcome = kept.get((name, script))
                    if outcome is None and then is not None:
                        outcome = replace(tried(then, script, args.python, args.timeout), checkout=name)
                        print(f"{outcome.result:8}{outcome.seconds:7.1f} s  {name} {script}", flush=True)
                        kept[name, script] = outcome
                        _keep(args.keep, kept)
                    if outcome is not None:
                        found.setdefault(name, []).append(outcome)
            year, number = map(int, month.split("-"))
            month = f"{year + number // 12}-{number % 12 + 1:02}"
    return found


def _keep(file: Path | None, kept: dict[tuple[str, str], Outcome]) -> None:
    if file:
        file.write_text(json.dumps([asdict(o) for o in kept.values()], indent=1))


def _kept(file: Path | None) -> dict[tuple[str, str], Outcome]:
    if file is None or not file.exists():
        return {}
    return {(o["checkout"], o["script"]): Outcome(**o) for o in json.loads(file.read_text())}


def _wanted(before: Outcome, only: str, again: str | None) -> bool:
    if again is None:
        return bool(only) and only in before.script
    results: Iterable[str] = {"failed": ("failed",), "time": ("time",), "all": ("passed", "ran", "failed", "time")}[
        again
    ]
    return before.result in results and only in before.script


if __name__ == "__main__":
    main()
