"""A command loads what it uses: start-up is part of the product, and modules are counted, never seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from npuscope.trace.example import write_decode_steps

LOADED = """
import contextlib, io, sys
from npuscope.cli import main
sys.argv[:] = ["npuscope", *sys.argv[1:]]
try:
    with contextlib.redirect_stdout(io.StringIO()):
        main()
except SystemExit as left:
    assert not left.code, left.code
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("npuscope.")}
print(*sorted(rooms), *({"numba", "scipy", "polars", "starlette", "mcp", "rich", "pydantic"} & set(sys.modules)))
"""
ALWAYS = {"base", "cli", "table"}
CAPTURES = ALWAYS | {"chip", "trace", "explain", "report", "polars"}
PROGRAMS = CAPTURES | {"models", "ops", "tile", "lower", "check"}
PREDICTED = PROGRAMS | {"time", "answer"}
ALLOWED = {
    "--help": ALWAYS,
    "device list": ALWAYS | {"chip", "report", "trace", "polars", "pydantic"},
    "models": ALWAYS | {"models", "pydantic"},
    "formats": ALWAYS | {"chip", "trace", "polars"},
    "info CAPTURE": CAPTURES,
    "doctor CAPTURE": CAPTURES,
    "report CAPTURE": CAPTURES,
    "compare CAPTURE CAPTURE": CAPTURES | {"lab"},
    "whatif CAPTURE": CAPTURES | {"lab"},
    "forward CAPTURE": CAPTURES | {"lab"},
    "convert CAPTURE OUT.json": ALWAYS | {"chip", "trace", "polars"},
    "run model:basics/gemm": PROGRAMS,
    "memory model:basics/gemm": PREDICTED,
}


@pytest.mark.parametrize("command", ALLOWED)
def test_a_command_loads_no_room_that_it_has_no_business_in(command: str, tmp_path: Path) -> None:
    capture = tmp_path / "kernel_details.csv"
    write_decode_steps(capture)
    words = command.replace("CAPTURE", str(capture)).replace("OUT", str(tmp_path / "out")).split()
    env = {**os.environ, "NPUSCOPE_ENGINE": ""}  # as users have it
    ran = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=False, env=env)
    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.split()) - ALLOWED[command] == set()


def test_whoever_loads_polars_has_told_its_allocator_before() -> None:
    code = "import os, sys, npuscope; print('polars' in sys.modules, '_RJEM_MALLOC_CONF' in os.environ)"
    env = {name: value for name, value in os.environ.items() if name != "_RJEM_MALLOC_CONF"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert ran.stdout.split() == ["False", "True"]
