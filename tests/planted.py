"""Kernel tables with planted forward passes, and what extraction must find in them.

A `Plan` says what to plant: a model's sequence, passes with a phase each, drafts, noise, a second stream, twins, how
much of the head and tail of the capture is missing. `plant` writes the table and returns the truth.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

HEADER = [
    "Step Id", "Device_id", "Stream ID", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)",
    "Wait Time(us)", "Block Num", "Input Shapes", "Input Data Types", "Input Formats",
]  # fmt: skip
SIDE, NOISE = "MemSet", "TensorMove"
NOBODY = -1
COMM = ("hcom_allReduce_", "HcomAllReduce", "hcom_allGather_", "hcom_reduceScatter_")
ATTENTIONS = ("FusedInferAttentionScore", "RINGMLAPrefillBF16Kernel", "k_mix")


@dataclass(frozen=True)
class Model:
    """Kernel types of each part of a pass; a layer's first kinds may differ from the others."""

    head: tuple[str, ...]
    layer: tuple[str, ...]
    tail: tuple[str, ...]
    layers: int
    first: tuple[str, ...] = ()  # of the first layer, where it differs
    dense: tuple[str, ...] = ()  # of the first few layers, where they differ
    dense_layers: int = 0
    draft: tuple[str, ...] = ()  # a draft's whole pass
    prefill: tuple[str, ...] = ()  # a layer of a prefill, where it differs
    attention: str = "FusedInferAttentionScore"

    def kernels(self, phase: str = "decode") -> list[list[str]]:
        """Kernel types of head, each layer, tail."""
        if phase == "prefill" and self.prefill:
            return [list(self.head), *(list(self.prefill) for _ in range(self.layers)), list(self.tail)]
        layers = [list(self.layer) for _ in range(self.layers)]
        layers[: self.dense_layers] = [list(self.dense) for _ in range(self.dense_layers)]
        if self.first:
            layers[0] = list(self.first)
        return [list(self.head), *layers, list(self.tail)]


_ATTENTION = ("MatMulV2", "split_qkv_rmsnorm_rope_kernel", "ReshapeAndCacheNdKernel", "FusedInferAttentionScore")
_AFTER = ("MatMulV2", "hcom_allReduce_", "AddRmsNormBias")
_FFN = ("MatMulV2", "SwiGlu", "MatMulV2", "hcom_allReduce_", "AddRmsNormBias")
QWEN = Model(
    head=("GatherV2", "hcom_allReduce_", "RmsNorm"),
    layer=_ATTENTION + _AFTER + _FFN,
    first=("MatMulV2", "Slice", "Slice", "RmsNorm", "RmsNorm", "_triton_rope", "ReshapeAndCacheNdKernel",
           "FusedInferAttentionScore", *_AFTER, *_FFN),
    tail=("Index", "MatMulV2", "hcom_allGather_", "Transpose", "Sort", "SoftmaxV2", "ArgMaxV2", "Cast"),
    layers=64,
)  # fmt: skip
# sequence parallel prefill, with its own attention kernel
QWEN_RING = replace(
    QWEN,
    prefill=("hcom_allGather_", "MatMulV2", "split_qkv_rmsnorm_rope_kernel", "TensorMove", "ReshapeAndCacheNdKernel",
             "RINGMLAPrefillBF16Kernel", "MatMulV2", "hcom_reduceScatter_", "AddRmsNormBias", "hcom_allGather_",
             "MatMulV3", "SwiGlu", "MatMulV3", "hcom_reduceScatter_", "AddRmsNormBias"),
    layers=12,
)  # fmt: skip
_MLA = ("AscendQuantV2", "QuantBatchMatmulV3", "RmsNorm", "BatchMatMulV2", "InterleaveRope", "KvRmsNormRopeCache",
        "FusedInferAttentionScore", "TransposeBatchMatMul", "QuantBatchMatmulV3", "hcom_allReduce_",
        "AddRmsNormBias")  # fmt: skip
