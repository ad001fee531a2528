"""Runs the commands it is asked for, each in a fork of this process, which has the heavy modules loaded.

tests/command.py starts it and writes a JSON object on a line for each: words, folder, and the files for what the
command prints. The answer is the exit code and the CPU seconds on a line.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import sys
from importlib import import_module
from pkgutil import walk_packages
from typing import NoReturn

import npuscope
from npuscope.answer.prediction import warm_up
from npuscope.base.fork_server import QUIET
from npuscope.cli import main

PATIENCE_S = 600
SHOWN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def load() -> None:
    """All of npuscope, but for what is only read as a program or needs an extra that may not be there."""
    for module in walk_packages(npuscope.__path__, "npuscope."):
        if not module.name.startswith(("npuscope.models.", "npuscope.__main__")):
            try:
                import_module(module.name)
            except ImportError:
                continue
    warm_up()
    for name in QUIET:  # they were for loading
        del os.environ[name]


def become(order: dict[str, str], words: list[str]) -> None:
    """This process, as the command's own would be."""
    os.chdir(order["folder"])
    for number, place, how in ((0, os.devnull, os.O_RDONLY), (1, order["out"], SHOWN), (2, order["err"], SHOWN)):
        opened = os.open(place, how)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (for as long as the process lives)
    sys.argv = ["npuscope", *words]
    signal.alarm(PATIENCE_S)


def serve() -> bool:
    """True in the fork that is to run a command."""
    while line := sys.stdin.readline():
        order = json.loads(line)
        words = order.pop("words")
        child = os.fork()
        if not child:
            become(order, words)
            return True
        _, status, used = os.wait4(child, 0)
        print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, flush=True)
    return False


def run() -> NoReturn:
    """Ends as a command does, but leaves it to the system to take everything down, which is quicker."""
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    load()
    print("ready", flush=True)
    gc.freeze()
    if serve():
        run()
