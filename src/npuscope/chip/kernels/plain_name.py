"""Names of kernels without what frameworks and compilers add: MatMulV3 and aclnnMatmul_…_MatMulV2 are `matmul`."""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST = 4_000  # characters that are looked at: template arguments may go on for more
_TEMPLATE = re.compile(r"(?<=.)[<(\[].*", re.DOTALL)
_OVERLOADS = {"default", "Tensor", "Scalar", "out", "int", "dim", "dim_IntList", "Tensor_out", "Tensor_mode", "self"}
_INSTANCE = re.compile(r"(_+\d+)+_*$|_+$")
_MTIA = re.compile(r"-dtype_\w+(-\w+)*$")  # aten::add.out-dtype_Float-extraKey_1
_VERSION = re.compile(r"v\d+$")
_TAILS = ("_mix_aic", "_mix_aiv", "kernel", "Kernel", "_nd", "Nd", "AiCore", "Aicore", "Custom")


def stem(name: str) -> str:
    """A name without namespace, overload, template arguments, instance number and version; its case is kept."""
    bare = name[:LONGEST].replace("(anonymous namespace)::", "").removeprefix("void ")
    bare = _MTIA.sub("", _TEMPLATE.sub("", bare).strip())
    bare = bare.split("::")[-1] or name.strip()
    parts = [part for part in bare.split(".") if part]
    while len(parts) > 1 and parts[-1] in _OVERLOADS:
        parts.pop()
    bare = parts[-1] if parts else bare
    bare = _INSTANCE.sub("", bare) or bare
    if bare.startswith("aclnn") and "_" in bare:
        bare = bare.rpartition("_")[2]
    for _ in range(2):  # mla_preprocess_0_mix_aic: a tail, then a number
        for tail in _TAILS:
            if len(bare) > len(tail) and bare.endswith(tail):
                bare = bare[: -len(tail)]
        bare = _INSTANCE.sub("", bare) or bare
    return re.sub(r"_?[Vv]\d+$", "", bare) or bare


@lru_cache(maxsize=65536)
def plain(name: str) -> str:
    """The stem in small letters and digits, which the table's whole names are held against."""
    letters = re.sub(r"[^a-z0-9]", "", stem(name).lower())
    return _VERSION.sub("", letters) or letters or name
