"""Jobs in warm processes: a job that goes wrong costs its own answer, and whoever is killed takes all along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pool_jobs as jobs
import pytest
from patience import MOST, becomes, is_alive

from npuscope.answer.judge import WARM, judge
from npuscope.base.errors import NpuscopeError
from npuscope.base.jobs import Failed, Limits
from npuscope.base.pool import Caller, Pool, Workers, close_pools, each

MIB = 1024**2


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(workers=2, modules=()) as pool:
        yield pool


def test_answers_come_from_the_folder_and_environment_of_who_asks(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POOL_SAYS", "hello")
    assert pool.ask(jobs.double, 21).result() == 42
    assert pool.ask(jobs.where, None).result() == (str(tmp_path), "hello")


WRONG: list[tuple[Callable[..., object], object, str, str]] = [
    (jobs.loop, None, "time", "not done after"),
    (jobs.hog, None, "memory", "more than 0.195 GiB"),
    (jobs.one_huge, None, "memory", "more than 0.195 GiB"),
    (jobs.crash, None, "crashed", "SIGSEGV"),
    (jobs.leave, 7, "exited", "exit code 7"),
    (jobs.leave_politely, 3, "exited", "exit code 3"),
    (jobs.fail, "no such tile", "raised", "ValueError: no such tile"),
    (jobs.refuse, "no such tile", "refused", "no such tile. Mend it."),
    (jobs.unpicklable, None, "raised", "pickle"),
]


@pytest.mark.parametrize("forks", [True, False])
def test_a_job_that_goes_wrong_costs_its_own_answer_and_nothing_else(forks: bool) -> None:
    with Pool(workers=2, modules=(), forks=forks) as pool:
        good = [pool.ask(jobs.double, n) for n in range(3)]
        wrong = [
            pool.ask(work, given, Limits(2.0 if work is jobs.loop else MOST, 200 * MIB)) for work, given, *_ in WRONG
        ]
        good += [pool.ask(jobs.double, n) for n in range(3, 6)]
        assert [one.result() for one in good] == [0, 2, 4, 6, 8, 10]
        for handle, (work, _, kind, told) in zip(wrong, WRONG, strict=True):
            found = handle.result()
            assert isinstance(found, Failed), work
            assert found.kind == kind, (work, found)
            assert told in found.message


def test_whoever_hears_an_answer_may_end_the_pool() -> None:
    pool, ended = Pool(workers=1, modules=()), threading.Event()

    def end(_: object) -> None:
        pool.close()
        ended.set()

    pool.ask(jobs.double, 21).when_done(end)
    assert ended.wait(MOST)


def test_a_refusal_ends_the_threads_of_its_work() -> None:
    def refuse(_: Caller, piece: int) -> int:
        raise NpuscopeError(f"no piece {piece}")

    before = {*threading.enumerate()}
    with pytest.raises(NpuscopeError) as refused:  # which keeps the frames that it passed
        list(each(refuse, [1, 2, 3], Workers(jobs=2)))
    left = {*threading.enumerate()} - before
    assert not [one for one in left if one.name.startswith("ThreadPoolExecutor")]  # the warm pool stays
    assert str(refused.value).startswith("no piece")


def test_what_a_job_prints_is_no_answer(pool: Pool) -> None:
    assert pool.ask(jobs.shout, 5).result() == 5


def test_a_long_answer_arrives_whole(pool: Pool) -> None:
    assert pool.ask(jobs.big, 30 * MIB).result() == b"z" * 30 * MIB


def test_a_job_that_forks_answers_once(pool: Pool) -> None:
    assert [pool.ask(jobs.fork_and_return, n).result() for n in range(5)] == [0, 1, 2, 3, 4]


def test_what_a_job_leaves_running_is_ended(pool: Pool, tmp_path: Path) -> None:
    left = pool.ask(jobs.leave_a_child, str(tmp_path / "pid")).result()
    assert isinstance(left, int)
    assert becomes(lambda: not is_alive(left))


def test_jobs_are_cancelled_in_the_queue_and_under_way(pool: Pool) -> None:
    long = [pool.ask(jobs.sleep, 600.0) for _ in range(4)]  # two of them wait
    for handle in long:
        handle.cancel()
    assert {handle.result() for handle in long} == {Failed("cancelled", "it was cancelled")}
    assert pool.ask(jobs.double, 1).result() == 2
    done = pool.ask(jobs.double, 2)
    assert done.result() == 4
    done.cancel()
    assert done.result() == 4


def test_callers_are_called_back(pool: Pool) -> None:
    seen: list[object] = []
    for n in range(4):
        pool.ask(jobs.double, n).when_done(lambda handle: seen.append(handle.result()))
    assert becomes(lambda: sorted(map(str, seen)) == ["0", "2", "4", "6"])


def test_what_a_job_took_is_told(pool: Pool) -> None:
    looped = pool.ask(jobs.loop, None, Limits(seconds=1.0))
    assert looped.used.cpu_seconds > 0
    hogged = pool.ask(jobs.hog, None, Limits(bytes=100 * MIB))
    assert 100 * MIB < hogged.used.peak_bytes < 1500 * MIB


def test_a_server_that_was_ended_is_started_again() -> None:
    with Pool(workers=1, modules=()) as pool:
        server = pool.ask(jobs.server, None).result()
        assert isinstance(server, int)
        waiting = [pool.ask(jobs.sleep, 600.0) for _ in range(2)]
        os.kill(server, signal.SIGKILL)
        assert {getattr(handle.result(), "kind", None) for handle in waiting} == {"lost"}
        assert becomes(lambda: pool.ask(jobs.double, 1).result() == 2)


def test_a_pool_that_is_closed_ends_its_jobs(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with Pool(workers=1, modules=()) as pool:
        handle = pool.ask(jobs.touch_and_sleep, str(path))
        assert becomes(lambda: path.exists() and path.read_text() != "")
    assert isinstance(handle.result(), Failed)
    assert becomes(lambda: not is_alive(int(path.read_text())))
    with pytest.raises(ValueError, match="closed"):
        pool.ask(jobs.double, 1)


def test_a_killed_parent_takes_server_and_jobs_along(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "import pool_jobs, time\n"
        "from npuscope.base.pool import Pool\n"
        "pool = Pool(workers=1, modules=())\n"
        f"pool.ask(pool_jobs.touch_and_sleep, {str(path)!r})\n"
        "print(pool._link.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        assert becomes(lambda: path.exists() and path.read_text() != "")
        parent.kill()
    assert becomes(lambda: not is_alive(server) and not is_alive(int(path.read_text())))


def test_the_warm_process_has_one_thread_and_its_children_use_all_of_polars() -> None:
    """Forking with another thread can hang; 100 children that use Polars' own threads do not."""
    with Pool(2, WARM) as pool:
        forked = pool.ask(jobs.is_loaded, "npuscope.time.run").result()
        assert forked is True, "the server found threads and started a new interpreter"
        found = [pool.ask(jobs.by_group, n, Limits(MOST)) for n in range(1, 101)]
        assert {handle.result() for handle in found} == {sum(range(5000))}


@pytest.mark.parametrize("code", [0, 3, None])
def test_temporary_folders_of_a_job_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    # GIVEN a temporary folder
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # WHEN a job leaves things in it and leaves at once, or kills the server
    with Pool(workers=1, modules=()) as pool:
        failed = pool.ask(jobs.leave_folders, code).result()
        assert isinstance(failed, Failed)
        assert failed.kind == ("lost" if code is None else "exited")
    # THEN nothing of it stays
    assert list(tmp_path.iterdir()) == []


def test_a_candidate_that_leaves_folders_behind_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    answer = judge("import os, tempfile\n\ntempfile.mkdtemp()\nos._exit(3)\n")
    close_pools()
    assert answer.verdict == "exited"
    assert list(tmp_path.iterdir()) == []
