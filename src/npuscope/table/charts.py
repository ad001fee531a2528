"""The data that a chart is made of. `lab/page/chart.js` has a function for each `chart`.

Words come from captures and programs and stay words; colours are the page's: data has numbers of groups.
"""

from __future__ import annotations

from typing import TypeAlias

Spec: TypeAlias = dict[str, object]


def axis(title: str, form: str = "number", log: bool = False) -> Spec:
    """`form`: how ticks read (ns, ms, si, number)."""
    return {"title": title, "form": form, "log": log}
