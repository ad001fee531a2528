"""Runs over several ranks with planted clocks, late ranks and host logs: the truth is what was planted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

TICK_NS = 20
US = 1000
RING = 1 << 32


@dataclass
class Planted:
    """Rounds of three tasks a rank: stage, a collective that ends for all at once, consume.

    `kernels` names them where the folder is to have names. `jitter_ns[rank][round]` is how much later a rank is let go
    than the last one notified it.
    """

    arrivals_us: list[int]  # when each rank reaches the collective, on the true clock
    offsets_us: list[int]  # what each rank's clock shows at the true zero
    cost_us: int = 6
    kernels: tuple[str, str, str] | None = None
    rounds: int = 1
    late_us: list[list[int]] = field(default_factory=list)  # by round and rank: later still
    jitter_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    one_sided: bool = False  # nobody waits: each leaves when it has put its own
    missing: tuple[int, ...] = ()

    def arrival_us(self, rank: int, turn: int) -> int:
        later = self.late_us[turn][rank] if self.late_us else 0
        return turn * self.period_us + self.arrivals_us[rank] + later

    @property
    def period_us(self) -> int:
        """From one round to the next: ranks begin it soon after all have left the one before."""
        latest = max((max(late) for late in self.late_us), default=0)
        return max(self.arrivals_us) - min(self.arrivals_us) + latest + self.cost_us + 20

    def end_us(self, turn: int = 0, rank: int | None = None) -> int:
        ranks = range(len(self.arrivals_us)) if rank is None or not self.one_sided else [rank]
        return max(self.arrival_us(one, turn) for one in ranks) + self.cost_us

    def rows(self, rank: int, shift_us: int = 0) -> list[list[int]]:
        def ticks(ns: int) -> int:
            return (10**11 + ns + (shift_us + self.offsets_us[rank]) * US) // TICK_NS

        rows = []
        for turn in range(self.rounds):
            arrival, end = self.arrival_us(rank, turn) * US, self.end_us(turn, rank) * US
            end += self.jitter_ns.get((rank, turn), 0)
            spans = [(0, arrival - 4 * US, arrival - 2 * US), (1, arrival, end), (2, end + US, end + 2 * US)]
            rows += [[24 + n, RING + 3 * turn + n, turn, ticks(a), ticks(b), 5] for n, a, b in spans]
        return rows

    def write(
        self, root: Path, older_us: int | None = None, dispatch: int = 3, run: int = 7, names: str = "rank{}"
    ) -> Path:
        for rank in set(range(len(self.arrivals_us))) - set(self.missing):
            folder = root / names.format(rank) / f"d{dispatch}"
            folder.mkdir(parents=True)
            rows = self.rows(rank) + ([] if older_us is None else self.rows(rank, -older_us))
            write_records(folder, rows)
            identity = {"run_id": run, "endpoint_dispatch_id": run, "pipeline_slot": 0, "pipeline_generation": run}
            write_json(folder / "dispatch_identity.json", {**identity, "chip_rank": rank})
            if self.kernels is not None:
                tasks = [{"task_id": str(RING + n), "kernel_ids": [-1, n % 3, -1]} for n in range(3 * self.rounds)]
                write_json(folder / "deps.json", {"tasks": tasks, "edges": [], "tensors": []})
                names_by_id = {str(n): name for n, name in enumerate(self.kernels)}
                write_json(folder / "name_map.json", {"level": 2, "callable_id_to_name": names_by_id})
        return root


def write_json(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def write_records(folder: Path, rows: list[list[int]]) -> None:
    """Swimlane records of level 1: core, task, register, start, end, receive to start."""
    cores = ["aic"] * 24 + ["aiv"] * 48
    metadata = {"clock_freq_hz": 10**9 // TICK_NS, "num_cores": 72, "core_types": cores}
    records = {"chip_swimlane_level": 1, "metadata": metadata, "aicore_tasks": rows}
    write_json(folder / "chip_swimlane_records.json", records)


def span(name: str, depth: int, ts: int, dur: int, pid: int, more: str = "", call: int = 7) -> str:
    head = f"[mono_ns={ts + dur}][T0x1][TIMING] emit_host_span: "
    return (
        f"{head}[STRACE] v=1 pid={pid} tid={pid} inv={call} hid=ab depth={depth} name={name} ts={ts} dur={dur} {more}"
    )


def log_of(
    pid: int, launched_ns: int, sched_ns: int, run: int = 7, drained_ns: int = 500 * US, ticks: str = "", call: int = 7
) -> str:
    """A call with every part: bind 40 us, a gap of 9 us, the launch, 12 us of copying back, 1 us between.

    The device begins 20 us before its scheduler, which runs `sched_ns`, and is drained `drained_ns` after it ended.
    """
    device, wall = "chip.run.runner_run.device_wall", sched_ns + 60 * US
    begin, drained = launched_ns - 50 * US, wall + drained_ns
    numbers = f"run_id={run} dispatch_id={run} slot_id=0 generation={run} run_epoch={run}"
    rows = [
        ("chip.run.bind.args", 2, begin + US, 30 * US, ""),
        ("chip.run.bind", 1, begin + US, 40 * US, ""),
        ("chip.run.runner_run", 1, launched_ns, drained, ""),
        ("chip.run.validate", 1, launched_ns + drained, 12 * US, ""),
        (device, 2, 0, wall, f"clk=dev {ticks}"),
        (f"{device}.graph_build", 3, 10 * US, sched_ns + 30 * US, "clk=dev"),
        (f"{device}.orch", 3, 15 * US, 3 * US, "clk=dev"),
        (f"{device}.sched", 3, 20 * US, sched_ns, "clk=dev"),
        (f"{device}.post_orch", 3, sched_ns + 42 * US, 10 * US, "clk=dev"),
        ("chip.run", 0, begin, 50 * US + drained + 13 * US, numbers),
    ]
    return "".join(span(name, depth, ts, dur, pid, more, call) + "\n" for name, depth, ts, dur, more in rows)


@dataclass(frozen=True)
class Programs:
    """Runs of three dispatches a rank: `stage` computes, a builtin of the host reduces over all, `consume` computes.

    All times are of one true clock, in us; `launched`, `stage` and `arrival` by run and rank. A rank's next dispatch is
    launched 80 us after the one before, and begins 25 us after that.
    """

    launched: list[list[int]]
    staged: list[list[int]]  # how long a rank computes before the collective
    offsets_us: list[int]
    cost_us: int = 9
    names: str = "rank{}"
    pids: bool = True  # whether identities name the host's process

    def arrival(self, run: int, rank: int) -> int:
        return self.launched[run][rank] + 30 + self.staged[run][rank] + 80 + 25

    def wait_ns(self, run: int, rank: int) -> int:
        return (max(self.arrival(run, one) for one in range(len(self.offsets_us))) - self.arrival(run, rank)) * US

    def dispatches(self, run: int, rank: int) -> list[tuple[str, str, int, int, int]]:
        """Program, kernel, and when it was launched, began and ended."""
        begin, end = self.launched[run][rank] + 30, self.launched[run][rank] + 30 + self.staged[run][rank]
        left = max(self.arrival(run, one) for one in range(len(self.offsets_us))) + self.cost_us
        return [
            ("stage_step", "qkv_proj", self.launched[run][rank], begin, end),
            ("__builtin_allreduce__fp32", "__builtin_allreduce__fp32", end + 80, self.arrival(run, rank), left),
            ("consume_step", "out_proj", left + 80, left + 105, left + 140),
        ]

    def write(self, root: Path, older_us: int = 0, logs: bool = True) -> Path:
        """With `older_us` every second rank's buffers still hold the dispatch of so long before."""
        for rank, offset in enumerate(self.offsets_us):
            lines: list[str] = []
            for run in range(len(self.launched)):
                for part, (program, kernel, launched, begin, end) in enumerate(self.dispatches(run, rank)):
                    number = 3 * run + part
                    folder = root / self.names.format(rank, rank // 2, rank % 2) / f"d{number}"
                    at = [[(10**8 + offset + us - ago) * US // TICK_NS for us in (begin, end)]
                          for ago in ([older_us] if older_us and rank % 2 == 0 else []) + [0]]  # fmt: skip
                    write_records(folder, [[24, RING, 1, *times, 5] for times in at])
                    write_json(folder / "deps.json", {"tasks": [{"task_id": str(RING), "kernel_ids": [-1, 0, -1]}],
                                                      "edges": [], "tensors": []})  # fmt: skip
                    write_json(folder / "name_map.json", {"callable_id_to_name": {"0": kernel}})
                    write_json(folder / "dispatch_program.json", {"program": program})
                    identity = {"run_id": run + 1, "endpoint_dispatch_id": number, "pipeline_slot": part % 2,
                                "pipeline_generation": number, "chip_rank": rank}  # fmt: skip
                    pid = {"host_pid": 100 + rank} if self.pids else {}
                    write_json(folder / "dispatch_identity.json", identity | pid)
                    numbers = f"run_id={run + 1} dispatch_id={number} slot_id={part % 2} generation={number}"
                    lines.append(log_of_dispatch(100 + rank, 10**13, launched, begin, end, number, numbers))
            if logs:
                (root / f"host.{100 + rank}.log").write_text("".join(lines))
        return root


def log_of_dispatch(pid: int, zero_ns: int, launched: int, begin: int, end: int, call: int, numbers: str) -> str:
    """A call with a bind of 35 us before its launch; its device's scheduler runs 3 us longer at both ends of the task,
    and the host knows 40 us after its end."""
    device, sched = "chip.run.runner_run.device_wall", end - begin + 6
    at, drained = zero_ns + launched * US, end + 40 - launched
    rows = [
        ("chip.run.bind", 1, at - 60 * US, 35 * US, ""),
        ("chip.run.runner_run", 1, at, drained * US, ""),
        ("chip.run.validate", 1, at + drained * US, 15 * US, ""),
        (device, 2, 0, (sched + 25) * US, "clk=dev"),
        (f"{device}.graph_build", 3, 5 * US, (sched + 10) * US, "clk=dev"),
        (f"{device}.sched", 3, 8 * US, sched * US, "clk=dev"),
        ("chip.run", 0, at - 62 * US, (62 + drained + 17) * US, numbers),
    ]
    return "".join(span(name, depth, ts, dur, pid, more, call) + "\n" for name, depth, ts, dur, more in rows)


def write_large(root: Path, ranks: int, slices: int, per_round: int = 1000) -> Path:
    """Ranks with many slices on 72 cores, in rounds that end in a collective; another rank is late in each."""
    rounds = max(slices // per_round, 1)
    compute = slices // rounds - 1
    names = {"0": "matmul", "1": "__builtin_all_reduce__fp32"}
    tasks = []
    for task in range(rounds * (compute + 1)):
        core = task % (compute + 1) % 72
        meets = (task + 1) % (compute + 1) == 0
        tasks.append({"task_id": str(RING + task), "kernel_ids": [-1, 1, -1] if meets else [0, -1, -1] if core < 24 else
                      [-1, 0, -1]})  # fmt: skip
    length = 12_000 * (compute // 72 + 1) + 14_000
    for rank in range(ranks):
        at, rows = 10**11 + rank * 7_000_000, []
        for turn in range(rounds):
            first = turn * (compute + 1)
            late = 40_000 if turn % ranks == rank else 0
            for n in range(compute):
                begin = at + late + n // 72 * 12_000 + n % 72 * 40
                rows.append(
                    [n % 72, RING + first + n, n, begin // TICK_NS, (begin + 8_000 + n % 7 * 100) // TICK_NS, 5]
                )
            end = at + length + 46_000
            rows.append([24, RING + first + compute, compute, (at + length + late) // TICK_NS, end // TICK_NS, 5])
            at = end + 2_000
        folder = root / f"rank{rank}" / "d0"
        write_records(folder, rows)
        write_json(folder / "deps.json", {"tasks": tasks, "edges": [], "tensors": []})
        write_json(folder / "name_map.json", {"callable_id_to_name": names})
        write_json(folder / "dispatch_identity.json", {"run_id": 1, "chip_rank": rank})
    return root
