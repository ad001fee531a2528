"""A predicted forward pass: every kernel with its time, where the time comes from, what it assumes, and as a trace."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.chip.devices import Device
from npuscope.chip.kernels import kind_of, rule_of
from npuscope.forward.calls import Call, CallTensor
from npuscope.forward.estimate import CallTime, estimate
from npuscope.forward.llm.config import ModelConfig, PassSettings
from npuscope.forward.llm.forward_pass import RankMemory, basis, forward_pass, rank_memory
from npuscope.forward.llm.kernels import ModelKernel
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, FLAG, MEAN_TIME, SHARE, TEXT, TIME, duration, many, percent, significant
from npuscope.trace.core import Meta, Trace

SOURCES = ("MEASURED", "INTERPOLATED", "ANALYTIC", "UNKNOWN")
ROLES = Columns(
    "predict.roles",
    "A role and kernel type, the largest total first; null where not known.",
    Column("part", TEXT, "head, layer or tail of the pass", wide=True),
    Column("role", TEXT, "what it does in the model"),
    Column("kernel", TEXT, "its type"),
    Column("count", COUNT, "calls"),
    Column("each_ns", MEAN_TIME, "of a call"),
    Column("total_ns", TIME, "of all calls"),
    Column("efficiency", SHARE, "the least time the chip needs, over the time", title="of limit", explained=True),
    Column("source", TEXT, "where the time comes from: MEASURED, INTERPOLATED, ANALYTIC or UNKNOWN"),
    Column(
        "extrapolated",
        FLAG,
        "outside the sizes that its family was calibrated on",
        title="outside its range",
        explained=True,
    ),
)
UNKNOWN = Columns(
    "predict.unknown",
    "Kernels whose time is not known.",
    Column("role", TEXT, "what they do in the model"),
    Column("kernel", TEXT, "their type"),
    Column("calls", COUNT, "of them"),
    Column("why", TEXT, "the reason"),
)


@dataclass(frozen=True, repr=False)
class PassPrediction(Tabular):
    """The kernels of one pass on one rank, one after another on one stream. Kernels without a price have no time."""

    model: ModelConfig
    run: PassSettings
    device: Device
    kernels: tuple[ModelKernel, ...]
    estimates: tuple[CallTime, ...]  # of each kernel

    @property
    def total_ns(self) -> int:
        """Sum of all times that are known."""
        return sum(e.ns or 0 for e in self.estimates)

    def tables(self) -> dict[str, Table]:
        return {"roles": Table(ROLES, self.roles()), "unknown": Table(UNKNOWN, self._unpriced())}

    def roles(self) -> pl.DataFrame:
        """A row per role and kernel type, the costliest first."""
        return (
            self.calls()
            .group_by("part", "role", "kernel", "source", "extrapolated", maintain_order=True)
            .agg(
                pl.len().alias("count"),
                pl.col("ns").mean().alias("each_ns"),
                pl.col("ns").sum().alias("total_ns"),
                (pl.col("limit_ns").sum() / pl.col("ns").sum()).alias("efficiency"),
            )
            .with_columns(
                pl.when(pl.col("source") != "UNKNOWN").then("total_ns").alias("total_ns"),
                pl.when(pl.col("source") != "UNKNOWN").then("efficiency").alias("efficiency"),
            )
            .sort("total_ns", descending=True, nulls_last=True, maintain_order=True)
        )

    def calls(self) -> pl.DataFrame:
        """A row per kernel call, in order."""
        pairs = list(zip(self.kernels, self.estimates, strict=True))
        return pl.DataFrame(
            {
                "part": [k.part for k, _ in pairs],
                "layer": pl.Series([k.layer for k, _ in pairs], dtype=pl.Int32),
                "position": pl.Series([k.position for k, _ in pairs], dtype=pl.Int32),
                "role": [k.role for k, _ in pairs],
                "kernel": [k.call.type for k, _ in pairs],
                "ns": pl.Series([e.ns for _, e in pairs], dtype=pl.Int64),
                "limit_ns": pl.Series([e.limit_ns for _, e in pairs], dtype=pl.Int64),
                "source": [e.source for _, e in pairs],
                "extrapolated": [e.extrapolated for _, e in pairs],
                "why": [e.why for _, e in pairs],
            }
        )

    def by_source(self) -> dict[str, tuple[int, int]]:
        """Source -> calls and nanoseconds."""
        calls, time = Counter[str](), Counter[str]()
        for e in self.estimates:
            calls[e.source] += 1
            time[e.source] += e.ns or 0
        return {source: (calls[source], time[source]) for source in SOURCES if calls[source]}

    @property
    def extrapolated(self) -> tuple[int, int]:
        """Calls outside the range that their family was calibrated on, and their time."""
        outside = [e for e in self.estimates if e.extrapolated]
        return len(outside), sum(e.ns or 0 for e in outside)

    @cached_property
    def memory(self) -> RankMemory:
        """What the pass needs on one rank."""
        return rank_memory(self.model, self.run, self.kernels, self.device)

    def _unpriced(self) -> pl.DataFrame:
        """Kernels without a price, with the reason."""
        groups = self.calls().filter(pl.col("ns").is_null()).group_by("role", "kernel", "why", maintain_order=True)
        return groups.agg(calls=pl.len().cast(pl.Int64)).select(UNKNOWN.keys)

    @property
    def unknown(self) -> int:
        """Calls that have no price."""
        return sum(e.ns is None for e in self.estimates)

    def title(self) -> str:
        return f"{self.model.title} {self.run.phase} on {self.device.name}: {duration(self.total_ns)}"

    def assumptions(self) -> list[str]:
        """What the number rests on, in sentences."""
        run, model = self.run, self.model
        notes = [f"The {basis(model, run)}.", self.memory.sentence()]
        notes.append("Kernels follow one another on one stream: no overlap, no gaps, no waits for other ranks.")
        notes.append(
            "Whole passes take longer than their kernels alone: docs/understand/trust.md says by how much so far."
        )
        notes.append(f"One rank of tp {run.tp}, dp {run.dp}, ep {run.ep}; batch and tokens are of one dp group.")
        notes.append("Sampling is by top-k and top-p with the kernels measured on Qwen3-32B; without host work.")
        if run.phase == "prefill":
            notes.append("Every sequence has as many new tokens as the others.")
        if model.experts is not None:
            notes.append(
                "The router spreads tokens evenly over the experts."
                if run.busiest == 1
                else f"This is the busiest rank: its experts get {significant(run.busiest)} times the mean."
            )
        if model.next_n:
            notes.append(f"Layers that predict further tokens (MTP: {model.next_n}) are not part of the pass.")
        if model.quantisation is not None and run.quant == "none":
            notes.append(f"The config says {model.quantisation}; predicted as BF16 (--quant w8a8 for INT8).")
        return notes

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        shares = {source: {"calls": calls, "ns": ns} for source, (calls, ns) in self.by_source().items()}
        return {
            "model": {"title": self.model.title, **asdict(self.model)},
            "run": asdict(self.run),
            "device": self.device.name,
            "total_ns": self.total_ns,
            "memory": {**asdict(self.memory), "fits": self.memory.fits},
            "calls": len(self.kernels),
            "sources": shares,
            "extrapolated": {"calls": self.extrapolated[0], "ns": self.extrapolated[1]},
            **all_rows(self.tables()),
            "assumptions": self.assumptions(),
        }

    def confidence(self) -> list[str]:
        """How much of the time is calibrated, extrapolated, at the limit, and not known, in sentences."""
        total = self.total_ns or 1
        parts = [
            f"{s} {percent(ns / total)} of the time ({many(n, 'call')})" for s, (n, ns) in self.by_source().items()
        ]
        notes = [f"Sources: {'; '.join(parts)}."]
        calls, ns = self.extrapolated
        if calls:
            notes.append(f"Outside the calibrated range: {many(calls, 'call')}, {percent(ns / total)} of the time.")
        if self.unknown:
            notes.append(f"{self.unknown:,} kernels have no known time and are not in the sum.")
        return notes


def predict(model: ModelConfig, run: PassSettings, device: Device) -> PassPrediction:
    """Every kernel of the pass, priced; calls that are alike are priced once."""
    kernels = forward_pass(model, run)
    times = {call: estimate(call, device) for call in dict.fromkeys(kernel.call for kernel in kernels)}
    return PassPrediction(model, run, device, tuple(kernels), tuple(times[kernel.call] for kernel in kernels))


# the cores a kernel runs on, by how its work is found; the others run on vector cores
CORES = {
    "matmul": "AI_CORE", "grouped": "AI_CORE", "collective": "COMMUNICATION",
    **dict.fromkeys(("attention", "sparse_attention", "indexer", "prolog", "routed", "unpriced"), "MIX_AIC"),
}  # fmt: skip


def predicted_trace(prediction: PassPrediction) -> Trace:
    """A slice per kernel; one without a price has no length and says UNKNOWN in column `Source`."""
    calls = prediction.calls()
    texts = [_texts(kernel.call) for kernel in prediction.kernels]
    dur = calls["ns"].fill_null(0)
    slices = pl.DataFrame(
        {
            "lane": pl.zeros(calls.height, dtype=pl.UInt32, eager=True),
            "start": dur.cum_sum() - dur,
            "dur": dur,
            "kernel": calls["kernel"] + " " + calls["role"],
            "kind": [kind_of(kernel.call.type) for kernel in prediction.kernels],
            "task": pl.int_range(calls.height, dtype=pl.Int64, eager=True),
            "Name": calls["kernel"] + " " + calls["role"],
            "Type": calls["kernel"],
            "Stream ID": ["0"] * calls.height,
            **{name: [text[name] for text in texts] for name in (texts[0] if texts else {})},
            "part": calls["part"],
            "layer": calls["layer"],
            "position": calls["position"],
            "role": calls["role"],
            "Source": calls["source"],
            "limit_ns": calls["limit_ns"],
        }
    )
    lanes = pl.DataFrame({"lane": [0], "name": ["predicted"], "unit": ["stream"], "device": [0]})
    notes = {
        "model": prediction.model.title,
        "run": asdict(prediction.run),
        "assumptions": prediction.assumptions(),
    }
    meta = Meta("prediction", device=prediction.device.name, records=calls.height, notes=notes)
    return Trace.of(slices, lanes, meta)


def _texts(call: Call) -> dict[str, str]:
    """The cells of a kernel table that tell a call's tensors."""
    cells = {"Accelerator Core": CORES.get(rule_of(call.type).work.by, "AI_VECTOR_CORE")}
    for side, tensors in (("Input", call.inputs), ("Output", call.outputs)):
        cells[f"{side} Shapes"] = (
            '"' + _slots(tensors, lambda t: ",".join(map(str, t.shape))) + '"' if tensors else "N/A"
        )
        cells[f"{side} Data Types"] = _slots(tensors, lambda t: t.dtype or "UNDEFINED", "UNDEFINED") or "N/A"
        cells[f"{side} Formats"] = _slots(tensors, lambda t: t.format or "NULL", "NULL") or "N/A"
    return cells


def _slots(tensors: Iterable[CallTensor | None], tell: Callable[[CallTensor], str], absent: str = "") -> str:
    return ";".join(absent if tensor is None else tell(tensor) for tensor in tensors)


QWEN3_32B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 5120,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 25600,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}


def write_config(path: Path) -> None:
    """The sizes as a config.json."""
    path.write_text(json.dumps(QWEN3_32B, indent=2) + "\n")
