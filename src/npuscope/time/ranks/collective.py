"""What a collective costs, from the steps that its kernel does one after the other.

PyPTO's kernels move 256 elements at a time (a composite inside a kernel: 16 KiB), and every step waits for the one
before. So a collective has a chain of steps on each core, barriers with all peers, a limit on how many transfers the
cores of a rank get through together, and the links themselves. The longest of them bounds it. The same constants time
these ops inside programs (`core/costs.py`). What stands around the kernel (device wall, host) is a constant beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.base.interval import COVERAGE, Basis, Interval
from npuscope.chip.devices import Device
from npuscope.ops.dtypes import BY_NAME
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import BYTES, COUNT, NOTHING, ROOM, TEXT, TIME, capacity, duration
from npuscope.time.core.costs import NS, link_rate, links_of

PIECE = 256  # elements that a builtin moves at a time
COMPOSITE = 16 * 1024  # bytes that a composite does
OPS = ("all_to_all_v", "all_to_all", "allgather", "allreduce", "broadcast", "reduce_scatter", "barrier")
FORMS = ("builtin", "host", "composite", "ring", "hand", "hccl")
SIZES = tuple(1 << n for n in range(10, 25, 2))
RANKS = (2, 4, 8, 16, 32, 64)
# 80% of the released rows lie within such a factor of what a fit without them says (benchmarks/links.py), and how many
# rows that are. All are of 2 to 8 ranks of one box, so a kernel's 1.011 is not believed elsewhere.
SPREAD = {"kernel": 1.05, "device_wall": 1.343, "slot": 1.096, "execute": 1.116}
LEARNT = {"kernel": 10, "device_wall": 13, "slot": 8, "execute": 9}
# Whose times are published, and over how many ranks at most; of all else nobody knows.
MEASURED = {"kernel": "all_to_all_v", "device_wall": "allreduce", "slot": "all_to_all_v", "execute": "allreduce"}
MOST_RANKS = {"all_to_all_v": 8, "allreduce": 2}
UNMEASURED = 1.5  # guessed: allreduce over 16 cores is missed by 1.6, all_to_all_v over 16 by 1.4
MESH_RANKS = 16  # at most, of PyPTO's mesh allreduce
REDUCED = {"builtin": ("FP32", "FP16"), "host": ("FP32", "FP16"), "ring": ("FP32",)}  # what an allreduce adds up
NAMES = {
    "timing": (
        "put_local", "put_remote", "put_rate", "remote_load", "remote_load_rate", "notify_add", "notify_set",
        "signal_wait", "signal_latency", "remote_issue", "block_start", "load_fixed", "load_latency", "load_vector_l2",
        "store_fixed", "store_latency", "store_rate", "scalar_read",
    ),
    "runtime": (
        "collective_wall", "slot_chip", "slot_host", "slot_rank", "call_composite", "call_host", "call_domain",
        "hccl_call", "hccl_rate", "hand_wall", "hand_rate",
    ),
}  # fmt: skip
LINK = "link to "  # and how many ranks it reaches, among the constants
Constants = Mapping[str, float]  # nanoseconds, bytes or transfers per nanosecond


@dataclass(frozen=True)
class Collective:
    """A collective to price. `bytes`: of a rank (allreduce, allgather, broadcast), or for each peer (all_to_all)."""

    op: str
    ranks: int
    bytes: int
    cores: int = 1
    form: str = "builtin"
    dtype: str = ""  # if not given FP32 where elements are added up, else INT8

    def __post_init__(self) -> None:
        usual = "FP32" if self.op in ("allreduce", "reduce_scatter") else "INT8"
        object.__setattr__(self, "dtype", self.dtype or usual)

    @property
    def sizes(self) -> tuple[int, ...]:
        """For tables; a barrier has none."""
        return SIZES if self.op != "barrier" else (0,)


def constants_of(device: Device) -> dict[str, float]:
    """The device file's, in nanoseconds and bytes per nanosecond."""
    found = {}
    for table, names in NAMES.items():
        known = device.timing if table == "timing" else device.runtime
        for name in names:
            if name not in known:
                raise NpuscopeError(
                    f"the file of {device.name} has no {table}.{name}, so no collective can be priced on it",
                    remedy="Let the file inherit from ascend910b1.",
                )
            constant = known[name]
            found[name] = constant.value / NS if constant.unit.endswith("/s") else constant.value * NS
    return found | {f"{LINK}{reach}": rate for reach, rate in links_of(device)}


