"""Runs the sides of rows: a tree per commit, a process per side, and a result that is kept under what it depends on."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from published_changes.rows import BadRows, Measured, NoScope, Row, Side, quantity
from published_changes.score import Prediction, scores

ROOT = Path(__file__).resolve().parents[2]
WORKER = "benchmarks/published_changes/one_run.py"
DEVICES = {"a2a3": "ascend910b1", "a5": "ascend950"}
# of a file that calls an entry in no way that a user could take: a script of ours that does, run from its folder
CALLERS = {("decode_layer_a8w8.py", "decode_fwd"): Path(__file__).with_name("a8w8_decode_fwd.py")}
# what was measured is not what the commit has: pl718 states 16 tasks on both sides, its parent has 32 of half the work
# (a week before, 795715d7 measured these 16 at the same time). Commit -> file, text there, text measured.
MEASURED_AS = {
    "8d6bbf228228700fa97e68b203eddd585f4a9360": (
        "models/deepseek/v4/qkv_proj_rope.py",
        """QPROJ_MM_N_TILE) // 4, name_hint="qproj_matmul"):
        hg = hg_idx * 4
        for h_inner in pl.range(4):
""",
        """QPROJ_MM_N_TILE) // 8, name_hint="qproj_matmul"):
        hg = hg_idx * 8
        for h_inner in pl.range(8):
""",
    )
}
RECORDING = ("errors.py", "ops", "tile")  # the parts of npuscope that a recording depends on


@dataclass(frozen=True)
class Failed:
    """A side that did not run, and why."""

    reason: str


Outcome = Measured | Failed


def version(simulator: Path, parts: Sequence[str] = ("",)) -> str:
    """A hash of the simulator's sources and device files, or of some parts of them."""
    digest = hashlib.sha256()
    for part in parts:
        root = simulator / "src" / "npuscope" / part
        files = [root] if root.is_file() else sorted(p for end in ("py", "toml") for p in root.rglob(f"*.{end}"))
        for file in files:
            digest.update(str(file.relative_to(simulator)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Bench:
    """Where programs come from, where everything is kept, and how a side is run."""

    repo: Path
    cache: Path
    python: str
    simulator: Path = ROOT
    seconds: int = 900  # of CPU, for one side
    gigabytes: float = 10
    again: bool = False  # run once more what did not run

    @cached_property
    def versions(self) -> tuple[str, str]:
        """Of the simulator, and of its part that records."""
        return version(self.simulator), version(self.simulator, RECORDING)

    def run_all(self, sides: Iterable[Side], jobs: int, done: Callable[[], None]) -> dict[Side, Outcome]:
        """Every side once, those that took longest before at the end; `done` is called as each ends."""
        wanted = sorted(set(sides), key=lambda side: (self._took(side), side.commit, side.file, side.arguments))
        assert self.versions  # of the moment at which the runs begin
        for commit in sorted({side.commit for side in wanted}):
            self.tree(commit)
        outcomes: dict[Side, Outcome] = {}
        with ThreadPoolExecutor(jobs) as pool:
            futures = {pool.submit(self.run, side): side for side in wanted}
            for future in as_completed(futures):
                outcomes[futures[future]] = future.result()
                done()
        return outcomes

    def tree(self, commit: str) -> Path:
        """A whole tree of a commit as it was measured, unpacked once."""
        tree = self.cache / "trees" / commit
        if tree.is_dir():
            return tree
        tree.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tree.parent) as part, tempfile.TemporaryFile() as packed:
            said = subprocess.run(
                ["git", "-C", str(self.repo), "archive", commit], stdout=packed, stderr=subprocess.PIPE, text=True
            )
            if said.returncode:
                raise BadRows(f"{self.repo} gives no tree of {commit}: {said.stderr.strip()}")
            packed.seek(0)
            subprocess.run(["tar", "x", "-C", part], stdin=packed, check=True)
            if commit in MEASURED_AS:
                name, there, measured = MEASURED_AS[commit]
                file = Path(part) / name
                text = file.read_text()
                assert text.count(there) == 1, f"{file} is not what {commit} had"
                file.write_text(text.replace(there, measured))
            Path(part).rename(tree)
            Path(part).mkdir()  # for the context manager to remove
        return tree

    def run(self, side: Side) -> Outcome:
        """The outcome that was kept, or a new one."""
        kept = self._kept(side, self.versions[0], "results", "json")
        if kept.is_file():
            told = json.loads(kept.read_text())
            if "error" not in told:
                return Measured.of(told)
            if not self.again:
                return Failed(told["error"])
        told = self._ran(side)
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}.{time.monotonic_ns()}")
        part.write_text(json.dumps({**told, "side": asdict(side)} if "error" in told else told))
        part.replace(kept)
        return Failed(str(told["error"])) if "error" in told else Measured.of(told)

    def recording(self, side: Side) -> Path:
        """Where the recording of a side is kept, once it has run."""
        return self._kept(side, self.versions[1], "recordings", "pickle")

    def _took(self, side: Side) -> float:
        """The CPU seconds that any version needed for it."""
        name = self._kept(side, "", "results", "json").name
        told = [json.loads(file.read_text()) for file in (self.cache / "results").glob(f"*/{name}")]
        return max((float(one.get("seconds", 0)) for one in told), default=0.0)

    def _kept(self, side: Side, version: str, folder: str, ending: str) -> Path:
        key = hashlib.sha256(json.dumps(asdict(side)).encode()).hexdigest()[:16]
        name = Path(side.file).stem
        return self.cache / folder / version / f"{name}-{side.commit[:8]}-{key}.{ending}"

    def _ran(self, side: Side) -> dict[str, object]:
        file = self.tree(side.commit) / side.file
        if not file.is_file():
            return {"error": f"{side.file} is not in the tree of {side.commit[:12]}"}
        recording = self.recording(side)
        recording.parent.mkdir(parents=True, exist_ok=True)
        device = DEVICES.get(side.platform, side.platform)
        command = [
            self.python,
            str(self._worker),
            str(recording),
            device,
            side.entry,
            str(CALLERS.get((file.name, side.entry), file.name)),
            *shlex.split(side.arguments),
        ]
        environment = {**os.environ, "PYTHONPATH": str(self.simulator / "src"), "OMP_NUM_THREADS": "1"}
        with tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                command,
                cwd=file.parent,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                preexec_fn=self._limit,
            )
            out, _ = process.communicate()
            err.seek(0)
            return self._answer(out, err.read(), process.returncode)

    @cached_property
    def _worker(self) -> Path:
        """The one of the version that is run, which knows its own modules."""
        own = self.simulator / WORKER
        return own if own.is_file() else ROOT / WORKER

    def _limit(self) -> None:
        size = int(self.gigabytes * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CPU, (self.seconds, self.seconds + 5))

    def _answer(self, out: str, err: str, code: int) -> dict[str, object]:
        if code == 0:
            told = json.loads(out)
            assert isinstance(told, dict)
            return told
        if code == -signal.SIGXCPU:
            return {"error": f"not done after {self.seconds} CPU seconds"}
        if "MemoryError" in err or "can't allocate memory" in err:
            return {"error": f"needs more than {self.gigabytes:g} GB of memory"}
        last = [line for line in err.strip().splitlines() if line.strip()] or ["and said nothing"]
        return {"error": f"exit code {code}: {last[-1]}"}


