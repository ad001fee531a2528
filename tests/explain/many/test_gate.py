"""The performance gate: limits, noise, baselines."""

from pathlib import Path

import pytest
from made import DOZEN, Task, dozen, made

from npuscope import NpuscopeError
from npuscope.explain.many import gate, read_budget
from npuscope.explain.many.gate import Budget, Gate
from npuscope.trace import Trace


def run(us: float) -> Trace:
    return made([Task(1, "fa_fused", "AIC_0", 0, us, 0, us + 1)])


def budget(folder: Path, text: str) -> Budget:
    (folder / "budget.toml").write_text(text)
    return read_budget(folder / "budget.toml")


def statuses(result: Gate) -> list[str]:
    return result.table["status"].to_list()


def test_limits_of_every_kind(tmp_path: Path) -> None:
    limits = budget(
        tmp_path,
        """
        noise = 0.0
        [[limit]]
        metric = "wall_us"
        max = 100
        [[limit]]
        metric = "core_us"
        kernel = "down"
        max = 13.9
        [[limit]]
        metric = "busy"
        unit = "AIC"
        min = 0.5
        [[limit]]
        metric = "path_us"
        reason = "FIN"
        max = 7
        [[limit]]
        metric = "overhead"
        max = 0.2
        [[limit]]
        metric = "count"
        kernel = "gone"
        max = 1
        """,
    )
    result = gate([dozen()], limits)
    assert statuses(result) == ["ok", "FAIL", "ok", "ok", "ok", "FAIL"]
    assert not result.passed
    assert result.table["value"].to_list()[1] == 14.0


def test_an_excess_within_the_noise_does_not_fail(tmp_path: Path) -> None:
    limits = budget(tmp_path, '[[limit]]\nmetric = "wall_us"\nmax = 100\n')
    assert statuses(gate([run(104)], limits)) == ["undecided"]  # one capture: 5 % by default
    assert statuses(gate([run(106)], limits)) == ["FAIL"]
    # three captures measure the noise: half their range is 1 % here, so 4 % is no noise
    assert statuses(gate([run(103), run(104), run(105)], limits)) == ["FAIL"]
    assert statuses(gate([run(90), run(104), run(110)], limits)) == ["undecided"]


def test_an_increase_against_a_baseline(tmp_path: Path) -> None:
    limits = budget(tmp_path, 'noise = 0.02\n[[limit]]\nmetric = "mean_us"\nkernel = "fa_fused"\nmax_increase = 0.05\n')
    assert statuses(gate([run(104)], limits, [run(100)])) == ["ok"]
    result = gate([run(110)], limits, [run(100)])
    assert statuses(result) == ["FAIL"]
    assert result.table["change"].item() == pytest.approx(0.1)
    with pytest.raises(NpuscopeError, match="no baseline"):
        gate([run(104)], limits)


def test_counts_have_no_noise(tmp_path: Path) -> None:
    limits = budget(tmp_path, '[[limit]]\nmetric = "tasks"\nmax = 11\n')
    assert statuses(gate([dozen()], limits)) == ["FAIL"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "budget"),
        ("limit = []", "without a"),
        ('[[limit]]\nmetric = "speed"\nmax = 1', "no metric 'speed'"),
        ('[[limit]]\nmetric = "busy"\nmax = 1', "no metric 'busy'"),
        ('[[limit]]\nmetric = "wall_us"', "neither max, min nor max_increase"),
        ('[[limit]]\nmetric = "wall_us"\nmaximum = 1', "maximum"),
        ('[[limit]]\nmetric = "path_us"\nreason = "dispach"\nmax = 1', "no reason 'dispach'"),
        ('[[limit]]\nmetric = "core_us"\nkernel = "a"\nunit = "AIC"\nmax = 1', "two of kernel, unit and reason"),
        ('[[limit]]\nmetric = "wall_us"\nmin = nan', "finite"),
        ('[[limit]]\nmetric = "wall_us"\nmax_increase = -1', "allows no time"),
        ('noise = 2\n[[limit]]\nmetric = "wall_us"\nmax = 1', "noise"),
    ],
)
def test_a_broken_budget_is_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(NpuscopeError, match=told) as caught:
        budget(tmp_path, text)
    assert "budget.toml" in str(caught.value)


def test_what_cannot_be_told_does_not_pass(tmp_path: Path) -> None:
    # GIVEN a capture without edges, whose dispatch waits are part of a coarser reason
    limits = budget(tmp_path, '[[limit]]\nmetric = "bubble_us"\nreason = "dispatch"\nmax = 50\n')
    assert statuses(gate([dozen()], limits)) == ["ok"]
    assert statuses(gate([made(DOZEN)], limits)) == ["FAIL"]


def test_a_baseline_of_nothing_is_an_increase(tmp_path: Path) -> None:
    limits = budget(tmp_path, '[[limit]]\nmetric = "path_us"\nreason = "FIN"\nmax_increase = 0.5\n')
    instant = made([Task(1, "a", "AIC_0", 0, 10, 0, 10), Task(2, "b", "AIC_1", 10, 20, 10, 20)], [(1, 2)])
    assert statuses(gate([dozen()], limits, [instant])) == ["FAIL"]
    other = budget(tmp_path, '[[limit]]\nmetric = "core_us"\nkernel = "down"\nmax_increase = 0.5\n')
    assert statuses(gate([dozen()], other, [instant])) == ["FAIL"]


def test_an_empty_capture_is_refused(tmp_path: Path) -> None:
    limits = budget(tmp_path, '[[limit]]\nmetric = "wall_us"\nmax = 1\n')
    with pytest.raises(NpuscopeError, match="nothing ran"):
        gate([made([])], limits)


def test_a_decrease_may_be_demanded(tmp_path: Path) -> None:
    limits = budget(tmp_path, 'noise = 0.0\n[[limit]]\nmetric = "wall_us"\nmax_increase = -0.1\n')
    assert statuses(gate([run(100)], limits, [run(100)])) == ["FAIL"]
    assert statuses(gate([run(89)], limits, [run(100)])) == ["ok"]
