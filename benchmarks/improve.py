"""Does `improve` find what people found? The programs before published changes, and a stated budget of trials.

    python benchmarks/improve.py ROWS.csv --repo PYPTO_LIB.git --trials 60
    python benchmarks/improve.py ROWS.csv --repo PYPTO_LIB.git --only pl104 --golden

Of each row of wall time (published_changes/rows.py) the program at the parent is given to `improve`. Its best predicted
time stands beside the predicted time of the program after the authors' change: a row counts as found where improve's is
no longer, within 1%. Both are predictions, so this says how often the search reaches what people reached, not how right
predictions are (benchmarks/changes.py). A change that makes a program slower, or that this simulator predicts so, is
left out: nobody looks for those. One row per program. Without --golden numbers are not compared, which the last line
says: a large golden takes longer than the search. Rows that do not run are counted.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from published_changes.rows import Row, Side, read_rows
from published_changes.runs import Bench

from npuscope.answer.answer import Answer
from npuscope.answer.improve import improve
from npuscope.answer.judge import How, judge_all
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.files import user_caches
from npuscope.base.jobs import GIB, Limits

NEAR = 1.01
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Reached:
    """One row; times in nanoseconds, None where `why` says it has none."""

    id: str
    what: str
    before_ns: int | None = None
    authors_ns: int | None = None
    improve_ns: int | None = None
    trials: int = 0
    seconds: float = 0.0
    steps: tuple[str, ...] = ()
    why: str = ""

    @property
    def wanted(self) -> bool:
        """Whether the authors' change is predicted faster."""
        return self.before_ns is not None and self.authors_ns is not None and self.authors_ns < self.before_ns

    @property
    def found(self) -> bool:
        return self.wanted and self.improve_ns is not None and self.improve_ns <= NEAR * (self.authors_ns or 0)


def request_of(bench: Bench, side: Side) -> Request:
    """As `npuscope simulate FILE -- ARGUMENTS` in a tree of the commit."""
    return Request(str((bench.tree(side.commit) / side.file).resolve()), tuple(shlex.split(side.arguments)))


def reached(bench: Bench, row: Row, trials: int, how: How) -> Reached:
    before, after = (request_of(bench, row.sides[name]) for name in ("before", "after"))
    quick = How(golden=False, limits=how.limits, jobs=2)
    old, new = judge_all([before, after], how=quick)
    if old.wall_ns is None or new.wall_ns is None:
        failed: Answer = old if old.wall_ns is None else new
        return Reached(row.id, row.what, old.wall_ns, new.wall_ns, why=failed.message[:200])
    if new.wall_ns >= old.wall_ns:
        return Reached(row.id, row.what, old.wall_ns, new.wall_ns, why="predicted no faster by the authors' change")
    began = time.monotonic()
    try:
        found = improve(before, trials, how, resume=True)
    except NpuscopeError as error:
        return Reached(row.id, row.what, old.wall_ns, new.wall_ns, why=str(error)[:200])
    steps = tuple(f"{step.patch.fix}: {step.patch.title}" for step in found.taken)
    seconds = round(time.monotonic() - began, 1)
    return Reached(row.id, row.what, old.wall_ns, new.wall_ns, found.best.wall_ns, len(found.tried), seconds, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, nargs="+")
    parser.add_argument("--repo", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=user_caches() / "npuscope-changes")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--only", action="append", help="rows whose id has this")
    parser.add_argument("--golden", action="store_true", help="compare numbers as well")
    parser.add_argument("--seconds", type=float, default=120.0, help="of one job")
    parser.add_argument("--most", type=int, help="so many rows")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    args = parser.parse_args()
    bench = Bench(args.repo.resolve(), args.cache.resolve(), sys.executable, ROOT, args.seconds, 4.0, False)
    how = How(golden=args.golden, limits=Limits(args.seconds, 4 * GIB), jobs=2)
    rows = [row for table in args.table for row in read_rows(table) if row.quantity == "wall"]
    rows = [row for row in rows if not args.only or any(part in row.id for part in args.only)]
    rows = list({row.sides["before"]: row for row in reversed(rows)}.values())[::-1][: args.most]
    done: list[Reached] = []
    for row in rows:
        one = reached(bench, row, args.trials, how)
        done.append(one)
        times = [f"{ns / 1000:.3g} µs" if ns else "–" for ns in (one.before_ns, one.authors_ns, one.improve_ns)]
        verdict = "found" if one.found else one.why or "not found"
        print(f"{one.id:10} {times[0]:>9} authors {times[1]:>9} improve {times[2]:>9} {one.trials:4} trials  {verdict}")
        sys.stdout.flush()
        if args.json is not None:
            args.json.write_text(json.dumps([asdict(each) for each in done], indent=1))
    tried = [one for one in done if one.wanted and one.improve_ns is not None]
    found = sum(one.found for one in tried)
    other = len(done) - len(tried)
    numbers = "numbers compared" if args.golden else "numbers not compared"
    print(f"found, or one predicted as good: {found} of {len(tried)} within {args.trials} trials each ({numbers});")
    print(f"{other} more of {len(done)} programs do not run or are predicted no faster by the authors' change")


if __name__ == "__main__":
    main()
