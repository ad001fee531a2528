"""The code of a notebook as one text of Python whose lines have the numbers that they have in the file.

An `.ipynb` is JSON with a string per line of code, so that a line of code is a line of the file: errors, findings and
sources can name it. Lines for the notebook's own shell (`%timeit`, `!pip`) are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from npuscope.base.errors import BadInput

SUFFIX = ".ipynb"


def is_notebook(file: str | Path) -> bool:
    return str(file).endswith(SUFFIX)


def code_of(file: str | Path) -> str:
    """The code of a notebook."""
    return _read(str(file), Path(file).read_bytes())[0]


def left_out(file: str | Path) -> int:
    """How many lines are not Python but the notebook's."""
    return _read(str(file), Path(file).read_bytes())[1]


@lru_cache(maxsize=8)
def _read(file: str, data: bytes) -> tuple[str, int]:
    try:
        text = data.decode("utf-8")
        cells = json.loads(text)["cells"]
        sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        code = [one.splitlines(keepends=True) if isinstance(one, str) else [*map(str, one)] for one in sources]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"not a notebook: {error}", path=file) from None
    raw = text.splitlines()
    lines: list[str] = []
    dropped = 0
    place = 0
    for cell in code:
        whole = bool(cell) and cell[0].startswith("%%") and not cell[0].startswith(("%%time", "%%capture"))
        for line in cell:
            found = next((n for n in range(place, len(raw)) if _holds(raw[n], line)), None)
            if found is not None and found >= len(lines):
                lines += [""] * (found - len(lines))
                place = found + 1
            shell = whole or line.lstrip().startswith(("%", "!"))
            dropped += shell and bool(line.strip())
            lines.append(_blank(line) if shell else line.rstrip("\n"))
    return "\n".join(lines) + "\n", dropped


def _holds(raw: str, line: str) -> bool:
    return any(form in raw for form in _forms(line))


def _forms(line: str) -> Iterator[str]:
    """How a file may write a line of code."""
    yield json.dumps(line)
    yield json.dumps(line, ensure_ascii=False)


def _blank(line: str) -> str:
    """A line that does nothing, where a block may need one."""
    return f"{line[: len(line) - len(line.lstrip())]}pass"
