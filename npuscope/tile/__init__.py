"""The tile language of PyPTO, run on the CPU and recorded: `import npuscope.tile as pl`.

A function under `@pl.jit` executes when it is called, with the chip's numerics, on NumPy arrays or torch tensors;
`record` returns what it did.
"""

from __future__ import annotations

from npuscope.tile.language.namespace import language as _language

globals().update(_language())


def __getattr__(name: str) -> object:
    from npuscope.tile.language.namespace import late

    return late("pl", name, globals())
