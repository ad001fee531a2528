"""The tile language of PyPTO, run on the CPU and recorded: `import npuscope.tile as pl`.

A function under `@pl.jit` executes when it is called, with the chip's numerics, on NumPy arrays or torch tensors;
`record` returns what it did.
"""

from __future__ import annotations

from typing import Any

from npuscope.tile.calls import spellings as _operators  # noqa: F401  gives tensors and tiles their operators
from npuscope.tile.distributed.ranks import host as _host
from npuscope.tile.distributed.ranks import sub_worker as _sub_worker
from npuscope.tile.language.functions import jit as _jit
from npuscope.tile.language.namespace import language as _language
from npuscope.tile.language.namespace import late as _late

_jit.host, _jit.sub_worker = (
    _host,
    _sub_worker,
)  # functions of the language do not know of ranks, which are made of them
globals().update(_language())


def __getattr__(name: str) -> Any:
    """`Any`, because type checkers then take `pl.Tensor[[M, N], pl.BF16]` and the rest of the language as they are."""
    return _late("pl", name, globals())
