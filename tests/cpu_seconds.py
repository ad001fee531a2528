"""Which test files are slow: CPU seconds with those of programs they start, so that a busy machine tells the same.

    make slow                                                     (all of them, as long as `make test`)
    pytest -p cpu_seconds --cpu-seconds slow.tsv tests/analysis   (some; pytest finds this file by itself)

Files above MOST are written with their seconds, the slowest first. tests/slow.tsv is
the order they are handed out in, because a slow file at the end leaves a core without work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import command
import pytest

MOST = 2.5  # CPU seconds of a file

_spent: dict[str, float] = defaultdict(float)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-seconds", metavar="FILE", help="Write the CPU seconds of slow test files here.")


def _now() -> float:
    own = sum(usage.ru_utime + usage.ru_stime for usage in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))
    return own + command.cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    begin = _now()
    result = yield
    _spent[item.nodeid.partition("::")[0]] += _now() - begin
    return result


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist: a worker has ended
def pytest_testnodedown(node: Any) -> None:
    for path, seconds in getattr(node, "workeroutput", {}).get("cpu_seconds", {}).items():
        _spent[path] += seconds


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = session.config.getoption("--cpu-seconds")
    if hasattr(session.config, "workeroutput"):  # a worker tells the process that started it
        session.config.workeroutput["cpu_seconds"] = dict(_spent)
    elif target:
        slow = sorted(((seconds, path) for path, seconds in _spent.items() if seconds > MOST), reverse=True)
        Path(target).write_text("".join(f"{seconds:.1f}\t{path}\n" for seconds, path in slow))
