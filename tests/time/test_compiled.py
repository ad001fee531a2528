"""The first answer of a fresh installation comes from plain Python, while the simulator is compiled beside it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

SOFTMAX = Path(__file__).resolve().parents[2] / "models" / "basics" / "softmax.py"
PLAIN = """
import sys
from npuscope.time import compiled, run
from npuscope.time.chip import engine
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
program = Prediction(Request(sys.argv[1])).program
first = run.simulate(program)
print(type(engine.run).__name__, first.wall_ns)
if "switch" in sys.argv:
    compiled.wait()
    print(type(engine.run).__name__, run.run(first.prepared).wall_ns)
"""


def told(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PLAIN, str(SOFTMAX), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, **environment}, check=True
    )


def test_plain_python_says_what_compiled_code_says() -> None:
    plain = told(NPUSCOPE_ENGINE="plain").stdout.split()
    compiled = told(NPUSCOPE_ENGINE="compiled").stdout.split()
    assert plain[0] == "function"
    assert compiled[0] == "CPUDispatcher"
    assert plain[1] == compiled[1]


@pytest.mark.full
def test_without_machine_code_the_answer_does_not_wait_for_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN an installation without machine code: the package's own folder has none, nor has the user's
    import shutil

    import npuscope

    package = tmp_path / "site" / "npuscope"
    shutil.copytree(Path(npuscope.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    # WHEN a program is simulated THEN plain Python answers and says so; compiled code takes over when it is there
    done = told("switch", NPUSCOPE_ENGINE="", XDG_CACHE_HOME=str(tmp_path / "cache"))
    (first, wall), (second, again) = (line.split() for line in done.stdout.splitlines())
    assert (first, second) == ("function", "CPUDispatcher")
    assert wall == again
    assert done.stderr.count("compiled in the background") == 1


def test_of_several_processes_one_compiles_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command starts several that simulate: its own process, warm ones, those that check numbers."""
    from npuscope.time import compiled

    started: list[list[str]] = []
    monkeypatch.setattr(compiled, "folder", lambda: tmp_path)
    monkeypatch.setattr("subprocess.Popen", lambda command, **_: started.append(command))
    with (tmp_path / "compiling").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # GIVEN another process at it THEN this one leaves it alone
        compiled._compile_in_background.__wrapped__()
        assert not started
    compiled._compile_in_background.__wrapped__()  # WHEN that one has ended THEN this one takes over
    assert len(started) == 1


def twice(x: int) -> int:
    return 2 * x


def test_a_function_compiles_without_numbas_runtime() -> None:
    try:
        made = numba.njit(_nrt=False, forceinline=True)(twice)  # type: ignore[call-overload]
        assert made(21) == 42
    except Exception as error:
        pytest.fail(f"Numba {numba.__version__} has no `_nrt=False` any more ({error}): see simulate/compiled.py")


def test_the_cache_of_a_function_saves_by_a_method_that_can_be_wrapped() -> None:
    made = numba.njit(cache=True)(twice)
    cache = getattr(made, "_cache", None)
    assert callable(getattr(cache, "save_overload", None)), (
        f"Numba {numba.__version__} has no `_cache.save_overload` any more: see simulate/compiled.py"
    )
    assert hasattr(numba.config, "CACHE_DIR"), f"Numba {numba.__version__} has no `config.CACHE_DIR` any more"