@dataclass(frozen=True)
class CollectiveParts:
    """Nanoseconds of each part of a collective's kernel on the rank that comes last."""

    steps: float  # the chain of transfers of one core
    barriers: float  # telling and waiting, everybody being there
    fixed: float  # entering and leaving the block, counts
    issue: float  # as long as all transfers of the rank take at its limit
    link: float  # as long as its bytes take on the link

    @property
    def kernel(self) -> float:
        return self.fixed + max(self.steps + self.barriers, self.issue, self.link)

    @property
    def bound(self) -> str:
        parts = {"issue rate": self.issue, "link": self.link, "steps": self.steps, "barrier": self.barriers}
        if max(self.issue, self.link) < self.steps + self.barriers:
            parts = {"steps": self.steps, "barrier": self.barriers, "fixed": self.fixed}
        return max(parts, key=lambda name: parts[name])


def parts_of(one: Collective, c: Constants) -> CollectiveParts:
    """What the kernel does, step by step."""
    peers = one.ranks - 1
    piece = COMPOSITE if one.form in ("composite", "ring") else PIECE * BY_NAME[one.dtype].bytes
    barrier = peers * (c["notify_add"] + c["signal_wait"]) + c["signal_latency"]
    part = one.bytes / one.ranks if one.op == "reduce_scatter" or one.form == "ring" else one.bytes
    pieces = ceil(part / piece)
    mine = ceil(pieces / one.cores)  # pieces of one core
    load = min(part, mine * piece)  # bytes of them

    put = mine * (c["put_local"] + peers * c["put_remote"]) + one.ranks * load / c["put_rate"]
    near = mine * (c["load_fixed"] + c["load_latency"]) + load / c["load_vector_l2"]
    far = mine * c["remote_load"] + load / c["remote_load_rate"]
    store = mine * (c["store_fixed"] + c["store_latency"]) + load / c["store_rate"]
    rounds = float(peers)  # how often the part travels
    fixed, meets = c["block_start"], 1.0
    if one.op in ("all_to_all_v", "all_to_all", "allgather"):
        steps = put
        if one.op == "all_to_all_v":
            fixed += peers * (c["notify_set"] + c["scalar_read"])
        barrier -= c["signal_latency"]  # whoever comes last finds all others there
    elif one.op == "allreduce" and one.form == "ring":
        rounds = 2.0 * peers
        steps, meets = rounds * (far + store) + peers * near, 2.0 * rounds * mine
    elif one.op in ("allreduce", "reduce_scatter"):
        steps, meets = near + peers * far + store, 1.0 + mine if one.op == "allreduce" else 2.0
    elif one.op == "broadcast":
        steps, meets, rounds = far + store, 2.0, 1.0
    else:
        steps, rounds = 0.0, 0.0
    links = [(int(name.removeprefix(LINK)), rate) for name, rate in c.items() if name.startswith(LINK)]
    issue, link = rounds * pieces / c["remote_issue"], rounds * part / link_rate(links, one.ranks)
    return CollectiveParts(steps, meets * barrier, fixed, issue, link)


def times_of(one: Collective, c: Constants) -> dict[str, float]:
    """By what is measured, in nanoseconds: the kernel, the slowest rank's device wall, the host's slot, its call."""
    if one.form == "hccl":
        # each rank sends and gets 2 (P - 1) / P times its bytes, the least that an allreduce takes; measured over two
        return {"execute": c["hccl_call"] + one.bytes * 2 * (one.ranks - 1) / one.ranks / c["hccl_rate"]}
    if one.form == "hand":  # reads every peer
        return {"device_wall": c["hand_wall"] + one.bytes * (one.ranks - 1) / c["hand_rate"]}
    kernel = parts_of(one, c).kernel
    wall = kernel + c["collective_wall"]
    if one.form == "builtin":
        return {"kernel": kernel, "device_wall": wall, "slot": kernel + c["slot_chip"]}
    if one.form == "host":
        slot = kernel + c["slot_host"] + one.ranks * c["slot_rank"]
        return {"kernel": kernel, "device_wall": wall, "slot": slot, "execute": wall + c["call_host"]}
    return {"kernel": kernel, "device_wall": wall, "execute": wall + c["call_composite"]}


TABLE = Columns(
    "collective.sizes",
    "A collective of one size over so many ranks.",
    Column("ranks", COUNT, "ranks"),
    Column("bytes", ROOM, "of a rank, or for each peer (all_to_all, all_to_all_v)"),
    Column("time_ns", TIME, "what the command is about: the kernel, or the call where there is no kernel"),
    Column("bound", TEXT, "what bounds it: steps, barrier, issue rate, link, fixed", title="bound by"),
    Column("per_second", BYTES, "bytes that leave a rank in a second", title="leaves a rank, per s"),
)
GRID = Columns(
    "collective.grid",
    "The times of `collective.sizes`, a row for each size.",
    Column("bytes", TEXT, "of a rank, or for each peer (all_to_all, all_to_all_v)"),
    *(Column(f"r{ranks}", TEXT, f"over {ranks} ranks", title=f"{ranks} ranks") for ranks in RANKS),
    Column("bound", TEXT, "what bounds it, from fewest to most ranks", title="bound by"),
)
METRICS = Columns(
    "collective.metrics",
    "The time of a collective, by what is measured.",
    Column("metric", TEXT, "kernel: its task on the rank that comes last; device_wall, slot, execute: around it"),
    Column("time_ns", TIME, "the likely time"),
    Column("low_ns", TIME, "80% lie above", title="low"),
    Column("high_ns", TIME, "80% lie below", title="high"),
)


