"""What the words in captures mean: names of lanes, markers of runtimes, annotations of steps, shapes of tensors.

Builds of the runtime name one phase differently. torch.profiler numbers its steps (ProfilerStep#7); vLLM says requests
and tokens of prompts and of answers (execute_context_1(888)_generation_4(4), at times with all tokens in front), SGLang
its mode (step[EXTEND bs=15 toks=15360]). Tensors are text: `"4,3072;96,192,16,16"`, `DT_BF16;FLOAT`, `ND;FORMAT_NZ`, a
slot per tensor; an empty slot is an absent input, a scalar or an empty tensor, the table does not say which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import polars as pl


class LaneUnit(NamedTuple):
    """The unit of a lane, its core number where the name has one, and the kind of its slices."""

    unit: str
    core: int | None
    kind: str


_PATTERNS = [
    (re.compile(r"^(?:AICube|AIC)[_ ]?([0-9]{1,9})$"), "AIC", "task"),
    (re.compile(r"^(?:AIVector|AIV)[_ ]?([0-9]{1,9})$"), "AIV", "task"),
    (re.compile(r"^AIC \(core([0-9]{1,9})\)$"), "AIC", "task"),
    (re.compile(r"^AIV[0-9]* \(core([0-9]{1,9})\)$"), "AIV", "task"),
    (re.compile(r"^Core_([0-9]{1,9})$"), "AIC", "task"),
    (re.compile(r"^(?:AICPU|Sched|Orch)[_ ]?([0-9]{1,9})$"), "AICPU", "schedule"),
]


def unit_of_lane(name: str) -> LaneUnit:
    """AIC, AIV or AICPU where the name says so, else a host lane."""
    for pattern, unit, kind in _PATTERNS:
        if match := pattern.match(name):
            return LaneUnit(unit, int(match[1]), kind)
    return LaneUnit("host", None, "host")


# our word -> labels seen in TraCR bundles and swimlanes
ALIASES = {
    "orchestrate": ("Orchestrating", "orch_submit"),
    "read_dimensions": ("Read_Dimensions",),
    "reshape_kernels": ("Reshape_Kernels",),
    "pre_loop": ("Pre_Loop_Info",),
    "scope": ("PTO2_SCOPE_",),
    "schedule": ("Scheduling",),
    "complete": ("Phase1", "Complete", "Retiring", "complete", "poll", "scan"),
    "async_poll": ("async_poll",),
    "drain_sync": ("Phase2", "Drain_Sync_Start", "Draining_Sync", "drain"),
    "drain_prepare": ("drain_prepare",),
    "drain_publish": ("drain_publish",),
    "wire": ("Phase3", "wire"),
    "dummy": ("Phase3b", "Dummy", "Retiring_Dummy", "dummy"),
    "dummy_task": ("dummy_task",),
    "predicated_skip": ("predicated_skip",),
    "dispatch": ("Phase4", "Dispatch", "Dispatching", "dispatch"),
    "release": ("Drain", "Release", "release"),
    "idle": ("Idle", "idle"),
    "resolve": ("Resolving", "resolve", "fanout", "resolve_standalone"),
    "early_dispatch": ("early_dispatch", "prestage"),
    "prepare_graph": ("graph_prepare",),
    # schedulers that run on AICores: after a look at a core's state one of dispatch, refill and steal
    "bootstrap": ("bootstrap",),
    "probe": ("state_probe", "ready_claim"),
    "refill": ("refill", "direct_refill"),
    "steal": ("worksteal", "ready_steal"),
    "initialise": ("Initializing", "handshake", "config", "context_publish", "bootstrap_wait"),
    "deinitialise": ("De_Initializing", "register_release", "exit_signal", "exit_wait"),
    "load": ("DLL_loading",),
    "allocate": ("Allocating", "orch_alloc"),
    "run": ("Running_Task_Single", "Running_Task_Pair"),
    "barrier": ("Barrier",),
    "comm_notify": ("CommNotify",),
    "comm_wait": ("CommWait",),
}
_BY_LABEL = {label: word for word, labels in ALIASES.items() for label in labels}
RUN_LABELS = frozenset(ALIASES["run"])
ROLE_LABELS = {"Orchestrating": "orchestrator", "Scheduling": "scheduler"}


def phase_of(label: pl.Expr) -> pl.Expr:
    """The phase a label stands for; null for a label that is none of the runtime's."""
    return label.replace_strict(_BY_LABEL, default=None, return_dtype=pl.String)


