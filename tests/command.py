"""The command line through its real entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def npuscope(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("npuscope")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **environment})
