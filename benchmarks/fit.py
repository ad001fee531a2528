"""Fits the constants of the model to what was measured on the chip, and says what each mechanism is worth.

    python benchmarks/fit.py --repo PYPTO_LIB.git --python PYTHON_WITH_TORCH           prints the constants
    python benchmarks/fit.py … --write                                                 and writes them to device files
    python benchmarks/fit.py … --crossvalidate FILE.json --ablation FILE.json          for docs/understand/trust.md
    python benchmarks/fit.py … --rounds 0 --set timing.poll_core=1.2e-7                scores other constants

What is recorded once is simulated again in half a CPU-minute for both sides of all rows.

Evidence: the published changes, the mean run times of blocks and the public measurements that calibrate
(fitting/solve.py, validation/rows.toml). What may move, and how far, is in fitting/solve.py; how, in
fitting/solve.py. A crossvalidated prediction of a row comes from constants fitted without its commit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from math import exp
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from fitting.solve import (
    MECHANISMS,
    Point,
    Told,
    bounds,
    look,
    loss_of,
    moved_point,
    of_blocks,
    of_changes,
    of_public,
    step,
)
from fitting.workbench import Workbench
from published_changes.rows import Row, published, set_aside
from published_changes.runs import Bench
from published_changes.score import Prediction, scores
from rich.console import Console
from rich.progress import track
from validation import blocks, measured, public

from npuscope.chip.devices import load, names, value_at

DEVICE = "ascend910b1"
TAKEN = "taken from the 910B"  # as the sources of other files say
FILES = Path(__file__).resolve().parents[1] / "src" / "npuscope" / "chip" / "devices"
SLOW = ("c90", "layer_idle_AIC")  # public rows that decide constants of the scheduler and take long
MUCH = 0.05  # of a logarithm
LEAST = 1e-4  # of the loss that is worth a move
STEPS = (1.25, 1.1)  # of one constant at a time
ERR = Console(stderr=True)


class Fit:
    """Evidence at hand, and what the model says of it at a point."""

    def __init__(self, changes: list[Row], folder: Path, bench: Bench, jobs: int, held: Mapping[str, float]) -> None:
        self.changes, self.held = changes, held
        self.tables = {one.key: measured.kernels(folder, one.table) for one in blocks.PROGRAMS}
        decide = (row for row in public.rows() if row.decides and row.key not in SLOW and row.unit != "%")
        self.public = {row.key: row.measured for row in decide}
        sides = [*(side for row in changes for side in row.sides.values()), *(one.side for one in blocks.PROGRAMS)]
        with ERR.status("programs that were not recorded yet"):
            bench.run_all([side for side in sides if not bench.recording(side).is_file()], jobs, lambda: None)
        kept = {side: bench.recording(side) for side in dict.fromkeys(sides)}
        self.workbench = Workbench({side: file for side, file in kept.items() if file.is_file()}, self.public, jobs)

    def trial(self, point: Mapping[str, float]) -> list[Told]:
        outcome = self.workbench.run({**self.held, **point})
        return [
            *of_changes(self.changes, outcome.runs),
            *of_blocks(self.tables, outcome.runs),
            *of_public(self.public, outcome.public),
        ]

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
        """Every row as a fit without its commit has it: the ratio and, where they are times, both sides.

        What leaving out a commit moves is the step without it less the step with it: the fitted point is no optimum of
        the slopes, so the second is not zero, and it has nothing to do with the commit. Each commit's programs are then
        simulated with its own constants.
        """
        near = look(self.trial, point)
        with_all = step(near, bounds())
        rows: dict[str, dict[str, object]] = {}
        for commit in track(list(dict.fromkeys(row.commit for row in self.changes)), "each commit", console=ERR):
            moved = moved_point(near, step(near, bounds(), without=commit) - with_all)
            inside = {name: min(max(moved[name], least), most) for name, (least, most) in bounds().items()}
            own = [row for row in self.changes if row.commit == commit]
            runs = self.workbench.run(
                {**self.held, **inside}, frozenset(side for row in own for side in row.sides.values())
            ).runs
            for one, value in of_changes(own, runs):
                name, _, which = one.name.partition(" ")
                key = f"predicted_{which}_ns" if which else "predicted_ratio"
                rows.setdefault(name, {"id": name})[key] = exp(value)
        return list(rows.values())

    def ablation(self, point: Point) -> list[dict[str, object]]:
        """The score without each mechanism, and what each brings nearer or takes further away."""
        base = self.trial(point)
        found = [_ablated("", (), self.score(base), {})]
        for mechanism in track(MECHANISMS, "without each mechanism", console=ERR):
            other = dict(self.trial({**point, **mechanism.off}))
            gains = {
                one.name: abs(other[one] - one.measured) - abs(value - one.measured)
                for one, value in base
                if one.kind != "side" and one in other
            }
            found.append(
                _ablated(mechanism.name, {*mechanism.free, *mechanism.off}, self.score(list(other.items())), gains)
            )
        return found

    def score(self, trial: list[Told]) -> dict[str, float | None]:
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


def _ablated(
    name: str, constants: Iterable[str], score: Mapping[str, float | None], gains: Mapping[str, float]
) -> dict[str, object]:
    ordered = sorted(gains, key=lambda one: -gains[one])
    return {
        "mechanism": name or "all mechanisms",
        "constants": sorted(constants),
        "without": score,
        "fixed": [one for one in ordered if gains[one] > MUCH][:6],
        "cost": [one for one in reversed(ordered) if gains[one] < -MUCH][:6],
    }


def write(point: Point) -> None:
    """Puts the constants into the device's file, and into those that take them over or have memory in proportion."""
    _put(DEVICE, point)
    rate, wide = point["timing.hbm_rate"], load(DEVICE).bandwidth
    for name in names():
        other = load(name)
        own = tomllib.loads((FILES / f"{name}.toml").read_text())
        taken = {
            constant: value
            for constant, value in point.items()
            if TAKEN in _source(own, constant) and constant != "timing.hbm_rate"
        }
        if name != DEVICE and "hbm_rate" in own.get("timing", {}):
            taken["timing.hbm_rate"] = float(f"{rate * other.bandwidth / wide:.4g}")
        _put(name, taken)


def _source(own: Mapping[str, Mapping[str, Mapping[str, str]]], constant: str) -> str:
    table, key, *_ = constant.split(".")
    return own.get(table, {}).get(key, {}).get("source", "")


def _put(name: str, values: Mapping[str, float]) -> None:
    file = FILES / f"{name}.toml"
    text = file.read_text()
    for constant, value in values.items():
        _, key, *place = constant.split(".")
        line = rf"(?m)^({key} = {{.*?\b{place[0] if place else 'value'} = )[^,]+,"
        text, found = re.subn(line, rf"\g<1>{value!r},", text)
        if found != 1:
            raise SystemExit(f"{file}: {constant} has {found} lines to write to, nothing was written")
    file.write_text(text)


def main() -> None:
    args = _arguments()
    bench = Bench(args.repo.resolve(), args.cache.resolve(), args.python)
    rows = published(args.measured)  # those that are set aside are not looked at
    changes = [row for row in rows if not set_aside(row.commit) and not row.id.startswith(tuple(args.leave or ("-",)))]
    held = {name: float(value) for name, _, value in (one.partition("=") for one in args.set or ())}
    fit = Fit(changes, args.measured, bench, args.jobs, held)
    device = load(DEVICE)
    point = {name: value_at(device, name) for name in bounds()}
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
    parser.add_argument("--measured", type=Path, default=measured.FOLDER, help="the measured tables")
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
