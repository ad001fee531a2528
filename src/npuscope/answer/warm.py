"""What a warm process has loaded: all that records, checks and simulates a program, and the compiled simulator."""

from __future__ import annotations

import contextlib
import io
import statistics  # noqa: F401 (loaded here and not by every job)

from npuscope.check.checked import check
from npuscope.time.compiled import switch
from npuscope.time.run import simulate
from npuscope.time.uncertainty import known_misses
from npuscope.time.warm_up import smallest_run


def warm_up() -> None:
    """Runs the smallest program once, so that machine code, tables and caches are there before the first job."""
    with contextlib.redirect_stdout(io.StringIO()):
        program = smallest_run()
        check(program)
        known_misses()
        simulate(program)


def refresh() -> None:
    """Between jobs: machine code that was compiled meanwhile is loaded once and here."""
    if switch():
        with contextlib.redirect_stdout(io.StringIO()):
            simulate(smallest_run())