DEEPSEEK = Model(
    head=("GatherV3", "hcom_allReduce_", "Cast"),
    layer=(*_MLA, "MatMulV2", "MoeGatingTopK", "DynamicQuant", "QuantBatchMatmulV3", "SwiGlu", "QuantBatchMatmulV3",
           "DispatchFFNCombine", "Add"),
    dense=(*_MLA, "DynamicQuant", "QuantBatchMatmulV3", "SwiGlu", "DynamicQuant", "QuantBatchMatmulV3"),
    dense_layers=3,
    tail=("RmsNorm", "MatMulV2", "hcom_allGather_", "ArgMaxV2"),
    draft=("GatherV3", "RmsNorm", "RmsNorm", "ConcatD", "MatMulV2", *_MLA, "MatMulV2", "MoeGatingTopK",
           "DispatchFFNCombine", "RmsNorm", "MatMulV2", "ArgMaxV2"),
    layers=61,
)  # fmt: skip
# nothing here has a name anybody knows
STRANGE = Model(
    head=("k_begin", "k_table", "k_shift"),
    layer=("k_one", "k_two", "k_mix", "k_three", "k_two", "k_four"),
    tail=("k_last", "k_wide", "k_pick"),
    layers=12,
    attention="k_mix",
)


@dataclass(frozen=True)
class Plan:
    """What to plant; times are nanoseconds."""

    model: Model
    phases: tuple[str, ...]  # of each pass
    seed: int = 0
    drafts: int = 0  # after each pass
    steps: bool = False
    twins: bool = True
    side_stream: bool = False  # a second stream works beside the layers
    jitter: float = 0.3  # of durations and pauses
    lost_head: int = 0  # rows missing at the begin of the capture
    lost_tail: int = 0
    stall: int | None = None  # a pass in which a collective waits
    pause_ns: int = 400_000  # between passes
    skew_ns: int = 0  # this rank runs later than others
    noise: float = 0.0  # kernels among those of layers that come from elsewhere, on the main stream
    warm_up: int = 0  # rows before the first pass, and behind the last one, that are no pass's


@dataclass(frozen=True)
class Planted:
    """A pass as planted: what `npuscope forward` must say of it."""

    phase: str
    attentions: int
    complete: bool
    disturbed: bool
    start: int
    end: int
    sum_ns: int
    rows: int


@dataclass
class _Row:
    start: int
    ns: int
    type: str
    stream: str
    core: str
    owner: int
    step: int
    shapes: str = "N/A"
    of: _Row | None = None  # the row this one tells again


def plant(plan: Plan, path: Path) -> list[Planted]:
    """Write the table; the passes it holds, in order."""
    rows, names = _rows(plan)
    counted = [row for row in rows if row.of is None]
    kept = counted[plan.lost_head : len(counted) - plan.lost_tail]
    inside = {id(row) for row in kept}
    rows = [row for row in rows if id(row) in inside or (row.of is not None and id(row.of) in inside)]
    _write(rows, plan, path)
    return _truth(plan, counted, kept, names)


