"""Random inputs that come out the same every time.

Each input is drawn from a generator seeded with (seed, its name), so adding an input or leaving one out changes no
other. The seed is `seed=`, else the environment's NPUSCOPE_SEED, else 0. NumPy users get the generator as the
argument of `init_value`; for torch users the global generator is seeded. A script that has called `torch.manual_seed`
itself keeps its own stream untouched, unless `seed=` or NPUSCOPE_SEED asks otherwise. NumPy's old global generator
(`np.random.rand`) is left alone.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass

import numpy as np

from npuscope.base.errors import NpuscopeError
from npuscope.tile.golden.misuse import misuse, told
from npuscope.tile.values.user_torch import torch_module

VARIABLE = "NPUSCOPE_SEED"
DEFAULT = 0
BY_HAND = 1 << 32  # torch seeds itself with 53 or 64 random bits; people write smaller numbers
OURS = 1 << 40  # added to our seeds of torch, which looks at the low 32 bits: they are not taken for a script's own


@dataclass(frozen=True)
class Seed:
    """A seed; `asked` if somebody chose it, so that it goes before a script's own."""

    value: int
    asked: bool

    def generator(self, name: str) -> np.random.Generator:
        """The generator of the input of this name."""
        return np.random.default_rng(self._words(name))

    def before(self, name: str) -> None:
        """Seed torch, where it is used, for the input of this name."""
        torch = torch_module()
        if torch is not None and not self.leaves_torch_alone():
            torch.manual_seed(OURS + int(np.random.SeedSequence(self._words(name)).generate_state(1)[0]))

    def leaves_torch_alone(self) -> bool:
        """Whether the script has seeded torch itself and nobody asked for another seed."""
        return not self.asked and script_seeded_torch()

    def _words(self, name: str) -> list[int]:
        return [self.value, zlib.crc32(name.encode())]


def chosen(seed: int | None = None) -> Seed:
    """The seed to use: the argument, else the environment's, else the default."""
    if seed is not None:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise misuse(f"seed must be a whole number from 0, not {told(seed)}")
        return Seed(int(seed), asked=True)
    text = os.environ.get(VARIABLE)
    if text is None:
        return Seed(DEFAULT, asked=False)
    if not text.strip().isdecimal():
        raise NpuscopeError(f"{VARIABLE} is '{text}', no whole number from 0")
    return Seed(int(text), asked=True)


def script_seeded_torch() -> bool:
    """Whether torch's global generator was given a seed by hand."""
    torch = torch_module()
    return torch is not None and 0 <= torch.initial_seed() < BY_HAND
