"""Published changes of public programs: what the simulator says of them before they are made.

    python benchmarks/changes.py ROWS.csv… --repo PYPTO_LIB.git --python PYTHON_WITH_TORCH
    python benchmarks/changes.py ROWS.csv --repo PYPTO_LIB.git --compare RESULTS.json    two versions side by side
    python benchmarks/changes.py ROWS.csv --repo PYPTO_LIB.git --only pl509 --rows       some rows, each in a line
    python benchmarks/changes.py ROWS.csv --repo PYPTO_LIB.git --learn                   error bars of what is at hand

A row names a program at two commits, and a quantity that was measured on both (published_changes/rows.py). Both sides
are simulated as `npuscope simulate FILE -- ARGUMENTS` would, from the file's folder in a whole tree of the commit.
Trees, recordings and results are kept in --cache: a result under the hash of npuscope's sources and device files, so
that what is interrupted goes on where it was and nothing old is taken for new; a recording under the hash of what
records it, so that a change of the simulator alone runs no script. The score's rule is in published_changes/score.py.
Of rows that are set aside only the scores tell, unless --aside asks for the rows themselves.
With --learn the misses become src/npuscope/time/misses.csv, from which npuscope's intervals are learnt.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from published_changes.learn import coverage_lines, learn, left_out_predictions
from published_changes.rows import BadRows, read_rows
from published_changes.runs import ROOT, Bench, predictions_of, read_results, results_dict, run_rows
from published_changes.score import Prediction, row_lines, score_lines, scores, side_by_side, to_look_at, worst

from npuscope.base.errors import NpuscopeError
from npuscope.base.files import own, user_caches


def main() -> None:
    args = _arguments()
    try:
        rows = [row for file in args.tables for row in read_rows(file)]
        rows = [row for row in rows if not args.only or any(part in row.id for part in args.only)]
        bench = Bench(
            args.repo.resolve(),
            args.cache.resolve(),
            args.python,
            args.simulator.resolve(),
            args.seconds,
            args.gigabytes,
            args.again,
        )
        outcomes = run_rows(bench, rows, args.jobs)
    except (BadRows, OSError) as error:
        sys.exit(f"changes: {error}")
    predictions = predictions_of(rows, outcomes)
    kept = bench.cache / "scores" / f"{bench.versions[0]}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    result = results_dict(bench.versions[0], predictions)
    if not args.only:
        kept.write_text(json.dumps(result, indent=1))
    learnt = None
    if args.learn:
        try:
            unseen = left_out_predictions(predictions, args.left_out) if args.left_out else predictions
            how = (
                ", rows by constants fitted without their commit, those set aside as predicted" if args.left_out else ""
            )
            names = " and ".join(file.name for file in args.tables)
            head = f"learnt from {names} with the simulator {bench.versions[0]}{how}"
            learnt = learn(unseen, outcomes, head)
        except (NpuscopeError, BadRows) as error:
            sys.exit(f"changes: {error}")
    if args.json:
        print(json.dumps(result, indent=1))
        return
    other = read_results(args.compare, rows) if args.compare else None
    print(f"simulator {bench.versions[0]}" + (f" against {args.compare}" if other else "") + "\n")
    found = scores(predictions)
    if other is None:
        print("\n".join(score_lines(found)))
    else:
        print("\n".join(side_by_side(found, scores([other.get(row.id, Prediction(row)) for row in rows]))))
    if learnt is not None:
        print("\n" + "\n".join(coverage_lines(learnt)))
    seen = predictions if args.aside else to_look_at(predictions)
    shown = seen if args.rows else worst(seen, args.worst)
    hidden = len(predictions) - len(seen)
    without = f", without {hidden} that are set aside (--aside)" if hidden else ""
    print(f"\n{'All rows' if args.rows else 'The worst rows'}{without}, times in the table's own unit and in µs\n")
    print("\n".join(row_lines(shown, other)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, metavar="ROWS.csv", nargs="+")
    parser.add_argument("--repo", type=Path, required=True, help="the git repository with the commits of the rows")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and npuscope's dependencies")
    parser.add_argument("--simulator", type=Path, default=ROOT, help="another checkout of npuscope to run")
    cache = user_caches() / "npuscope-changes"
    parser.add_argument("--cache", type=Path, default=cache, help="trees, recordings, results; %(default)s")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--seconds", type=int, default=900, help="CPU seconds for one side; %(default)s")
    parser.add_argument("--gigabytes", type=float, default=10, help="of memory for one side; %(default)s")
    parser.add_argument("--only", nargs="+", help="parts of ids")
    parser.add_argument("--again", action="store_true", help="run once more what did not run")
    parser.add_argument("--compare", type=Path, metavar="RESULTS.json", help="what --json wrote with another version")
    parser.add_argument("--rows", action="store_true", help="every row in a line, not only the worst")
    parser.add_argument("--worst", type=int, default=12, help="how many of the worst rows to show; %(default)s")
    parser.add_argument("--aside", action="store_true", help="show rows that are set aside, too, which uses them up")
    parser.add_argument("--learn", action="store_true", help="write the misses that intervals are learnt from")
    parser.add_argument(
        "--left-out",
        type=Path,
        metavar="FILE.json",
        help="learn from what fit.py --crossvalidate wrote, not from the fit",
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not own(args.cache):  # recordings are pickles, which run when they are loaded
        parser.error(f"--cache {args.cache} is not ours alone: name a folder that nobody else can write to")
    return args


if __name__ == "__main__":
    main()
