"""Two runs compared, for the panel of that name."""

from __future__ import annotations

from npuscope.explain.comparison import Comparison
from npuscope.lab.payload.overview import heads


def comparison(names: tuple[str, str], found: Comparison) -> dict[str, object]:
    """What `npuscope compare --json` has, with the columns of its tables."""
    return {**found.as_dict(), "names": list(names), "columns": heads(found.tables().values())}
