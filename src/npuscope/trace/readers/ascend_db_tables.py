"""The tables of the Ascend profiler's database: which are read, which are known, and what kind their columns are of."""

from __future__ import annotations

import polars as pl

from npuscope.trace.readers.ascend_db_counters import SAMPLED, columns_of

# the tables read: columns that must be there, and among all columns those that are ids into STRING_IDS
TABLES = {
    "STRING_IDS": (["id", "value"], []),
    "TASK": (["startNs", "endNs", "deviceId", "globalTaskId", "streamId"], ["taskType"]),
    "COMPUTE_TASK_INFO": (
        ["globalTaskId", "name"],
        [
            *("name", "taskType", "opType", "attrInfo"),
            *("inputFormats", "inputDataTypes", "inputShapes"),
            *("outputFormats", "outputDataTypes", "outputShapes"),
        ],
    ),
    "COMMUNICATION_TASK_INFO": (["globalTaskId", "name", "taskType", "opId"], ["name", "taskType", "groupName"]),
    "COMMUNICATION_OP": (
        ["opName", "startNs", "endNs", "connectionId", "opId"],
        ["opName", "groupName", "algType", "opType"],
    ),
    "PYTORCH_API": (["startNs", "endNs", "globalTid", "name"], ["name", "inputDtypes", "inputShapes"]),
    "CANN_API": (["startNs", "endNs", "globalTid", "name"], ["name"]),
    "TASK_PMU_INFO": (["globalTaskId", "name", "value"], ["name"]),
    "CONNECTION_IDS": (["id", "connectionId"], []),
    "STEP_TIME": (["id", "startNs", "endNs"], []),
    "RANK_DEVICE_MAP": (["rankId"], []),
    "NPU_INFO": (["name"], []),
    **{name: (columns_of(sampled), list(sampled.text)) for name, sampled in SAMPLED.items()},
}  # fmt: skip
# known, and no part of a trace: names of numbers, memory by operator, call stacks, what other tools add
NOT_READ = {
    "SESSION_TIME_INFO", "HOST_INFO", "META_DATA", "NPU_OP_MEM", "OP_MEMORY", "PYTORCH_CALLCHAINS", "MSTX_EVENTS",
    "OVERLAP_ANALYSIS", "status_info", "connectionCats", "CommAnalyzerTime", "CommAnalyzerBandwidth",
    "CommAnalyzerMatrix", "StepTraceTime", "GC_RECORD", "STEP_INFO", "RANK_INFO",
}  # fmt: skip
# further columns of the tables that are read
FURTHER = {
    "TASK": {"connectionId", "globalPid", "taskType", "contextId", "taskId", "modelId"},
    "COMPUTE_TASK_INFO": {
        "blockDim", "mixBlockDim", "blockNum", "mixBlockNum", "taskType", "opType", "opState", "hf32Eligible",
        "attrInfo", "inputFormats", "inputDataTypes", "inputShapes", "outputFormats", "outputDataTypes", "outputShapes",
    },
    "COMMUNICATION_TASK_INFO": {
        "planeId", "groupName", "notifyId", "rdmaType", "srcRank", "dstRank", "transportType", "size", "dataType",
        "linkType", "bandwidth",
    },
    "COMMUNICATION_OP": {"groupName", "relay", "retry", "dataType", "algType", "count", "opType", "deviceId"},
    "PYTORCH_API": {
        "connectionId", "sequenceNumber", "fwdThreadId", "inputDtypes", "inputShapes", "callchainId", "type",
    },
    "CANN_API": {"type", "connectionId"},
    "RANK_DEVICE_MAP": {"deviceId"},
    "NPU_INFO": {"id"},
    "MEMORY_RECORD": {"streamPtr"},
}  # fmt: skip
_TEXT = {"STRING_IDS.value", "NPU_INFO.name"}  # columns that are text themselves
_REAL = {
    "TASK_PMU_INFO.value", "COMMUNICATION_OP.count",
    *(f"{name}.{column}" for name, sampled in SAMPLED.items() for column in sampled.values),
}  # fmt: skip
PRIVATE = {"callchainId"}  # leads to call stacks, which hold home folders


def kind_of(table: str, column: str) -> pl.DataType:
    """Numbers unless the column is known to be text or real; names of functions and shapes are ids too."""
    if f"{table}.{column}" in _TEXT:
        return pl.String()
    return pl.Float64() if f"{table}.{column}" in _REAL else pl.Int64()
