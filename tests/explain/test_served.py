"""A scheduler whose cost is known: the demo's run is written with several, and asked for one another."""

from pathlib import Path

import pytest

from npuscope.explain import Change, whatif
from npuscope.explain.replay import served_jobs, wall_of
from npuscope.explain.waits import readiness
from npuscope.explain.work import Work
from npuscope.trace import Trace, read
from npuscope.trace.example import write_decode_run

TICK = 20  # ns
COSTS = (10, 25, 50, 100)  # ticks that the planted scheduler takes for a hand-out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Trace]:
    folder = tmp_path_factory.mktemp("planted")
    for cost in COSTS:
        write_decode_run(folder / str(cost), hand_out=cost)
    return {cost: read(str(Path(folder) / str(cost))) for cost in COSTS}


@pytest.mark.parametrize("cost", COSTS)
def test_the_planted_cost_is_found_and_the_run_reproduced(runs: dict[int, Trace], cost: int) -> None:
    work = Work.of(runs[cost])
    found = served_jobs(work, readiness(work))
    assert found is not None
    jobs = found
    assert jobs.hand_out is not None
    # all but the first tasks, before which nobody knows when the scheduler began
    share = sum(took == cost * TICK for took in jobs.hand_out.tolist()) / len(jobs.hand_out)
    assert share > 0.98
    assert wall_of(jobs) == work.wall


@pytest.mark.parametrize("before", COSTS)
@pytest.mark.parametrize("after", COSTS)
def test_the_interval_has_the_known_answer(runs: dict[int, Trace], before: int, after: int) -> None:
    known = Work.of(runs[after]).wall
    found = whatif(runs[before], Change(dispatch_cost=after / before))
    assert found.low_ns <= known <= found.high_ns
    if before >= 25 and after >= 25:  # where the scheduler is what matters, the likeliest answer is near, too
        assert found.new_ns == pytest.approx(known, rel=0.06)