def run_rows(bench: Bench, rows: Sequence[Row], jobs: int) -> dict[Side, Outcome]:
    """Both sides of all rows, with a bar on stderr that says how far it is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        sides = [side for row in rows for side in row.sides.values()]
        task = bar.add_task("sides simulated", total=len(set(sides)))
        return bench.run_all(sides, jobs, lambda: bar.advance(task))


def predictions_of(rows: Sequence[Row], outcomes: dict[Side, Outcome]) -> list[Prediction]:
    return [_predicted(row, outcomes[row.sides["before"]], outcomes[row.sides["after"]]) for row in rows]


def _predicted(row: Row, before: Outcome, after: Outcome) -> Prediction:
    for name, outcome in (("before", before), ("after", after)):
        if isinstance(outcome, Failed):
            return Prediction(row, reason=f"{name}: {outcome.reason}")
    assert not isinstance(before, Failed)
    assert not isinstance(after, Failed)
    try:
        times = quantity(row, "before", before), quantity(row, "after", after)
    except NoScope as error:
        return Prediction(row, reason=str(error))
    return Prediction(row, *times, bounds=(before.bound, after.bound))


def results_dict(version: str, predictions: Sequence[Prediction]) -> dict[str, object]:
    return {
        "simulator": version,
        "score": {name: one.as_dict() for name, one in scores(predictions).items()},
        "rows": [
            {
                "id": one.row.id,
                "commit": one.row.commit,
                "quantity": one.row.quantity_name,
                "scopes": one.row.scopes,
                "platform": one.row.platform,
                "measured_before": one.row.before,
                "measured_after": one.row.after,
                "measured_ratio": one.row.ratio,
                "predicted_before_ns": one.before,
                "predicted_after_ns": one.after,
                "predicted_ratio": one.ratio if one.ran else None,
                "bounds": one.bounds,
                "direction_right": one.right,
                "reason": one.reason,
            }
            for one in predictions
        ],
    }


def read_results(file: Path, rows: Sequence[Row]) -> dict[str, Prediction]:
    """Predictions of another version, as `--json` wrote them, of the rows at hand."""
    told = {one["id"]: one for one in json.loads(file.read_text())["rows"]}
    return {
        row.id: Prediction(
            row,
            one["predicted_before_ns"],
            one["predicted_after_ns"],
            one["reason"],
            tuple(one.get("bounds", ("", ""))),  # older files have none
        )
        for row in rows
        if (one := told.get(row.id)) is not None
    }
