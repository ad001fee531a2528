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
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from judging.models import MODELS
from judging.mutants import KINDS, Mutant, mutants

from npuscope.answer.answer import Answer
from npuscope.answer.judge import WARM, How, judge_all
from npuscope.answer.numbers import numbers_of
from npuscope.answer.prediction import answer_of
from npuscope.answer.request import Request
from npuscope.base.jobs import GIB, Limits
from npuscope.base.pool import Pool, close_pools

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = [*sorted((ROOT / "models" / "basics").glob("*.py")), ROOT / "models" / "qwen3_14b" / "decode_layer.py"]
LARGE = ("decode_layer",)  # their goldens compute for long


def answers(turns: int) -> None:
    print(f"{'program':<16} {'examined':>10} {'with golden':>12}   CPU-s of npuscope, least of {turns}")
    with Pool(1, WARM) as pool:
        for file in PROGRAMS:
            request = Request(str(file), name=file.name)
            least = []
            for work in (answer_of, numbers_of)[: 1 if file.stem in LARGE else 2]:
                handles = []
                for _ in range(turns):
                    handles.append(pool.ask(work, request, Limits()))
                    handles[-1].result()
                least.append(min(handle.used.cpu_seconds for handle in handles))
            print(f"{file.stem:<16} {least[0]:>10.3f} {f'{sum(least):.3f}' if len(least) > 1 else '–':>12}")


def batch(many: int, seconds: float, memory: float, jobs: int | None, only: str) -> int:
    made = [one for one in mutants(many) if only in one.name]
    with tempfile.TemporaryDirectory() as place:
        variants = [one.written(Path(place)) for one in made]
        how = How(limits=Limits(seconds, round(memory * GIB)), jobs=jobs)
        began = time.monotonic()
        wanted = {one.name: one for one in made}

        def tell(answer: Answer) -> None:
            if not is_named(wanted[answer.candidate], answer):
                ids = sorted({reason.id for reason in (*answer.errors, *answer.races)})
                print(f"  {answer.candidate}: {answer.verdict} {ids} {answer.message[:200]}", flush=True)

        with watched() as held:
            found = judge_all(variants, how=how, tell=tell)
        took = time.monotonic() - began
    close_pools()
    total, named, passed, lost = (Counter[str]() for _ in range(4))
    for one, answer in zip(made, found, strict=True):
        for key in (one.kind, one.model):
            total[key] += 1
            named[key] += is_named(one, answer)
            passed[key] += answer.is_good and "good" not in one.verdicts
            lost[key] += not is_named(one, answer)
    for keys in (KINDS, [model.name for model in MODELS]):
        print(f"\n{'':<16} {'programs':>9} {'named':>7} {'wrong pass':>11} {'lost':>6}")
        for key in keys:
            print(f"{key:<16} {total[key]:>9} {named[key]:>7} {passed[key]:>11} {lost[key]:>6}")
    cpu = sum(answer.cpu_seconds or 0 for answer in found) / max(len(found), 1)
    print(f"{len(found)} answers in {took:.0f} s, {cpu:.3f} CPU-s each")
    print(f"all processes together held at most {max(held) / GIB:.2f} GiB, {len(held)} times looked")
    return sum(lost[kind] + passed[kind] for kind in KINDS)


def is_named(mutant: Mutant, answer: Answer) -> bool:
    ids = {reason.id for reason in (*answer.errors, *answer.races)}
    return answer.verdict in mutant.verdicts and (not mutant.ids or bool(ids & {*mutant.ids}))


@contextmanager
def watched(every: float = 0.2) -> Iterator[list[int]]:
    """What this process and all that it started hold together, in bytes, looked at again and again.

    Proportional sizes: a page that several share counts once.
    """
    held, end = [0], Event()

    def look() -> None:
        while not end.wait(every):
            held.append(sum(map(_held, _with_children(os.getpid()))))

    looking = Thread(target=look)
    looking.start()
    try:
        yield held
    finally:
        end.set()
        looking.join()


def _with_children(process: int) -> Iterator[int]:
    yield process
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _with_children(int(child))


def _held(process: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--memory", type=float, default=1.0)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--only", default="", help="mutants with this in their name")
    given = parser.parse_args()
    if given.turns:
        answers(given.turns)
    if given.many:
        raise SystemExit(1 if batch(given.many, given.seconds, given.memory, given.jobs, given.only) else 0)


if __name__ == "__main__":
    main()