def _rows(plan: Plan) -> tuple[list[_Row], list[str]]:
    random = Random(plan.seed)
    rows: list[_Row] = []
    names: list[str] = []
    now = 1_779_440_805_781_809_540 + plan.skew_ns

    def add(types: list[str], phase: str, owner: int, step: int, stall: bool, noise: float = 0.0) -> None:
        nonlocal now
        for type_ in types:
            now += int(random.uniform(200, 2_000))
            ns = int((5_000 + 300 * len(type_)) * (1 + plan.jitter * random.uniform(-1, 1)))
            if type_ in COMM and stall:
                ns, stall = ns + 60_000_000, False
            rows.extend(_placed(plan, type_, now, ns, owner, step, phase))
            if plan.side_stream and random.random() < 0.2:
                rows.append(_Row(now + ns // 3, ns, SIDE, "171", "AI_VECTOR_CORE", owner, step))
            now += ns
            if random.random() < noise:
                rows.append(_Row(now + 300, 2_000, NOISE, "166", "AI_VECTOR_CORE", owner, step))
                now += 2_300

    def add_beside() -> None:
        nonlocal now
        add(["Fill", "Cast"] * plan.warm_up, "decode", NOBODY, 0, False)
        now += 2_000_000 if plan.warm_up else 0

    add_beside()
    for number, phase in enumerate(plan.phases):
        stall = number == plan.stall
        head, *layers, tail = plan.model.kernels(phase)
        for part in (head, *layers, tail):
            inside = part is not head and part is not tail
            add(part, phase, len(names), number, stall, plan.noise if inside else 0.0)
            stall = False
        names.append(phase)
        for _ in range(plan.drafts):
            now += int(plan.pause_ns * random.uniform(0.2, 0.4))
            add(list(plan.model.draft), phase, len(names), number, False)
            names.append("draft")
        now += int(plan.pause_ns * random.uniform(0.8, 1.2))
    now += 2_000_000
    add_beside()
    return sorted(rows, key=lambda row: row.start), names


def _placed(plan: Plan, type_: str, start: int, ns: int, owner: int, step: int, phase: str) -> list[_Row]:
    if type_ in COMM:
        physical = _Row(start, ns, type_, "165", "COMMUNICATION", owner, step)
        logical = _Row(start, ns, type_, "N/A", "COMMUNICATION", owner, step, of=physical)
        return [physical, logical] if plan.twins else [physical]
    tokens = 4096 if phase == "prefill" else 16
    row = _Row(start, ns, type_, "166", "AI_CORE", owner, step, shapes=f'"{tokens},5120;5120"')
    if type_ in ATTENTIONS:
        row.shapes = f'"{tokens},4,128;900,128,128;900,128,128;;2048,2048;{1 if phase == "prefill" else 16};16"'
        row.core = "MIX_AIC"
        if plan.twins:
            twin = _Row(start - 90_000, 76_000, type_, "162", "AI_CPU", owner, step, of=row)
            return [twin, row]
    return [row]


def _write(rows: list[_Row], plan: Plan, path: Path) -> None:
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(HEADER)
    for number, row in enumerate(rows):
        start, ns = (f"{t // 1000}.{t % 1000:03d}" for t in (row.start, row.ns))
        step = str(row.step + 3) if plan.steps and row.owner != NOBODY else "N/A"
        name = "AivKernel" if row.type in COMM and row.stream != "N/A" else f"{row.type}_{number}"
        types = "N/A" if row.shapes == "N/A" else ";".join(["DT_BF16"] * (row.shapes.count(";") + 1))
        out.writerow([step, 0, row.stream, name, row.type, row.core, start + "\t", ns, 0, 24, row.shapes, types, "N/A"])
    path.write_text(text.getvalue())


def _truth(plan: Plan, counted: list[_Row], kept: list[_Row], names: list[str]) -> list[Planted]:
    truth = []
    inside = {id(row) for row in kept}
    stalled = None if plan.stall is None else [i for i, name in enumerate(names) if name != "draft"][plan.stall]
    for owner, name in enumerate(names):
        here = [row for row in kept if row.owner == owner]
        attentions = sum(row.type in ATTENTIONS for row in here)
        if not attentions:
            continue  # a fragment of a pass without any attention is none
        # what comes and goes on a side stream is not missed
        whole = all(row.type in (SIDE, NOISE) for row in counted if row.owner == owner and id(row) not in inside)
        wait = owner == stalled and any(row.ns > 50_000_000 for row in here)
        start, end = here[0].start, max(row.start + row.ns for row in here)
        truth.append(Planted(name, attentions, whole, wait, start, end, sum(row.ns for row in here), len(here)))
    return truth
