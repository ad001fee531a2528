"""Fits the constants of the model to what was measured on the chip, and says what each mechanism is worth.

    python benchmarks/fit.py --repo PYPTO_LIB.git --python PYTHON_WITH_TORCH            prints the constants
    python benchmarks/fit.py … --write                                                  and writes them to the device files
    python benchmarks/fit.py … --crossvalidate FILE.json --ablation FILE.json           for docs/validation.md

Evidence: the published changes, the mean run times of blocks and the public measurements that calibrate
(fitting/evidence.py, validation/rows.toml). What may move, and how far, is in fitting/mechanisms.py; how, in
fitting/solve.py. A crossvalidated prediction of a row comes from constants fitted without its commit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from math import exp, log
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from fitting.evidence import Evidence, Table, of_changes, of_tables, tables
from fitting.mechanisms import MECHANISMS, bounds
from fitting.solve import Point, look, loss_of, moved_point, predicted_after, step
from fitting.workbench import Workbench, value_of
from published_changes.rows import Row, read_rows
from published_changes.runs import Bench
from published_changes.score import Prediction
from published_changes.tables import scores
from rich.console import Console
from rich.progress import track
from validate import rows as public_rows

from npuscope.device.chip import load

DEVICE = "ascend910b1"
FILES = Path(__file__).resolve().parents[1] / "npuscope" / "device"
SLOW = ("c90", "layer_idle_AIC")  # public rows that decide constants of the scheduler and take long
LEAST = 1e-4  # of the loss that is worth a move
STEPS = (1.25, 1.1)  # of one constant at a time
ERR = Console(stderr=True)


class Fit:
    """Evidence at hand, and what the model says of it at a point."""

    def __init__(self, changes: list[Row], means: list[Table], bench: Bench, jobs: int) -> None:
        self.changes, self.tables = changes, means
        self.held: dict[str, float] = {}
        self.public = {
            row.key: row.measured for row in public_rows() if row.decides and row.key not in SLOW and row.unit != "%"
        }
        sides = [*(side for row in changes for side in row.sides.values()), *(table.side for table in means)]
        with ERR.status("programs"):
            missing = [side for side in sides if not bench.recording(side).is_file()]
            bench.run_all(missing, jobs, lambda: None)
        kept = {side: bench.recording(side) for side in dict.fromkeys(sides)}
        self.workbench = Workbench({side: file for side, file in kept.items() if file.is_file()}, self.public, jobs)

    def trial(self, point: Mapping[str, float]) -> list[tuple[Evidence, float]]:
        outcome = self.workbench.run({**self.held, **point})
        found = [*of_changes(self.changes, outcome.runs), *of_tables(self.tables, outcome.runs)]
        for key, value in outcome.public.items():
            predicted = value[1] / value[0] if isinstance(value, tuple) else value
            found.append((Evidence(key, "public", "public", 1.0, log(self.public[key])), log(predicted)))
        return found

    def fitted(self, point: Point, rounds: int) -> Point:
        """Steps along the slopes while the loss falls, then one constant after the other."""
        best = loss_of(self.trial(point))
        ERR.print(f"loss {best:.4f}")
        for _ in range(rounds):
            near = look(self.trial, point)
            moved = step(near, bounds())
            tried = (moved_point(near, moved, share) for share in (1.0, 0.5, 0.25))
            better = next(((one, now) for one in tried if (now := loss_of(self.trial(one))) < best - LEAST), None)
            if better is None:
                break
            point, best = better
            ERR.print(f"loss {best:.4f}")
        for by in STEPS if rounds else ():
            point, best = self._walked(point, best, by)
        return point

    def _walked(self, point: Point, best: float, by: float) -> tuple[Point, float]:
        for name, (least, most) in bounds().items():
            for factor in (by, 1 / by):
                while least <= (value := float(f"{point[name] * factor:.3g}")) <= most:
                    now = loss_of(self.trial({**point, name: value}))
                    if now >= best - LEAST:
                        break
                    point, best = {**point, name: value}, now
                    ERR.print(f"loss {best:.4f}: {name} {value:g}")
        return point, best

    def crossvalidated(self, point: Point) -> list[dict[str, object]]:
        """Every row's ratio as a fit without its commit has it."""
        near = look(self.trial, point)
        found = []
        for group in dict.fromkeys(one.group for one in near.evidence if one.kind == "change"):
            predicted = predicted_after(near, step(near, bounds(), without=group))
            found += [
                {"id": one.name, "predicted_ratio": exp(value)}
                for one, value in zip(near.evidence, predicted, strict=True)
                if one.kind == "change" and one.group == group
            ]
        return found

    def ablation(self, point: Point) -> list[dict[str, object]]:
        base = self.trial(point)
        found = []
        for mechanism in track(MECHANISMS, "without each mechanism", console=ERR):
            other = dict(self.trial({**point, **mechanism.off}))
            nearer = {
                one.name: abs(other[one] - one.measured) - abs(value - one.measured)
                for one, value in base
                if one.kind != "side" and one in other
            }
            found.append(
                {
                    "mechanism": mechanism.name,
                    "constants": sorted({*mechanism.free, *mechanism.off}),
                    "without": self.score(list(other.items())),
                    "fixed": [name for name, gain in sorted(nearer.items(), key=lambda item: -item[1]) if gain > 0.05][
                        :6
                    ],
                    "cost": [name for name, gain in sorted(nearer.items(), key=lambda item: item[1]) if gain < -0.05][
                        :6
                    ],
                }
            )
        return [
            {"mechanism": "all of them", "constants": [], "without": self.score(base), "fixed": [], "cost": []},
            *found,
        ]

    def score(self, trial: list[tuple[Evidence, float]]) -> dict[str, float | None]:
        predicted = {one.name: value for one, value in trial if one.kind == "change"}
        rows = [
            Prediction(row, 1.0, exp(predicted[row.id])) if row.id in predicted else Prediction(row)
            for row in self.changes
        ]
        found = scores(rows)
        return {
            "direction": found["all"].direction,
            "median": found["all"].median_error,
            "median_large": found["faster by over 15 %"].median_error,
            "within_15": found["all"].within_15,
            "rho": found["all"].rho,
            "neutral": found["neutral or slower"].direction,
            "loss": loss_of(trial),
        }


