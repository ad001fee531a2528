"""The data types of the tile language: what a tensor stores, and the array type its tiles are computed in.

GM holds a tensor in its *storage* type (bf16 through ml_dtypes). On chip a tile of a small type lives in a wider
*compute* array that holds exactly the values the small type can: float32 for bf16, fp16, int8 and uint8. So a cast
from bf16 to fp32 costs nothing, a matmul needs no conversion, and rounding happens once, at each op's output, as on
the chip.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

Element = np.bool_ | np.number
Array = npt.NDArray[Element]


@dataclass(frozen=True)
class DataType:
    """One data type: its name in programs, bytes of an element of our arrays, array types in GM and on chip (None: a
    handle, no data), whether a chip keeps two to a byte.
    """

    name: str
    bytes: int
    storage: np.dtype[Element] | None
    compute: np.dtype[Element] | None
    halved: bool = False
    pairs: bool = False  # an element is a byte with two FP4 in it

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_float(self) -> bool:
        return self.name.startswith(("FP", "BF", "HF")) and not self.pairs

    @property
    def is_int(self) -> bool:
        return self.storage is not None and not self.is_float

    @property
    def width(self) -> float:
        """Bytes of an element in the memory of a chip, where two of half a byte share one."""
        return 0.5 if self.halved else self.bytes

    def size(self, elements: int) -> int:
        """Bytes of so many elements in the memory of a chip."""
        return -(-elements // 2) if self.halved else elements * self.bytes

    def get_byte(self) -> int:
        """What programs ask for the bytes of an element."""
        return self.bytes

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest value, ints of a type of whole numbers, else floats."""
        assert self.storage is not None
        if self.storage.kind == "b":
            return 0, 1
        found = (ml_dtypes.finfo if self.is_float else ml_dtypes.iinfo)(self.storage)
        number = float if self.is_float else int
        return number(found.min), number(found.max)

    @property
    def steers(self) -> bool:
        """Whether lengths, tables and work lists are kept in it: `shapes` mode computes these whole numbers and no
        others.
        """
        return self.is_int and self.bytes >= 4


def _type(name: str, storage: str, compute: str, halved: bool = False) -> DataType:
    return DataType(name, np.dtype(storage).itemsize, np.dtype(storage), np.dtype(compute), halved)


FP32 = _type("FP32", "float32", "float32")
FP16 = _type("FP16", "float16", "float32")
BF16 = _type("BF16", ml_dtypes.bfloat16.__name__, "float32")
INT8 = _type("INT8", "int8", "float32")
UINT8 = _type("UINT8", "uint8", "float32")
INT16 = _type("INT16", "int16", "int32")
UINT16 = _type("UINT16", "uint16", "int32")
INT32 = _type("INT32", "int32", "int32")
UINT32 = _type("UINT32", "uint32", "uint32")
INT64 = _type("INT64", "int64", "int64")
UINT64 = _type("UINT64", "uint64", "uint64")
INDEX = _type("INDEX", "int64", "int64")
BOOL = _type("BOOL", "bool", "bool")
FP8E4M3FN = _type("FP8E4M3FN", ml_dtypes.float8_e4m3fn.__name__, "float32")
FP8E5M2 = _type("FP8E5M2", ml_dtypes.float8_e5m2.__name__, "float32")
FP8E8M0 = _type("FP8E8M0", ml_dtypes.float8_e8m0fnu.__name__, "float32")  # a scale: powers of two
FP4 = _type("FP4", ml_dtypes.float4_e2m1fn.__name__, "float32", halved=True)
INT4 = _type("INT4", ml_dtypes.int4.__name__, "float32", halved=True)
UINT4 = _type("UINT4", ml_dtypes.uint4.__name__, "float32", halved=True)
FP4E2M1X2 = DataType("FP4E2M1X2", 1, np.dtype("uint8"), np.dtype("float32"), pairs=True)
HF4 = DataType("HF4", 1, None, None, halved=True)  # declared by the language; which values they have is not public
HF8 = DataType("HF8", 1, None, None)
TASK_ID = DataType("TASK_ID", 8, None, None)

SMALL_FLOATS = (FP8E4M3FN, FP8E5M2, FP8E8M0, FP4)
SMALL_WHOLES = (INT4, UINT4)
HALF_BYTES = (FP4, INT4, UINT4)
WHOLES = (INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, INDEX, BOOL, *SMALL_WHOLES)
ALL = (FP32, FP16, BF16, *WHOLES, *SMALL_FLOATS, FP4E2M1X2, HF4, HF8, TASK_ID)
BY_NAME = {dtype.name: dtype for dtype in ALL}
_BY_STORAGE: dict[object, DataType] = {
    dtype.storage: dtype for dtype in ALL if dtype.storage is not None and dtype not in (INDEX, FP4E2M1X2)
}


def unpacked(carrier: Array, dtype: DataType) -> Array:
    """Elements of half a byte, one to a byte, of bytes that hold two, the first in the low bits."""
    assert dtype.storage is not None
    halves = carrier.view(np.uint8)
    both = np.stack((halves & 15, halves >> 4), axis=-1).reshape(*carrier.shape[:-1], 2 * carrier.shape[-1])
    signed = ((both ^ 8) - 8).view(np.int8) if dtype is INT4 else both  # whole numbers go by value, not by bits
    return both.view(dtype.storage) if dtype is FP4 else signed.astype(dtype.storage)


def packed(array: Array, carrier: Array) -> None:
    """Writes elements of half a byte back into the bytes that hold two."""
    codes = array.view(np.uint8) if array.dtype == FP4.storage else array.astype(np.int8).view(np.uint8) & 15
    carrier.view(np.uint8)[...] = codes[..., 0::2] | (codes[..., 1::2] << 4)


def of_storage(storage: npt.DTypeLike) -> DataType | None:
    """The tile type of a NumPy dtype, or None where the language has none."""
    return _BY_STORAGE.get(np.dtype(storage))


Number = int | float | Element
Value = Array | Number