ON_DEVICE = "gpu_user_annotation"  # category of what Kineto says ran on the device for an annotation
PREFIXES = ("ProfilerStep#", "execute_", "step[")  # in the order in which they are believed where all mark as much
_NUMBERED = re.compile(r"ProfilerStep#([0-9]{1,18})")
_VLLM = re.compile(r"execute_(?:[0-9]+_)?context_([0-9]+)\(([^()]*)\)_generation_([0-9]+)\(([^()]*)\)")
_SGLANG = re.compile(r"step\[([A-Z_]+)(?: bs=([0-9]{1,9}))?(?: toks=([0-9]{1,9}))?[^\[\]]*\]")
_FIRST_NUMBER = re.compile(r"[0-9]{1,15}")
_PHASES = {"EXTEND": "prefill", "DECODE": "decode"}


class StepMark(NamedTuple):
    """What the name of an annotation says of its step."""

    spelling: str  # one of PREFIXES
    number: int | None = None
    phase: str | None = None  # prefill, decode, mixed, or the framework's own word
    tokens: int | None = None  # that the step computes, over all requests


@lru_cache(maxsize=65536)
def step_mark(name: str) -> StepMark | None:
    """What an annotation's name marks; None where it marks no step."""
    if match := _NUMBERED.fullmatch(name):
        return StepMark(PREFIXES[0], int(match[1]))
    if match := _VLLM.fullmatch(name):
        prompts, answers = int(match[1]), int(match[3])
        phase = ("mixed" if answers else "prefill") if prompts else ("decode" if answers else None)
        return StepMark(PREFIXES[1], None, phase, sum(_tokens(text) for text in (match[2], match[4])))
    if match := _SGLANG.fullmatch(name):
        mode, requests, tokens = match.groups()
        counted = tokens if tokens is not None else requests if mode == "DECODE" else None
        return StepMark(PREFIXES[2], None, _PHASES.get(mode, mode.lower()), None if counted is None else int(counted))
    return None


def _tokens(text: str) -> int:
    """The tokens of requests: the first number, whatever follows about their squares."""
    found = _FIRST_NUMBER.search(text)
    return int(found[0]) if found else 0


def marked(slices: pl.DataFrame) -> pl.DataFrame:
    """The slices that mark a step, not the device's copies of them, with `phase` and `tokens`."""
    begins = pl.any_horizontal(pl.col("kernel").str.starts_with(prefix) for prefix in PREFIXES)
    # one after the other: most rows are of another kind, or belong to no step
    rows = slices.lazy().filter(pl.col("step").is_not_null()).filter(pl.col("kind").is_in(["derived", "host"]))
    columns = ("kernel", "start", "dur", "step", *(column for column in ("cat",) if column in slices.columns))
    found = rows.filter(begins).select(columns).collect()
    marks = [step_mark(name) for name in found["kernel"]]
    found = found.with_columns(
        pl.Series("phase", [mark and mark.phase for mark in marks], dtype=pl.String),
        pl.Series("tokens", [mark and mark.tokens for mark in marks], dtype=pl.Int64),
    ).filter(pl.Series([mark is not None for mark in marks], dtype=pl.Boolean))
    return found.filter(pl.col("cat").cast(pl.String) != ON_DEVICE) if "cat" in found.columns else found


