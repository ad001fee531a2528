"""What is used of Numba beyond its documented interface, so that the version that takes it away is told at once.

`_nrt=False` leaves its runtime out and `_cache.save_overload` keeps machine code; pyproject.toml bounds the versions.
"""

from __future__ import annotations

import numba
import pytest


def twice(x: int) -> int:
    return 2 * x


def test_a_function_compiles_without_numbas_runtime() -> None:
    try:
        made = numba.njit(_nrt=False, forceinline=True)(twice)  # type: ignore[call-overload]
        assert made(21) == 42
    except Exception as error:
        pytest.fail(f"Numba {numba.__version__} has no `_nrt=False` any more ({error}): see simulate/compiled.py")


def test_the_cache_of_a_function_saves_by_a_method_that_can_be_wrapped() -> None:
    made = numba.njit(cache=True)(twice)
    cache = getattr(made, "_cache", None)
    assert callable(getattr(cache, "save_overload", None)), (
        f"Numba {numba.__version__} has no `_cache.save_overload` any more: see simulate/compiled.py"
    )
    assert hasattr(numba.config, "CACHE_DIR"), f"Numba {numba.__version__} has no `config.CACHE_DIR` any more"
