"""Runs commands of npuscope with what Windows lacks taken away, as far as a Linux machine can pretend to be one.

    python tests/as_on_windows.py 'report demo_out/run' 'check model:basics/gemm'

Other people's modules are loaded first: how they behave on Windows is their affair. Ours are then loaded anew.
"""

from __future__ import annotations

import os
import pkgutil
import shlex
import signal
import socket
import sys
from importlib import import_module
from types import SimpleNamespace

NO_MODULES = ("fcntl", "resource", "pwd", "grp", "termios")
LACKS = {
    os: "fork geteuid getegid getuid getgid nice setsid killpg pipe2 wait4 WNOHANG WIFSIGNALED sched_getaffinity uname",
    signal: "SIGKILL SIGCHLD SIGHUP SIGUSR1 SIGALRM setitimer",
    socket: "AF_UNIX",
}


def our_modules() -> list[str]:
    import npuscope

    found = pkgutil.walk_packages(npuscope.__path__, "npuscope.")
    left_out = ("__main__", "lazy_torch", "random_streams")  # the last two are of a torch that may be missing
    return [one.name for one in found if ".models." not in one.name and not one.name.endswith(left_out)]


def pretend() -> None:
    for name in our_modules():
        import_module(name)
    for name in [name for name in sys.modules if name == "npuscope" or name.startswith("npuscope.")]:
        del sys.modules[name]
    for module, names in LACKS.items():
        for name in names.split():
            delattr(module, name)
    for name in NO_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    sys.modules["msvcrt"] = SimpleNamespace(LK_NBLCK=2, locking=lambda *_: None)  # type: ignore[assignment]
    sys.platform = "win32"


def run(command: str) -> int:
    """Its exit code."""
    from npuscope.cli import main

    sys.argv = ["npuscope", *shlex.split(command)]
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


if __name__ == "__main__":
    pretend()
    for name in our_modules():
        import_module(name)
    for command in sys.argv[1:]:
        print(f"$ {command}\nexit code {run(command)}", flush=True)
