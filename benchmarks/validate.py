"""Predicted against measured: docs/understand/trust.md, the page that says how far to trust a simulated time.

    python benchmarks/validate.py --repo PYPTO_LIB.git --python PYTHON_WITH_TORCH    predicts all anew, writes the page
    python benchmarks/validate.py --page                                             the page of what is kept
    python benchmarks/validate.py --only c185                                        some public rows, each in a line

Published changes and layers are run as benchmarks/changes.py runs them, and kept in its --cache: what it ran with this
version of npuscope is not run again. Predictions go to validation/predicted/; the measured tables are read in --data.
--changes takes the published changes from what changes.py --json wrote, with either of the first two.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from published_changes.rows import BadRows
from published_changes.runs import Bench
from validation import measured, predictions, refresh
from validation.evidence import DEVICE, evidence
from validation.page import write

from npuscope.chip.devices import load


def main() -> None:
    options = _options()
    if options.only is not None:
        public(options.only)
        return
    try:
        if options.repo:
            bench = Bench(options.repo.resolve(), options.cache.resolve(), options.python)
            if not options.changes:
                refresh.changes(bench, options.data, options.jobs)
            refresh.layers(bench)
            public("")
        if options.changes:
            refresh.keep_changes(json.loads(options.changes.read_text()))
        write(evidence(options.data))
    except (BadRows, OSError) as error:
        print(f"validate: {error}", file=sys.stderr)
        sys.exit(2)


def public(only: str) -> None:
    """Prints rows as they are predicted; all of them are kept."""
    bench, results = predictions.Bench(load(DEVICE)), []
    begun = perf_counter()
    for one in refresh.public_rows(bench, only):
        results.append(one)
        print(
            f"{one.row.key:24} measured {one.row.measured:9.4g} {one.row.unit:8} predicted {one.predicted:9.4g} "
            f"ratio {one.pair.ratio:5.2f} {'fitted' if one.row.decides else '':7} [{perf_counter() - begun:.0f} s]",
            flush=True,
        )
    if not only:
        refresh.keep_public(results, bench)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--repo", type=Path, help="the git repository of the published changes: predict all anew")
    what.add_argument("--page", action="store_true", help="only write the page, of the predictions that are kept")
    what.add_argument("--only", metavar="KEY", help="only print the public rows whose key begins so")
    parser.add_argument(
        "--changes", type=Path, metavar="SCORES.json", help="published changes as changes.py --json told"
    )
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and npuscope's dependencies")
    parser.add_argument("--data", type=Path, default=measured.FOLDER, help="the measured tables; %(default)s")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "npuscope-changes"
    parser.add_argument("--cache", type=Path, default=cache, help="of benchmarks/changes.py; %(default)s")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    return parser.parse_args()


if __name__ == "__main__":
    main()
