"""A device file that inherits from another and names only what differs, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping

from npuscope.chip.devices.chip import Constant


def heir(name: str, title: str, inherits: str, timing: Mapping[str, Constant]) -> str:
    """TOML with other constants of [timing], each with its source. `inherits`: a known device, or a file's path."""
    lines = [f"name = {_text(name)}", f"title = {_text(title)}", f"inherits = {_text(inherits)}", "", "[timing]"]
    for place, c in timing.items():
        known = f'unit = {_text(c.unit)}, confidence = "{c.confidence}", source = {_text(c.source)}'
        lines.append(f"{place} = {{ value = {c.value!r}, {known} }}")
    return "\n".join(lines) + "\n"


def _text(words: str) -> str:
    """A basic string of TOML, which has the escapes of JSON."""
    return json.dumps(words, ensure_ascii=False).replace("\x7f", "\\u007f")