@dataclass(frozen=True)
class CollectivePrice(Tabular):
    """A collective's times, what bounds it, and how it grows."""

    asked: Collective
    device: str
    constants: Constants

    @cached_property
    def times(self) -> dict[str, Interval]:
        return {name: self._around(name, value) for name, value in times_of(self.asked, self.constants).items()}

    def _around(self, metric: str, value: float) -> Interval:
        one = self.asked
        known = one.op == MEASURED[metric] and one.ranks <= MOST_RANKS[one.op] and one.cores == 1
        wide = SPREAD[metric] if known else max(SPREAD[metric], UNMEASURED)
        return Interval(
            value, value / wide, value * wide, COVERAGE, Basis(metric, None, LEARNT[metric] if known else 0)
        )

    @property
    def metric(self) -> str:
        """What is told first."""
        return next(iter(self.times))

    @cached_property
    def parts(self) -> CollectiveParts | None:
        return None if self.asked.form in ("hccl", "hand") else parts_of(self.asked, self.constants)

    @cached_property
    def sizes(self) -> pl.DataFrame:
        """Over sizes and ranks."""
        some = [ranks for ranks in RANKS if ranks <= most_ranks(self.asked)]
        return pl.DataFrame([self._row(ranks, size) for ranks in some for size in self.asked.sizes])

    def grid(self) -> Table:
        """The same for people."""
        rows = []
        for size in self.asked.sizes:
            some = self.sizes.filter(bytes=size)
            row = {f"r{ranks}": duration(time) for ranks, time in some.select("ranks", "time_ns").iter_rows()}
            bounds = ", ".join(dict.fromkeys(some["bound"].to_list()))
            rows.append(
                {"bytes": capacity(size), **dict.fromkeys((f"r{n}" for n in RANKS), NOTHING), **row, "bound": bounds}
            )
        return Table(GRID, pl.DataFrame(rows))

    def _row(self, ranks: int, size: int) -> dict[str, object]:
        one = replace(self.asked, ranks=ranks, bytes=size)
        (time, *_) = times_of(one, self.constants).values()
        sent = size * (2 * (ranks - 1) / ranks if one.form in ("ring", "hccl") else ranks - 1)
        bound = "" if self.parts is None else parts_of(one, self.constants).bound
        return {
            "ranks": ranks,
            "bytes": size,
            "time_ns": round(time),
            "bound": bound,
            "per_second": round(sent / time * NS),
        }

    def tables(self) -> dict[str, Table]:
        rows = [
            {"metric": name, "time_ns": round(one.value), "low_ns": round(one.low), "high_ns": round(one.high)}
            for name, one in self.times.items()
        ]
        return {"metrics": Table(METRICS, pl.DataFrame(rows)), "sizes": Table(TABLE, self.sizes)}


def most_ranks(one: Collective) -> int:
    """That the kernel takes."""
    return MESH_RANKS if one.op == "allreduce" and one.form in ("builtin", "host", "composite") else RANKS[-1]


def price(one: Collective, device: Device) -> CollectivePrice:
    """What a collective costs on a chip; refused where the kernel does not do it."""
    if one.op not in OPS:
        raise NpuscopeError(f"no collective '{one.op}'", remedy=f"Those that are known: {', '.join(OPS)}.")
    if one.form not in FORMS:
        raise NpuscopeError(f"no form '{one.form}'", remedy=f"Those that are known: {', '.join(FORMS)}.")
    if one.form in ("ring", "hand", "hccl") and one.op != "allreduce":
        raise NpuscopeError(f"{one.form} is known of allreduce alone", remedy="Leave --form out.")
    if one.dtype not in BY_NAME:
        raise NpuscopeError(f"no dtype '{one.dtype}'", remedy="As INT8, FP16, BF16, FP32.")
    adds = REDUCED.get(one.form, ()) if one.op == "allreduce" else ()
    if adds and one.dtype not in adds:
        raise NpuscopeError(f"allreduce ({one.form}) adds up {' and '.join(adds)}, not {one.dtype}")
    if one.ranks > most_ranks(one):
        raise NpuscopeError(
            f"{one.op} ({one.form}) takes at most {most_ranks(one)} ranks", remedy="Allreduce has --form ring for more."
        )
    most = int(device.cores.vector.value)
    if one.cores > most:
        raise NpuscopeError(f"{one.cores} cores: {device.name} has {most} vector cores")
    if one.cores > 1 and one.form not in ("builtin", "host"):
        raise NpuscopeError(f"{one.form} runs on one core", remedy="Leave --cores out.")
    return CollectivePrice(one, device.name, constants_of(device))
