"""What people wait for, in one run: this version, an older one and HolisticTraceAnalysis, in turns.

    git archive 59a24fe5^ | tar -x -C OLD                      the last commit of 0.1.0
    python benchmarks/versions.py --old OLD --hta PYTHON       about 15 minutes of a core
    python benchmarks/versions.py --rounds 5 --only start      more often, a part

CPU seconds with all that a process starts, and its largest resident set; the least of some rounds. Each version runs
from a copy of its source, with byte code in its own place; "bare" is where Python may not write any
(PYTHONDONTWRITEBYTECODE, a read-only install). HTA reads the trace and makes the four analyses of explain.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from explain import HTA_ALL, READ, T1
from measure import Cost, cost, make, table

ROOT = Path(__file__).resolve().parents[1]
NEW, OLD, PEER = "this version", "older", "HTA"
WARM = """
from npuscope.answer.judge import WARM
from npuscope.answer.prediction import answer_of
from npuscope.answer.request import Request
from npuscope.base.jobs import Limits
from npuscope.base.pool import Pool
with Pool(1, WARM) as pool:
    used = []
    for _ in range(4):
        handle = pool.ask(answer_of, Request({file!r}, name="layer"), Limits())
        handle.result()
        used.append(handle.used.cpu_seconds)
print(min(used))
"""


class Place(NamedTuple):
    """A version's copy: its source, its models, and where its caches and byte code go."""

    root: Path
    bare: bool = False

    def around(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        own = {"PYTHONPATH": str(self.root / "src"), "XDG_CACHE_HOME": str(self.root / "cache"), "NPUSCOPE_ENGINE": ""}
        return {**kept, **own, **({"PYTHONDONTWRITEBYTECODE": "1"} if self.bare else {})}

    @property
    def layer(self) -> str:
        return str(self.root / "models" / "qwen3_14b" / "decode_layer.py")


def copied(source: Path, place: Path) -> Path:
    for name in ("src", "models"):
        shutil.copytree(source / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.nb?"))
    return place


def ours(place: Place, *words: str, **more: str) -> Cost:
    return cost([sys.executable, "-m", "npuscope", *words], 1, {**place.around(), **more})


def code(place: Place, text: str) -> Cost:
    return cost([sys.executable, "-c", text], 1, place.around())


def first_ever(source: Path, scratch: Path, *words: str) -> Cost:
    """Nothing kept, no byte code, no machine code: a place of its own, once."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        place = Place(copied(source, Path(folder)))
        return ours(place, *(place.layer if word == "LAYER" else word for word in words))


def measured(args: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, str, Cost]]:
    """One round: what, who, and the cost."""
    t10 = scratch / "t10.json.gz"
    versions = {NEW: ROOT, **({OLD: args.old} if args.old else {})}
    for who in versions:
        place, bare = Place(scratch / who), Place(scratch / f"{who} bare", bare=True)
        if args.only in "start":
            yield "import npuscope", who, code(place, "import npuscope")
            yield "import npuscope, bare", who, code(bare, "import npuscope")
            yield "--help", who, ours(place, "--help")
            yield "--help, bare", who, ours(bare, "--help")
            yield (
                "first `report` ever, of a small run",
                who,
                first_ever(versions[who], scratch, "report", str(scratch / "run")),
            )
        if args.only in "report":
            for name, path in (("216 k", T1), ("2.16 M", t10)):
                yield f"read {name} events", who, code(place, READ.format(path=str(path)))
                yield f"report of {name} events", who, ours(place, "report", str(path))
            yield "report of 216 k events, bare", who, ours(bare, "report", str(T1))
        if args.only in "simulate":
            yield "simulate the decode layer", who, ours(place, "simulate", place.layer)
            yield "simulate the decode layer, bare", who, ours(bare, "simulate", bare.layer)
    place = Place(scratch / NEW)
    if args.only in "judge":
        yield (
            "judge the decode layer, cold, nothing kept",
            NEW,
            ours(place, "judge", place.layer, NPUSCOPE_NO_CACHE="1"),
        )
        yield "judge the decode layer, cold", NEW, ours(place, "judge", place.layer)
        run = subprocess.run([sys.executable, "-c", WARM.format(file=place.layer)], env=place.around(), check=True,
                             capture_output=True, text=True)  # fmt: skip
        yield "judge the decode layer, warm", NEW, Cost(float(run.stdout), 0, 0)
    if args.hta and args.only in "report":
        for name, path in (("216 k", T1), ("2.16 M", t10)):
            yield f"report of {name} events", PEER, cost([args.hta, "-c", HTA_ALL.format(path=str(path))], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="a folder with an older version's src and models")
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis installed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="start, report, simulate or judge")
    args = parser.parse_args()
    found: dict[tuple[str, str], Cost] = {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for who, source in ((NEW, ROOT), (OLD, args.old)):
            for name in (who, f"{who} bare") if source else ():
                copied(source, scratch / name)
                # byte code, and machine code where it is wanted, are made once, and waited for
                once = ("report", str(T1)) if args.only == "report" else ("simulate", Place(scratch / name).layer)
                ours(Place(scratch / name), *once, NPUSCOPE_ENGINE="compiled")
                if "bare" in name:
                    for cache in list((scratch / name / "src").rglob("*.pyc")):
                        cache.unlink()
        if args.only in "report":
            make("repeat_kineto", T1, scratch / "t10.json.gz", 10)
        ours(Place(scratch / NEW), "demo", "--keep", str(scratch / "demo"))
        shutil.move(scratch / "demo" / "run", scratch / "run")
        for number in range(args.rounds):
            for what, who, used in measured(args, scratch):
                print(
                    f"{number} {what}, {who}: {used.cpu:.2f} CPU s, {used.megabytes:.0f} MB",
                    file=sys.stderr,
                    flush=True,
                )
                before = found.get((what, who), used)
                found[what, who] = Cost(*map(min, zip(before, used, strict=True)))
    rows = []
    for what in dict.fromkeys(what for what, _ in found):
        new = found[what, NEW]
        # a warm answer is given in a process that others share
        cells = [f"{new.cpu:.2f} s" + (f", {new.megabytes:.0f} MB" if new.megabytes else "")]
        for who in (OLD, PEER):
            one = found.get((what, who))
            cells.append(f"{one.cpu:.2f} s, {one.megabytes:.0f} MB: {one.cpu / new.cpu:.2f} ×" if one else "–")
        rows.append([what, *cells])
    table("CPU seconds, peak memory, and CPU as multiples of this version's", ["what", NEW, OLD, PEER], rows)


if __name__ == "__main__":
    main()
