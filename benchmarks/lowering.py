"""npuscope's lowering against the compiler's own assembly, kernel by kernel, over public `.pto` samples.

    python benchmarks/lowering.py PTOAS/test/samples pypto-lib [--only qwen3_14b] [--rows]

Of every kernel that a program of the tree runs and a sample folder has: instructions per pipe, bytes through GM,
products by size, bytes per memory. Kernels in which run-time data decides what runs are counted apart: there the
assembly does not say how much is done. Neither the samples (tonibohnlein/PTOAS @e32488c9) nor the programs
(hw-native-sys/pypto-lib @fcc141b7) are part of npuscope; the programs need torch to be imported.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from measure import table

SECONDS = 300  # for one program
SLOTS = 8  # of a ring: the samples were compiled before the compiler's default became two (pypto#2378, 17 August 2026)
A3 = (
    ("Qwen3_14BDecodeA3", "qwen3_14b/decode_fwd.py"),
    ("Qwen3_14BPrefillA3", "qwen3_14b/prefill_fwd.py"),
    ("Qwen3DecodeA3", "qwen3_32b/decode.py"),
)
A5 = (
    ("Qwen3DecodeA5", "qwen3_32b/decode.py"),
    ("Qwen3_32BDecode4DA5", "qwen3_32b/decode_4d.py"),
    ("DeepseekV3_2DecodeFrontA5", "deepseek_v3_2/decode_front.py"),
    ("DeepseekV3_2DecodeBackA5", "deepseek_v3_2/decode_back.py"),
    ("DeepseekV3_2PrefillBackA5", "deepseek_v3_2/prefill_back.py"),
)
EACH = (  # every script of the folder by itself
    ("DeepseekV4DecodeA3", "deepseek_v4_flash_mtp", "a2a3", "ascend910b1"),
    ("DeepseekV4FlashDsparkA5", "deepseek_v4_flash_dspark", "a5", "ascend950"),
)


class Case(NamedTuple):
    """A program and the samples that were made of it."""

    samples: Path
    program: Path
    platform: str
    device: str


class Compared(NamedTuple):
    """A kernel's numbers that differ: the compiler's and npuscope's. `decided` by run-time data: not compared."""

    program: str
    kernel: str
    decided: bool
    equal: int
    different: dict[str, tuple[int, int]]


def cases(samples: Path, tree: Path) -> Iterator[Case]:
    for folder, program in A3:
        yield Case(samples / folder, tree / "models" / program, "a2a3", "ascend910b1")
    for folder, program in A5:
        yield Case(samples / folder, tree / "models" / program, "a5", "ascend950")
    for folder, scripts, platform, device in EACH:
        for script in sorted((tree / "models" / scripts).glob("*.py")):
            if "__main__" in script.read_text():
                yield Case(samples / folder, script, platform, device)


def compared(case: Case) -> list[Compared]:
    """In this process, which the program may ruin."""
    from npuscope.answer.prediction import predictions
    from npuscope.answer.request import Request
    from npuscope.lower.build_folder import read_build, tally, with_build
    from npuscope.tile.record.model import short_name

    build = read_build(str(case.samples))
    os.chdir(case.program.parent)
    found: dict[str, Compared] = {}
    request = Request(case.program.name, ("-p", case.platform), device=case.device, ring_slots=SLOTS)
    for one in predictions(request):
        program = with_build(one.program, build)
        for key, body in program.compiled.items():
            kernel, decided = short_name(body.kernel), bool(program.assemblies[key].assumed)
            if kernel in found:
                continue
            compiler, own = tally(body), tally(program.planned[key])
            whats = [what for what in sorted({*compiler, *own}) if not decided or what.startswith("bytes of")]
            different = {what: (compiler[what], own[what]) for what in whats if compiler[what] != own[what]}
            equal = len(whats) - len(different)
            found[kernel] = Compared(case.program.stem, kernel, decided, equal, different)
    return list(found.values())


def alone(case: Case) -> list[Compared] | str:
    """In a process of its own; a sentence where it does not run."""
    words = [sys.executable, __file__, "--case", json.dumps([str(part) for part in case])]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"takes more than {SECONDS} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["?"])[-1][:160]
    return [Compared(*row) for row in json.loads(done.stdout.splitlines()[-1])]


def summary(found: list[Compared]) -> None:
    """How many kernels agree on each kind of number."""
    kinds: dict[str, Counter[bool]] = {}
    for one in found:
        groups = dict.fromkeys(("memory", "bytes through GM", "products", "instructions"), True)
        for what in one.different:
            groups[_kind(what)] = False
        for group, equal in groups.items():
            if not one.decided or group == "memory":
                kinds.setdefault(group, Counter())[equal] += 1
    rows = [(group, f"{n[True]} of {n.total()}", f"{n[True] / n.total():.0%}") for group, n in kinds.items()]
    table("Agreement", ["number", "kernels that agree", "share"], rows)


def _kind(what: str) -> str:
    if what.startswith("bytes of"):
        return "memory"
    return {"bytes": "bytes through GM", "products": "products"}.get(what.split()[0], "instructions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("samples", type=Path, nargs="?")
    parser.add_argument("programs", type=Path, nargs="?")
    parser.add_argument("--only", default="", help="programs whose path has this in it")
    parser.add_argument("--rows", action="store_true", help="every number that differs")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        samples, program, platform, device = json.loads(options.case)
        print(json.dumps(compared(Case(Path(samples), Path(program), platform, device))))
        return
    if options.samples is None or options.programs is None:
        parser.error("name the folder of samples and the tree of programs")
    every: dict[tuple[str, str], Compared] = {}
    for case in cases(options.samples.resolve(), options.programs.resolve()):
        if options.only not in str(case.program):
            continue
        found = alone(case)
        name = f"{case.program.parent.name}/{case.program.name}"
        print(f"{name}: {found if isinstance(found, str) else f'{len(found)} kernels'}", flush=True)
        for one in [] if isinstance(found, str) else found:
            every.setdefault((case.samples.name, one.kernel), one)
    if options.rows:
        rows = [
            (one.program, one.kernel, what, *both) for one in every.values() for what, both in one.different.items()
        ]
        table("What differs", ["program", "kernel", "what", "compiler", "npuscope"], rows)
    if every:
        summary(list(every.values()))


if __name__ == "__main__":
    main()