def write(point: Point) -> None:
    """Puts the constants into the device's file."""
    file = FILES / f"{DEVICE}.toml"
    text = file.read_text()
    for name, value in point.items():
        _, key, *place = name.split(".")
        line = rf"(?m)^({key} = {{.*?\b{place[0] if place else 'value'} = )[^,]+,"
        text, found = re.subn(line, rf"\g<1>{value!r},", text)
        if found != 1:
            raise SystemExit(f"{file}: {name} has {found} lines to write to, nothing was written")
    file.write_text(text)


def main() -> None:
    args = _arguments()
    bench = Bench(args.repo.resolve(), args.cache.resolve(), args.python)
    changes = [
        row for row in read_rows(args.measured / "changes.csv") if not row.id.startswith(tuple(args.leave or ("-",)))
    ]
    fit = Fit(changes, tables(args.measured), bench, args.jobs)
    fit.held = dict((name, float(value)) for name, _, value in (one.partition("=") for one in args.set or ()))
    device = load(DEVICE)
    point = {name: value_of(device, name) for name in bounds()}
    if args.start:
        point |= {name: value for name, value in json.loads(args.start.read_text()).items() if name in point}
    point = fit.fitted(point, args.rounds)
    print(json.dumps(point, indent=1))
    print(json.dumps(fit.score(fit.trial(point)), indent=1))
    if args.write:
        write(point)
    if args.crossvalidate:
        args.crossvalidate.write_text(json.dumps({"rows": fit.crossvalidated(point)}, indent=1) + "\n")
    if args.ablation:
        args.ablation.write_text(json.dumps(fit.ablation(point), indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fit the constants of the model to what was measured.")
    parser.add_argument("--repo", type=Path, required=True, help="a git directory of hw-native-sys/pypto-lib")
    parser.add_argument("--measured", type=Path, default=Path("../shared/data/measured"), help="the measured tables")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "npuscope" / "changes")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch, to record programs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=4, help="of the fit; 0 takes the constants as they are")
    parser.add_argument("--start", type=Path, help="constants to begin with, as printed")
    parser.add_argument("--set", action="append", metavar="CONSTANT=VALUE", help="a constant that is held at a value")
    parser.add_argument("--leave", action="append", help="rows that are not looked at, by the beginning of their ids")
    parser.add_argument("--write", action="store_true", help="write the constants to the device file")
    parser.add_argument("--crossvalidate", type=Path, metavar="FILE", help="predictions without each row's commit")
    parser.add_argument("--ablation", type=Path, metavar="FILE", help="the score without each mechanism")
    return parser.parse_args()


if __name__ == "__main__":
    main()
