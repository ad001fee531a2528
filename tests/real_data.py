"""Where the real captures lie: too large and not ours to give, so beside the project, or where NPUSCOPE_DATA says.

Tests that need them skip elsewhere, with this as the reason; benchmarks say what they lack.
"""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(os.environ.get("NPUSCOPE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
