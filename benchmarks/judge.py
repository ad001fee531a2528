"""The judge: what a warm answer costs, and whether it can be fooled or brought down by a thousand broken programs.

    python benchmarks/judge.py                # both
    python benchmarks/judge.py --many 0       # only the cost of answers
    python benchmarks/judge.py --many 200 --seconds 10 --jobs 2

Times are CPU seconds of a job's own process, warm: without the golden, which is the program's own computing, and with
it. Each is the least of several. Mutants (judging/mutants.py) are judged in one batch; a wrong pass is a broken
program called good, a lost answer one that says neither its fault nor anything else that is true.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

from judging.mutants import KINDS, mutants

from npuscope.study.examine import examine, golden_of
from npuscope.study.job_limits import GIB, Limits
from npuscope.study.judge import MODULES, How, close_pools, judge_all
from npuscope.study.pool import Pool
from npuscope.study.variant import Variant

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = [*sorted((ROOT / "models" / "basics").glob("*.py")), ROOT / "models" / "qwen3_14b" / "decode_layer.py"]
LARGE = ("decode_layer",)  # their goldens compute for long


def answers(turns: int) -> None:
    print(f"{'program':<16} {'examined':>10} {'with golden':>12}   CPU-s of npuscope, least of {turns}")
    with Pool(1, MODULES) as pool:
        for file in PROGRAMS:
            variant = Variant(file.name, str(file))
            least = []
            for work in (examine, golden_of)[: 1 if file.stem in LARGE else 2]:
                handles = []
                for _ in range(turns):
                    handles.append(pool.ask(work, variant, Limits()))
                    handles[-1].result()
                least.append(min(handle.used.cpu_seconds for handle in handles))
            print(f"{file.stem:<16} {least[0]:>10.3f} {f'{sum(least):.3f}' if len(least) > 1 else '–':>12}")


def batch(many: int, seconds: float, memory: float, jobs: int | None) -> int:
    made = list(mutants(many))
    with tempfile.TemporaryDirectory() as place:
        variants = []
        for one in made:
            file = Path(place) / f"{one.name}.py"
            file.write_text(one.source)
            variants.append(Variant(one.name, str(file)))
        began = time.monotonic()
        found = judge_all(variants, how=How(limits=Limits(seconds, round(memory * GIB)), cache=False, jobs=jobs))
        took = time.monotonic() - began
    close_pools()  # so that what its processes held is counted
    total, named, passed, lost = (Counter[str]() for _ in range(4))
    for one, answer in zip(made, found, strict=True):
        total[one.kind] += 1
        ids = {reason.id for reason in (*answer.reasons, *answer.races)}
        is_named = answer.verdict in one.verdicts and (not one.ids or bool(ids & {*one.ids}))
        named[one.kind] += is_named
        passed[one.kind] += answer.is_good and "good" not in one.verdicts
        lost[one.kind] += not is_named
        if not is_named:
            print(f"  {one.name}: {answer.verdict} {sorted(ids)} {answer.told[:200]}")
    print(f"\n{'planted':<16} {'programs':>9} {'named':>7} {'wrong pass':>11} {'lost':>6}")
    for kind in KINDS:
        print(f"{kind:<16} {total[kind]:>9} {named[kind]:>7} {passed[kind]:>11} {lost[kind]:>6}")
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 2**20
    cpu = sum(answer.cpu_seconds or 0 for answer in found) / max(len(found), 1)
    print(f"{len(found)} answers in {took:.0f} s, {cpu:.3f} CPU-s each; the largest process held {peak:.2f} GiB")
    return sum(lost.values()) + sum(passed.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--memory", type=float, default=1.0)
    parser.add_argument("--jobs", type=int)
    given = parser.parse_args()
    if given.turns:
        answers(given.turns)
    if given.many:
        raise SystemExit(1 if batch(given.many, given.seconds, given.memory, given.jobs) else 0)


if __name__ == "__main__":
    main()
