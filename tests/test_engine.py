"""Work in processes: an interrupt ends it at once, whatever is still to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from patience import becomes

ROOT = Path(__file__).resolve().parents[1]
# Each piece leaves a file when it begins and would take a minute.
SCRIPT = """import sys

from pool_jobs import touch_and_sleep

from npuscope.base.pool import Workers, run

try:
    list(run(touch_and_sleep, sys.argv[1:], Workers(jobs=2)))
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interrupt_ends_the_work_in_progress(tmp_path: Path) -> None:
    # GIVEN two pieces at work and four to come
    script, files = tmp_path / "pieces.py", [tmp_path / f"{n}" for n in range(6)]
    script.write_text(SCRIPT)
    words = [sys.executable, str(script), *map(str, files)]
    path = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    process = subprocess.Popen(words, env=path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert becomes(lambda: sum(file.exists() for file in files) == 2)
        # WHEN the user interrupts the parent THEN it is over at once and nothing is said
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 130
    assert said == ""
    assert sum(file.exists() for file in files) == 2
