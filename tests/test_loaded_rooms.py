"""A command loads what it uses: start-up is part of the product, and modules are counted, never seconds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from npuscope.cli import GROUPS
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
PAGES = PREDICTED | {"lab"}
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
    "gate CAPTURE --budget BUDGET": CAPTURES,
    "history RUNS": CAPTURES | {"time", "scipy"},
    "align --help": CAPTURES | {"forward", "lab"},
    "roofline --help": CAPTURES | {"forward", "lab"},
    "predict --help": CAPTURES | {"forward"},
    "step --help": CAPTURES,
    "sql --help": CAPTURES | {"lab"},
    "demo": CAPTURES | {"forward", "lab"},
    "run model:basics/gemm": PROGRAMS,
    "memory model:basics/gemm": PREDICTED,
    "check model:basics/gemm": PREDICTED | {"pydantic", "numba", "scipy"},  # Numba where machine code is kept
    "ops": PROGRAMS | {"time"},
    "guide": PREDICTED | {"agents"},
    "mcp --help": ALWAYS,
    "lsp --help": ALWAYS,
    "lab --help": PREDICTED,
    "view --help": PREDICTED,
    "judge --help": PREDICTED,
    "improve --help": PREDICTED,
    "tpot --help": PREDICTED | {"forward"},
    "calibrate --help": PREDICTED | {"scipy"},
    **dict.fromkeys(("rank --help", "sweep --help", "tune --help", "graph --help", "simulate --help"), PAGES),
    "collective --help": PAGES,
}


def test_every_command_says_what_it_loads() -> None:
    assert {command.split()[0] for command in ALLOWED} == {
        "--help",
        *(name for names in GROUPS.values() for name in names),
    }


@pytest.mark.parametrize("command", ALLOWED)
def test_a_command_loads_no_room_that_it_has_no_business_in(command: str, tmp_path: Path) -> None:
    capture = tmp_path / "kernel_details.csv"
    write_decode_steps(capture)
    budget, runs = tmp_path / "budget.toml", tmp_path / "runs.jsonl"
    budget.write_text('[[limit]]\nmetric = "wall_us"\nmax = 1e6\n')
    runs.write_text("".join(f'{{"commit": "a{n}", "wall_ns": 100, "kernels": {{"gemm": 60}}}}\n' for n in range(4)))
    places = {"CAPTURE": capture, "OUT": tmp_path / "out", "BUDGET": budget, "RUNS": runs}
    words = [re.sub("CAPTURE|OUT|BUDGET|RUNS", lambda word: str(places[word[0]]), part) for part in command.split()]
    env = {**os.environ, "NPUSCOPE_ENGINE": ""}  # as users have it
    ran = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=False, env=env)
    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.split()) - ALLOWED[command] == set()


def test_whoever_loads_polars_has_told_its_allocator_before() -> None:
    code = "import os, sys, npuscope; print('polars' in sys.modules, '_RJEM_MALLOC_CONF' in os.environ)"
    env = {name: value for name, value in os.environ.items() if name != "_RJEM_MALLOC_CONF"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert ran.stdout.split() == ["False", "True"]


THREADS = """
import atexit, sys, npuscope.cli
atexit.register(lambda: print(__import__("polars").thread_pool_size(), file=sys.stderr))
sys.argv[:] = ["npuscope", "info", sys.argv[1]]
npuscope.cli.run()
"""


def test_a_small_file_wakes_no_threads_of_polars(tmp_path: Path) -> None:
    small = tmp_path / "kernel_details.csv"
    write_decode_steps(small)
    unset = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
    for path, env, threads in ((small, unset, 1), (small, {**unset, "POLARS_MAX_THREADS": "3"}, 3)):
        ran = subprocess.run([sys.executable, "-c", THREADS, path], capture_output=True, text=True, check=True, env=env)
        assert ran.stderr.split() == [str(threads)]
