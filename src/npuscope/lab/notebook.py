"""The app inside a notebook: `npuscope.show(trace)` shows timeline, diagnosis and panels in the cell."""

from __future__ import annotations

from html import escape

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.explain.comparison import Comparison
from npuscope.explain.explanation import Explanation, explain
from npuscope.lab.document import page
from npuscope.lab.runs import compare_document, report_document
from npuscope.trace.core import Trace

HEIGHT = 640  # pixels


@dataclass(frozen=True, repr=False)
class Cell:
    """A page of the app; a notebook shows it, and `save` writes it as a file that opens by itself."""

    title: str
    html: str
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        inside = f'srcdoc="{escape(self.html, quote=True)}" sandbox="allow-scripts"'
        looks = f'width="100%" height="{self.height}" style="border:0"'
        return f'<iframe title="{escape(self.title)}" {inside} {looks}></iframe>'

    def __repr__(self) -> str:
        return f"{self.title}: a page of the lab; a notebook shows it, save(path) writes it"

    def save(self, path: str) -> None:
        """Writes the page as one offline file, whole or not at all."""
        from pathlib import Path

        from npuscope.trace.writers.atomic import whole_file

        with whole_file(Path(path)) as file:
            file.write(self.html.encode())


def show(what: Trace | Explanation | Comparison, name: str = "run", height: int = HEIGHT) -> Cell:
    """A trace, what was explained of one, or a comparison of two, as a page in the notebook's cell."""
    if isinstance(what, Trace):
        what = explain(what)
    if isinstance(what, Explanation):
        return Cell(name, page(report_document(name, what)), height)
    if isinstance(what, Comparison):
        return Cell("A against B", page(compare_document(("A", "B"), what)), height)
    raise NpuscopeError(f"show takes a trace, an explanation or a comparison, not {type(what).__name__}")
