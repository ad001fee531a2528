"""The named constants of the language."""

from __future__ import annotations

import enum


class MemorySpace(enum.Enum):
    """Where a tile lives. DDR is GM; Vec the unified buffer; Mat is L1; Left, Right, Acc are L0A, L0B, L0C."""

    DDR = "GM"
    Vec = "Vec"
    Mat = "Mat"
    Left = "Left"
    Right = "Right"
    Acc = "Acc"
    Bias = "Bias"
    LeftScale = "LeftScale"
    RightScale = "RightScale"


class Level(enum.Enum):
    HOST = "host"
    CHIP = "chip"
    CORE_GROUP = "core_group"
    CORE = "core"


class Role(enum.Enum):
    Orchestrator = "orchestrator"
    Worker = "worker"
    SubWorker = "subworker"


class PadValue(enum.Enum):
    """`min` and `max` are the finite extremes of the tile's data type."""

    null = "null"
    zero = "zero"
    min = "min"
    max = "max"


class AtomicType(enum.Enum):
    None_ = "none"
    Add = "add"


class SplitMode(enum.Enum):
    NONE = "none"
    UP_DOWN = "up_down"
    LEFT_RIGHT = "left_right"


class FunctionType(enum.Enum):
    Opaque = "opaque"
    InCore = "incore"
    Orchestration = "orchestration"
    Inline = "inline"
    AIC = "aic"
    AIV = "aiv"
    Group = "group"
    Spmd = "spmd"
    Extern = "extern"


class ForKind(enum.Enum):
    Sequential = "range"
    Parallel = "parallel"
    Unroll = "unroll"
    Pipeline = "pipeline"


class ScopeMode(enum.Enum):
    AUTO = "auto"
    MANUAL = "manual"


class TensorLayout(enum.Enum):
    ND = "nd"
    DN = "dn"
    NZ = "nz"


class TileLayout(enum.Enum):
    none_box = 0
    row_major = 1
    col_major = 2


class PipeType(enum.Enum):
    S = "S"
    V = "V"
    M = "M"
    MTE1 = "MTE1"
    MTE2 = "MTE2"
    MTE3 = "MTE3"
    FIX = "FIX"
    ALL = "ALL"


class MaskPattern:
    """Which columns a mask keeps: P0101 the even ones (0, 2, …), P1010 the odd, 3 to 6 every fourth, 7 all."""

    P0101 = 1
    P1010 = 2
    P0001 = 3
    P0010 = 4
    P0100 = 5
    P1000 = 6
    P1111 = 7


class NotifyOp(enum.Enum):
    """How a signal reaches a peer's counter."""

    AtomicAdd = "add"
    Set = "set"


class WaitCmp(enum.Enum):
    """When a counter is what a rank waits for."""

    Eq = "eq"
    Ge = "ge"
