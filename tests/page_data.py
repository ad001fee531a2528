"""What a page holds: its document, read from its text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def document_in(page: Path) -> dict[str, Any]:
    """The document of a page of the app."""
    found: dict[str, Any] = json.loads(page.read_text().split('id="document">')[1].split("</script>")[0])
    return found


def charts_in(page: Path, panel: str) -> list[dict[str, Any]]:
    """What the charts of a report's panel are made of."""
    return [part["spec"] for part in document_in(page)["shared"][panel]["parts"] if part["part"] == "chart"]
