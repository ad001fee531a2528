"""Candidates that do what they should not: each costs its own answer, and is told in a sentence.

All of them are judged in one batch by the real command, beside a good one.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from command import npuscope as command

ROOT = Path(__file__).resolve().parents[2]
GOOD = (ROOT / "models" / "basics" / "softmax.py").read_text()
RUN = 'if __name__ == "__main__":'


def before(*lines: str) -> str:
    """The good program with these lines before it runs."""
    assert RUN in GOOD
    return GOOD.replace(RUN, "\n".join((*lines, "", RUN)))


CASES: dict[str, tuple[str, str, str]] = {  # source, verdict, what is told
    "good": (GOOD, "good", ""),
    "floods_stdout": (before("import os", "for _ in range(200):", "    print('x' * 10**5)",
                             "os.write(1, b'{' * 10**6)"), "good", ""),
    "floods_stderr": (before("import sys", "print('y' * 10**7, file=sys.stderr)"), "good", ""),
    "writes_here": (before("open('left_behind.txt', 'w').write('x')"), "good", ""),
    "goes_elsewhere": (before("import os", "os.chdir('/')", "os.environ.clear()"), "good", ""),
    "deletes_itself": (before("import os", "os.remove(__file__)"), "fails", "the file changed"),
    "leaves_a_child": (before("import subprocess", "subprocess.Popen(['sleep', '7654321'])"), "good", ""),
    "leaves_a_daemon": (before("import subprocess",
                               "subprocess.Popen(['sleep', '7654321'], start_new_session=True)"), "good", ""),
    "leaves_a_thread": (before("import threading, time", "threading.Thread(target=time.sleep, args=(999,)).start()"),
                        "good", ""),
    "segfault": (before("import ctypes", "ctypes.string_at(0)"), "crashed", "SIGSEGV (segmentation fault)"),
    "sys_exit": (before("import sys", "sys.exit(3)"), "exited", "(exit code 3)"),
    "quits_at_once": (before("import os", "os._exit(0)"), "exited", "exit code 0"),
    "recursion": (before("def again():", "    again()", "again()"), "fails", "RecursionError"),
    "reads_stdin": (before("input()"), "fails", "EOFError"),
    "huge_error": (before("raise ValueError('long ' * 10**7)"), "fails", "ValueError: long long"),
    "many_lines": (before("raise ValueError('one\\ntwo\\x1b[31m\\x00three')"), "fails", "one"),
    "unicode_error": (before("raise ValueError('größer als 16 × \\U0001f600 \\udc80')"), "fails", "größer als 16 ×"),
    "unprintable_error": (before("class Odd(Exception):", "    def __str__(self):", "        raise KeyError('no')", "",
                                 "raise Odd"), "fails", "Odd"),
    "syntax": ("def broken(:\n    pass\n", "fails", "SyntaxError"),
    "empty": ("", "fails", "no tile program"),
    "not_text": ("\udcff\udcfe", "fails", ""),
    "endless_forks": (before("import os, time", "while True:", "    if os.fork() == 0:", "        time.sleep(600)",
                             "    time.sleep(0.002)"), "crashed", "more than 256 processes"),
    "children_eat": (before("import os, time", "for _ in range(4):", "    if os.fork() == 0:",
                            "        held = bytearray(b'x') * (300 * 2**20)", "        time.sleep(600)",
                            "time.sleep(600)"), "memory", "GiB of memory"),
}  # fmt: skip


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, dict[str, Any]], Any, Path]:
    place = tmp_path_factory.mktemp("candidates")
    for name, (source, _, _) in CASES.items():
        (place / f"{name}.py").write_bytes(source.encode(errors="surrogateescape"))
    files = [place / f"{name}.py" for name in CASES]
    limits = ("--seconds", "120", "--memory", "0.7", "--json")
    with chdir(place):
        done = command("judge", *files, *limits, "--md", "told.md", "--sarif", "told.sarif")
    told = json.loads(done.stdout)
    return {Path(one["candidate"]).stem: one for one in told["answers"]}, done, place


@pytest.mark.parametrize("name", CASES)
def test_each_costs_its_own_answer(name: str, judged: tuple[dict[str, dict[str, Any]], Any, Path]) -> None:
    answer = judged[0][name]
    _, verdict, told = CASES[name]
    assert answer["verdict"] == verdict, answer
    assert told in answer.get("message", "")
    assert len(answer.get("message", "")) < 650
    assert not any(ord(letter) < 32 for letter in answer.get("message", "")), "one line, no escapes"
    assert "Traceback" not in answer.get("message", "")


def test_the_command_says_so_and_leaves_nothing_running(judged: tuple[dict[str, dict[str, Any]], Any, Path]) -> None:
    _, done, place = judged
    assert done.returncode == 1
    assert done.stderr == ""
    assert (place / "left_behind.txt").exists(), "it runs where the user is"
    assert all(ord(letter) >= 32 or letter == "\n" for letter in (place / "told.md").read_text())
    assert json.loads((place / "told.sarif").read_text())["version"] == "2.1.0"
    patience = time.monotonic() + 60
    while _sleeping() and time.monotonic() < patience:
        time.sleep(0.1)
    assert not _sleeping()


def _sleeping() -> list[str]:
    """Processes that a candidate started and left."""
    found = []
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if b"7654321" in words:
            found.append(process)
    return found
