"""What the kernels take and give: arrays of any compute type, and numbers beside them."""

from __future__ import annotations

import numpy.typing as npt

from npuscope.ops.dtypes import Element

Array = npt.NDArray[Element]
Number = int | float | Element
Value = Array | Number