def numbered(names: Sequence[str]) -> list[int | None]:
    """The steps of annotations in the order of their starts; None for those that are another's inside.

    One spelling counts: that with most marks, since a profiler's step may hold many of a server. Steps without a number
    are counted from 0; a number that comes twice is one step.
    """
    marks = [step_mark(name) for name in names]
    spellings = [mark.spelling for mark in marks if mark is not None]
    chosen = max(PREFIXES, key=spellings.count) if spellings else None
    steps: list[int | None] = []
    count = 0
    for mark in marks:
        ours = mark is not None and mark.spelling == chosen
        steps.append((count if mark.number is None else mark.number) if mark is not None and ours else None)
        count += ours
    return steps


# edges from a host's call to what it put on a stream: CUDA's and ROCm's by their flows, or by correlation; CANN's
LAUNCHES = ("ac2g", "async_cpu_to_gpu", "async_gpu", "launch", "HostToDevice")
FURTHER_LAUNCHES = ("torch_to_npu",)  # from the framework's call, which a queue may part from the launch itself
QUEUE_ORDERS = re.compile(
    r"^(EVENT_|PROFILING_|TASK_|MODEL_|NOTIFY|Notify|STREAM_|FUSION_|CAPTURE_|WRITE_VALUE|Write Value"
    r"|(?:stream_)?(?:event_)?wait(?:_event)?$|event_record$)"
)

# our column -> the source's, in kernel tables and in the profiler's database
SHAPES = {"input_shapes": ("Input Shapes", "inputShapes"), "output_shapes": ("Output Shapes", "outputShapes")}
WORDS = {
    "input_dtypes": ("Input Data Types", "inputDataTypes"),
    "output_dtypes": ("Output Data Types", "outputDataTypes"),
    "input_formats": ("Input Formats", "inputFormats"),
    "output_formats": ("Output Formats", "outputFormats"),
}
_UNKNOWN_WORDS = ["N/A", "UNDEFINED", "NULL", ""]


def with_tensors(slices: pl.DataFrame) -> pl.DataFrame:
    """The slices with input_ and output_ shapes, dtypes and formats as lists, a slot per tensor.

    Shapes are lists of int; dtypes and formats lose the prefixes `DT_` and `FORMAT_` of some generations and
    are null where the table has none, or garbage such as 65534. Null for rows without tensors.
    """
    columns = [_shapes(_column(slices, ours)).alias(ours) for ours in SHAPES]
    columns += [_words(_column(slices, ours)).alias(ours) for ours in WORDS]
    return slices.with_columns(columns)


def source_column(slices: pl.DataFrame, ours: str) -> str | None:
    """The source's name of one of our columns, such as input_shapes; None where the capture does not have it."""
    return next((name for name in {**SHAPES, **WORDS}[ours] if name in slices.columns), None)


def slots(text: str) -> list[tuple[int, ...]]:
    """The shapes in one cell; empty where a slot is, or where it is not made of numbers."""
    return [_numbers(slot.split(",")) for slot in text.strip().strip('"').split(";")]


def _numbers(words: list[str]) -> tuple[int, ...]:
    return tuple(map(int, words)) if all(word.strip().isdecimal() for word in words) else ()


def _column(slices: pl.DataFrame, ours: str) -> pl.Expr:
    found = source_column(slices, ours)
    if found is None:
        return pl.lit(None, dtype=pl.String)
    text = pl.col(found).str.strip_chars()
    return pl.when(text != "N/A").then(text.str.strip_chars('"'))


def _shapes(text: pl.Expr) -> pl.Expr:
    numbers = pl.element().str.split(",").list.eval(pl.element().cast(pl.Int64, strict=False)).list.drop_nulls()
    return text.str.split(";").list.eval(numbers)


def _words(text: pl.Expr) -> pl.Expr:
    word = pl.element().str.strip_prefix("DT_").str.strip_prefix("FORMAT_")
    garbage = word.is_in(_UNKNOWN_WORDS) | word.str.contains(r"^\d+$")
    return text.str.split(";").list.eval(pl.when(~garbage).then(word))
