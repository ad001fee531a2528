"""What collectives cost: the steps of their kernels, and how near that comes to what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import npuscope
from hypothesis import given
from hypothesis import strategies as st
from real_data import DATA
from scipy.stats import spearmanr
from tiers import examples

from benchmarks.links import predicted, read_rows
from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import load
from npuscope.time.ranks.collective import OPS, Collective, constants_of, parts_of, price, times_of

DTYPES = ("INT8", "FP16", "FP32")
CONSTANTS = constants_of(load("ascend910b2"))
MEASURED = DATA / "measured" / "collectives_measured.csv"


def test_all_to_all_v_sends_256_elements_at_a_time_to_every_rank_itself_included() -> None:
    c = constants_of(load("ascend910b2"))
    one, more = (parts_of(Collective("all_to_all_v", 8, size), c) for size in (256, 4 * 256))
    assert more.steps == pytest.approx(4 * one.steps)
    step = c["put_local"] + 7 * c["put_remote"] + 8 * 256 / c["put_rate"]
    assert one.steps == pytest.approx(step)
    assert parts_of(Collective("all_to_all_v", 8, 4 * 256, dtype="FP32"), c).steps < more.steps / 2


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("form", ["builtin", "composite"])
@given(
    st.integers(2, 15), st.integers(0, 1 << 24), st.integers(0, 1 << 20), st.integers(1, 47), st.sampled_from(DTYPES)
)
@examples(15)
def test_more_bytes_and_fewer_cores_never_take_less(
    op: str, form: str, ranks: int, size: int, more: int, cores: int, dtype: str
) -> None:
    cores = cores if form == "builtin" else 1

    def kernel(**other: Any) -> float:
        return parts_of(replace(Collective(op, ranks, size, cores, form, dtype), **other), CONSTANTS).kernel

    assert kernel() <= kernel(bytes=size + more) + 1e-6
    assert kernel(cores=1) >= kernel() - 1e-6 >= kernel(cores=48) - 2e-6
    if op != "reduce_scatter":  # whose parts are the smaller the more ranks there are
        assert kernel() <= kernel(ranks=ranks + 1) + 1e-6


def test_ranks_beyond_the_mesh_share_the_slower_link() -> None:
    within, beyond = (parts_of(Collective("all_to_all", ranks, 1 << 24, 48), CONSTANTS).link for ranks in (8, 16))
    assert within == pytest.approx(7 * (1 << 24) / 196)
    assert beyond == pytest.approx(8 * (1 << 24) / 25)  # 8 of 15 peers are outside


def test_more_cores_help_until_the_rank_gets_through_no_more_transfers() -> None:
    c = constants_of(load("ascend910b2"))
    times = [parts_of(Collective("all_to_all_v", 8, 1 << 20, cores), c) for cores in (1, 2, 16, 48)]
    assert [one.bound for one in times] == ["steps", "steps", "issue rate", "issue rate"]
    assert times[0].kernel > times[1].kernel > times[2].kernel == pytest.approx(times[3].kernel)
    assert times[3].issue == pytest.approx(7 * 4096 / c["remote_issue"])


def test_a_barrier_per_piece_is_what_a_builtin_allreduce_pays() -> None:
    c = constants_of(load("ascend910b2"))
    forms = {form: Collective("allreduce", 2, 1 << 20, form=form, dtype="FP32") for form in ("host", "composite")}
    host, composite = (parts_of(one, c).barriers for one in forms.values())
    assert host == pytest.approx(composite * (1 + 1024) / (1 + 64))  # pieces of 1 KiB and of 16 KiB
    assert times_of(forms["host"], c)["device_wall"] > times_of(forms["composite"], c)["device_wall"]


@pytest.mark.skipif(not MEASURED.is_file(), reason="needs the measured tables")
def test_released_rows_are_met_and_in_order() -> None:
    rows, c = read_rows(MEASURED), constants_of(load("ascend910b2"))
    values = [predicted(row, c) for row in rows]
    assert len(rows) == 46
    miss = np.abs([log(value / row.value) for row, value in zip(rows, values, strict=True)])
    assert exp(np.median(miss)) < 1.15
    assert spearmanr(values, [row.value for row in rows]).statistic > 0.98
    kernels = [n for n, row in enumerate(rows) if row.metric == "kernel"]
    assert exp(max(miss[kernels])) < 1.05


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Collective("gossip", 2, 1), "no collective 'gossip'"),
        (Collective("allreduce", 32, 1), "at most 16 ranks"),
        (Collective("allgather", 2, 1, form="hccl"), "known of allreduce alone"),
        (Collective("allreduce", 2, 1, cores=2, form="composite"), "runs on one core"),
        (Collective("allreduce", 2, 1, dtype="INT7"), "no dtype 'INT7'"),
    ],
)
def test_what_no_kernel_does_is_refused(asked: Collective, said: str) -> None:
    with pytest.raises(NpuscopeError, match=said):
        price(asked, load("ascend910b2"))


def test_the_command_says_the_time_what_bounds_it_and_draws_it(tmp_path: Path) -> None:
    page = tmp_path / "c.html"
    asked = ("collective", "all_to_all_v", "--ranks", "8", "--bytes", "65536", "--cores", "8")
    data = json.loads(npuscope(*asked, "--json", "--html", str(page)).stdout)
    assert data["bound"] == "issue rate"
    first, *_ = data["metrics"]
    assert first["metric"] == "kernel"
    assert first["low_ns"] < first["time_ns"] < first["high_ns"]
    (same,) = [row for row in data["sizes"] if (row["ranks"], row["bytes"]) == (8, 65536)]
    assert same["time_ns"] == first["time_ns"]
    assert page.stat().st_size > 10_000
    assert npuscope("collective", "gossip").returncode == 2
