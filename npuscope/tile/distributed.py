"""Several ranks: `@pl.jit.host` and `pypto.language.distributed`. To come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuscope.tile.fault import Unsupported


def host(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    raise Unsupported("pl.jit.host is not supported yet")
