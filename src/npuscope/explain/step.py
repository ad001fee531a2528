"""Where the time of a call goes, from the host's bind to the last instruction and back, adding up with a named rest.

Spans of one level are subtracted from the span around them and what is left is a row, so every level sums to the one
above. The device has another clock than the host: only lengths are compared. Its phases overlap over threads, so they
are placed by their starts and cut where the next one begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean

import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, SHARE, TEXT, TIME, duration, many, percent
from npuscope.trace.readers.host_log import CHIP, DEVICE_WALL, HostCall, HostLog

WORDS = {
    "bind": "bind arguments and runtime image",
    "stage_inputs": "copy inputs",
    "prepare_execution": "prepare the launch",
    "runner_run": "launch until drained",
    "validate": "copy back and check",
    "claim_release": "release the slot",
}
PARTS = Columns(
    "step.parts",
    "A part of a call; parts of one level below another add up to it.",
    (
        Column("part", TEXT, "what it is"),
        Column("level", COUNT, "how deep it lies", wide=True),
        Column("slowest_ns", TIME, "of the slowest rank", title="slowest rank"),
        Column("share", SHARE, "of that rank's whole call"),
        Column("mean_ns", TIME, "over ranks", title="mean"),
        Column("least_ns", TIME, "over ranks", title="least"),
        Column("most_ns", TIME, "over ranks", title="most"),
    ),
)
RUNS = Columns(
    "step.runs",
    "A run of the program over its ranks, as far as the logs have it whole.",
    (
        Column("run", COUNT, "its number"),
        Column("ranks", COUNT, "calls of it in the logs"),
        Column("wall_ns", TIME, "of the slowest rank", title="wall"),
        Column("skew_ns", TIME, "between the first and the last launch", title="launch skew"),
        Column("last", TEXT, "rank or process that was launched last"),
    ),
)


@dataclass(frozen=True)
class StepPart:
    """A part of a call."""

    name: str
    level: int
    dur_ns: int


PeerWait = tuple[int, int]  # in collectives of a run: waiting for ranks that came later, and what the last one took


def parts_of(call: HostCall, peers: PeerWait | None = None) -> list[StepPart]:
    """The waterfall of a call, each level summing to the one above; a call that the log cuts off has none."""
    whole = call.whole
    if whole is None:
        return []
    found = [StepPart("call", 0, whole.dur_ns)]
    rest = whole.dur_ns
    for span in call.children(CHIP):
        name = span.name.rpartition(".")[2]
        found.append(StepPart(WORDS.get(name, name), 1, span.dur_ns))
        rest -= span.dur_ns
        if name == "runner_run":
            found += _device_parts(call, span.dur_ns, peers)
        else:
            inside = [(one.name.rpartition(".")[2], one.dur_ns) for one in call.children(span.name)]
            found += _with_rest(inside, span.dur_ns, 2)
    what = "between these" if call.is_complete else "bind, which the log lacks, and between these"
    return [*found, StepPart(what, 1, rest)]


def _with_rest(parts: Sequence[tuple[str, int]], whole: int, level: int) -> list[StepPart]:
    if not parts:
        return []
    rest = whole - sum(dur for _, dur in parts)
    return [*(StepPart(name, level, dur) for name, dur in parts), StepPart("between these", level, rest)]


def _device_parts(call: HostCall, around: int, peers: PeerWait | None) -> list[StepPart]:
    wall = call.by_name.get(DEVICE_WALL)
    if wall is None:
        return []
    found = [StepPart("device", 2, wall.dur_ns)]
    phases = {span.name.rpartition(".")[2]: span for span in call.children(DEVICE_WALL)}
    build = phases.get("graph_build")
    work = [phases[name] for name in ("orch", "sched") if name in phases]
    if build is not None and work:
        began, ended = min(one.start_ns for one in work), max(one.end_ns for one in work)
        after = phases.get("post_orch")
        rows = [
            ("threads start", build.start_ns),
            ("runtime set up", began - build.start_ns),
            ("orchestration and scheduling", ended - began),
            ("runtime torn down", (build.end_ns if after is None else after.start_ns) - ended),
            ("after orchestration", 0 if after is None else after.dur_ns),
        ]
        for part in _with_rest(rows, wall.dur_ns, 3):
            found.append(part)
            if part.name == "orchestration and scheduling" and peers is not None:
                met = [("waiting for later ranks", peers[0]), ("collective itself", peers[1])]
                found += [
                    StepPart("everything else" if one.name == "between these" else one.name, 4, one.dur_ns)
                    for one in _with_rest(met, part.dur_ns, 4)
                ]
    return [*found, StepPart("around the device: launch, drain, capturing", 2, around - wall.dur_ns)]


@dataclass(frozen=True)
class RankStep:
    """One rank's call of a run."""

    name: str  # rank 0, or process 4711
    run: int
    launched_ns: int | None
    parts: tuple[StepPart, ...]

    @property
    def wall_ns(self) -> int:
        return self.parts[0].dur_ns


