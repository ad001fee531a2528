"""The named constants of the language."""

from __future__ import annotations

from enum import Enum

Role = Enum("Role", {"Orchestrator": "orchestrator", "Worker": "worker", "SubWorker": "subworker"})
AtomicType = Enum("AtomicType", {"None_": "none", "Add": "add"})
SplitMode = Enum("SplitMode", {"NONE": "none", "UP_DOWN": "up_down", "LEFT_RIGHT": "left_right"})
ForKind = Enum("ForKind", {"Sequential": "range", "Parallel": "parallel", "Unroll": "unroll", "Pipeline": "pipeline"})
ScopeMode = Enum("ScopeMode", {"AUTO": "auto", "MANUAL": "manual"})
TensorLayout = Enum("TensorLayout", ("ND", "DN", "NZ", "MX_A_ZZ", "MX_B_NN"))
CompactMode = Enum("CompactMode", ("null", "normal"))
TileLayout = Enum("TileLayout", {"none_box": 0, "row_major": 1, "col_major": 2})
PipeType = Enum("PipeType", ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX", "ALL"))
KernelType = Enum("KernelType", {"AIC": "aic_only", "AIV": "aiv_only", "MIX": "mix"})
SyncAllMode = Enum("SyncAllMode", {"HARD": "hard", "SOFT": "soft"})
CachePolicy = Enum("CachePolicy", {"DEFAULT": "default", "BYPASS": "bypass"})
AccPhase = Enum("AccPhase", {"Unspecified": "unspecified", "Partial": "partial", "Final": "final"})
STPhase = Enum("STPhase", {"Unspecified": "unspecified", "Partial": "partial", "Final": "final"})
FunctionType = Enum(
    "FunctionType", ("Opaque", "InCore", "Orchestration", "Inline", "AIC", "AIV", "Group", "Spmd", "Extern", "Graph")
)


class Level(Enum):
    """What a region or a function is for, from a core to all racks; those of one value are the same."""

    AIV = "aiv"
    AIC = "aic"
    CORE = "core"
    CORE_GROUP = "core_group"
    CHIP_DIE = L2CACHE = "chip_die"
    CHIP = PROCESSOR = UMA = "chip"
    HOST = NODE = "host"
    CLUSTER_0 = POD = "cluster_0"
    CLUSTER_1 = CLOS1 = "cluster_1"
    CLUSTER_2 = CLOS2 = "cluster_2"
    GLOBAL = "global"


class MemorySpace(Enum):
    """Where a tile lives. DDR is GM, and SRAM for us a part of it; Vec the unified buffer; Mat is L1; Left, Right, Acc
    are L0A, L0B, L0C.
    """

    DDR = "GM"
    SRAM = "SRAM"
    Vec = "Vec"
    Mat = "Mat"
    Left = "Left"
    Right = "Right"
    Acc = "Acc"
    Bias = "Bias"
    LeftScale = "LeftScale"
    RightScale = "RightScale"
    ScalarLocal = "ScalarLocal"


class PadValue(Enum):
    """`min` and `max` are the finite extremes of the tile's data type."""

    null = "null"
    zero = "zero"
    min = "min"
    max = "max"


class MaskPattern:
    """Which columns a mask keeps: P0101 the even ones (0, 2, …), P1010 the odd, 3 to 6 every fourth, 7 all."""

    P0101 = 1
    P1010 = 2
    P0001 = 3
    P0010 = 4
    P0100 = 5
    P1000 = 6
    P1111 = 7


class NotifyOp(Enum):
    """How a signal reaches a peer's counter."""

    AtomicAdd = "add"
    Set = "set"


class ReduceOp(Enum):
    """How a collective combines what the ranks hold."""

    Sum = "sum"
    Max = "max"
    Min = "min"
    Prod = "prod"


class WaitCmp(Enum):
    """When a counter is what a rank waits for."""

    Eq = "eq"
    Ge = "ge"
