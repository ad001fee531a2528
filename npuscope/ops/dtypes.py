"""The data types of the tile language: what a tensor stores, and the array type its tiles are computed in.

GM holds a tensor in its *storage* type (bf16 through ml_dtypes). On chip a tile of a small type lives in a wider
*compute* array that holds exactly the values the small type can: float32 for bf16, fp16, int8 and uint8. So a cast
from bf16 to fp32 costs nothing, a matmul needs no conversion, and rounding happens once, at each op's output, as on
the chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DataType:
    """One data type: its name in programs, bytes of an element, array types in GM and on chip (None: a handle, no
    data).
    """

    name: str
    bytes: int
    storage: np.dtype[Any] | None
    compute: np.dtype[Any] | None

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_float(self) -> bool:
        return self.name.startswith(("FP", "BF"))

    @property
    def is_int(self) -> bool:
        return self.storage is not None and not self.is_float

    @property
    def steers(self) -> bool:
        """Whether lengths, tables and work lists are kept in it: `shapes` mode computes these whole numbers and no
        others.
        """
        return self.is_int and self.bytes >= 4


def _type(name: str, storage: Any, compute: Any) -> DataType:
    return DataType(name, np.dtype(storage).itemsize, np.dtype(storage), np.dtype(compute))


FP32 = _type("FP32", np.float32, np.float32)
FP16 = _type("FP16", np.float16, np.float32)
BF16 = _type("BF16", ml_dtypes.bfloat16, np.float32)
INT8 = _type("INT8", np.int8, np.float32)
UINT8 = _type("UINT8", np.uint8, np.float32)
INT16 = _type("INT16", np.int16, np.int32)
UINT16 = _type("UINT16", np.uint16, np.int32)
INT32 = _type("INT32", np.int32, np.int32)
UINT32 = _type("UINT32", np.uint32, np.uint32)
INT64 = _type("INT64", np.int64, np.int64)
UINT64 = _type("UINT64", np.uint64, np.uint64)
INDEX = _type("INDEX", np.int64, np.int64)
BOOL = _type("BOOL", np.bool_, np.bool_)
TASK_ID = DataType("TASK_ID", 8, None, None)

ALL = (FP32, FP16, BF16, INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, INDEX, BOOL, TASK_ID)
BY_NAME = {dtype.name: dtype for dtype in ALL}
_BY_STORAGE = {dtype.storage: dtype for dtype in ALL if dtype.storage is not None and dtype is not INDEX}


def of_storage(storage: Any) -> DataType | None:
    """The tile type of a NumPy dtype, or None where the language has none."""
    return _BY_STORAGE.get(np.dtype(storage))