@dataclass(frozen=True, repr=False)
class StepWaterfall(Tabular):
    """The runs that some logs have whole, and one of them in parts."""

    calls: tuple[RankStep, ...]
    chosen: int  # a run
    cut_off: int  # calls that the logs have no end of
    drops: int  # times the log says that it lost records

    in_json = ("chosen", "cut_off", "drops")

    @cached_property
    def ranks(self) -> list[RankStep]:
        """The calls of the chosen run, the slowest first."""
        return sorted((one for one in self.calls if one.run == self.chosen), key=lambda one: -one.wall_ns)

    @property
    def parts(self) -> pl.DataFrame:
        slowest = self.ranks[0]
        rows = []
        for number, part in enumerate(slowest.parts):
            others = [one.parts[number].dur_ns for one in self.ranks if _same(one, slowest)]
            rows.append(
                {
                    "part": "  " * part.level + part.name, "level": part.level, "slowest_ns": part.dur_ns,
                    "share": part.dur_ns / slowest.wall_ns if slowest.wall_ns else 0.0,
                    "mean_ns": round(mean(others)), "least_ns": min(others), "most_ns": max(others),
                }
            )  # fmt: skip
        return pl.DataFrame(rows)

    @property
    def runs(self) -> pl.DataFrame:
        rows = []
        for run in sorted({one.run for one in self.calls}):
            calls = [one for one in self.calls if one.run == run]
            launched = sorted((one.launched_ns, one.name) for one in calls if one.launched_ns is not None)
            skew = launched[-1][0] - launched[0][0] if len(launched) > 1 else None
            rows.append(
                {
                    "run": run, "ranks": len(calls), "wall_ns": max(one.wall_ns for one in calls), "skew_ns": skew,
                    "last": launched[-1][1] if skew else None,
                }
            )  # fmt: skip
        return pl.DataFrame(rows, schema_overrides={"skew_ns": pl.Int64, "last": pl.String})

    def tables(self) -> dict[str, Table]:
        return {"parts": Table(PARTS, self.parts), "runs": Table(RUNS, self.runs)}

    def title(self) -> str:
        """The first sentence: how long, and what takes most of it."""
        slowest = self.ranks[0]
        leaves = [part for part, after in zip(slowest.parts, [*slowest.parts[1:], None], strict=True)
                  if after is None or after.level <= part.level]  # fmt: skip
        most = max(leaves, key=lambda part: part.dur_ns)
        run = self.runs.filter(pl.col("run") == self.chosen).row(0, named=True)
        of = f" over {many(run['ranks'], 'rank')}" if run["ranks"] > 1 else ""
        skew = f" {run['last']} was launched {duration(run['skew_ns'])} after the first." if run["skew_ns"] else ""
        share = percent(most.dur_ns / slowest.wall_ns if slowest.wall_ns else 0.0)
        return (
            f"Run {self.chosen}{of} takes {duration(slowest.wall_ns)} on {slowest.name}; "
            f"{share} of it is {most.name}.{skew}"
        )


def _same(one: RankStep, other: RankStep) -> bool:
    return [part.name for part in one.parts] == [part.name for part in other.parts]


def explain_steps(
    log: HostLog,
    run: int | None = None,
    ranks: Mapping[int, int] | None = None,
    peers: Mapping[tuple[int, int], PeerWait] | None = None,
) -> StepWaterfall:
    """The calls of a log by run. `ranks`: pid -> rank; `peers`: what collectives took, by rank and run."""
    calls = []
    for call in log.calls:
        rank = (ranks or {}).get(call.pid)
        number = call.attribute("run_id") or call.number  # 0 is no number: older calls count themselves
        launch = call.by_name.get(f"{CHIP}.runner_run")
        parts = parts_of(call, (peers or {}).get((-1 if rank is None else rank, number)))
        if parts:
            name = f"process {call.pid}" if rank is None else f"rank {rank}"
            calls.append(RankStep(name, number, None if launch is None else launch.start_ns, tuple(parts)))
    if not calls:
        raise NpuscopeError(
            "the log has no call from its beginning to its end", remedy="Let it run until `chip.run` is written."
        )
    known = sorted({one.run for one in calls})
    if run is not None and run not in known:
        raise NpuscopeError(f"no run {run}", remedy=f"The log has {', '.join(map(str, known[:20]))}.")
    cut = sum(call.whole is None for call in log.calls)
    drops = int(log.ledger.notes.get("host_log_drops", 0))
    return StepWaterfall(tuple(calls), known[-1] if run is None else run, cut, drops)
