"""Several ranks together, for the panel of that name; each of them is a run of the document."""

from __future__ import annotations

from npuscope.explain.ranks import Ranks
from npuscope.lab.payload.overview import heads


def ranks(found: Ranks) -> dict[str, object]:
    together, waits = found.together(), found.waits.heart()
    return {
        **found.diagnosis.as_dict(),
        "overview": found.overview,
        "waits_told": found.waits.title(),
        "what": found.what,
        "table": together.rows(),
        "waits": waits.rows(),
        "columns": heads([together, waits]),
    }
