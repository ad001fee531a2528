"""Dependencies audited: each edge, chain and late consumer that is named is one that a planted program has."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from command import npuscope

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.check.races.conflicts import false_edges
from npuscope.check.rules.edges import implied_edges, needless_deps
from npuscope.check.run import check, rules_of
from npuscope.time.change_job import pairs_of, with_fewer_edges
from tests.time.jobs import graph

HEAD = """
    import numpy as np
    import npuscope.tile as pl

    N = {n}

    @pl.jit
    def layers(x: pl.Tensor[[N * 16, 64], pl.FP32], y: pl.Out[pl.Tensor[[N * 16, 64], pl.FP32]],
               z: pl.Out[pl.Tensor[[N * 16, 64], pl.FP32]]):
        with pl.manual_scope():
"""
TAIL = """
        return z

    rows = np.ones((N * 16, 64), np.float32)
    layers(rows, rows.copy(), rows.copy())
"""


def asked(tmp_path: Path, body: str, n: int = 8) -> Prediction:
    file = tmp_path / "layers.py"
    indented = "\n".join("            " + line for line in dedent(body).strip().splitlines())
    file.write_text(dedent(HEAD.replace("{n}", str(n)).rstrip() + "\n" + indented + "\n" + TAIL.lstrip("\n")))
    return Prediction(Request(str(file)))


# tasks a, then b that reads what a wrote, then c that reads both: of three edges one is implied
TRIANGLES = """
for i in pl.range(N):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="a") as a:
        y[i * 16 : i * 16 + 16, :] = pl.mul(x[i * 16 : i * 16 + 16, :], 2.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="b", deps=[a]) as b:
        z[i * 16 : i * 16 + 16, :] = pl.add(y[i * 16 : i * 16 + 16, :], 1.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="c", deps=[a, b]):
        z[i * 16 : i * 16 + 16, :] = pl.add(y[i * 16 : i * 16 + 16, :], z[i * 16 : i * 16 + 16, :])
"""


def test_an_edge_that_two_others_imply_is_named_with_the_line_to_change(tmp_path: Path) -> None:
    one = asked(tmp_path, TRIANGLES)
    assert implied_edges(one.program) == {(3 * n, 3 * n + 2) for n in range(8)}
    assert needless_deps(one.program) == frozenset()
    (found,) = check(one.program, rules_of(["implied-edge"])).findings
    text = Path(found.file).read_text().splitlines()[found.line - 1]
    assert 'name_hint="c", deps=[a, b]' in text
    assert found.message.startswith("8 of 16 edges into 8 tasks of c")
    assert found.remedy.startswith("Leave a out of deps=")
    (priced,) = [finding for finding in one.audit.findings if finding.id == "implied-edge"]
    assert priced.price is not None
    assert priced.price.wall_ns is not None


def test_an_edge_less_is_submitted_and_resolved_sooner() -> None:
    made = graph([1000.0] * 4, [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)])
    fewer = with_fewer_edges(made, {2, 3}, (), ["k"] * 4, submit_edge=50.0)
    assert pairs_of(fewer) == [(0, 1), (1, 2), (2, 3)]
    assert (made.submit - fewer.submit).tolist() == [0, 0, 50, 100]
    joined = with_fewer_edges(graph([1000.0] * 4, [(0, 3), (1, 3), (2, 3)]), (), {3}, ["a", "a", "b", "c"], 50.0)
    assert pairs_of(joined) == [(1, 3), (2, 3)]


def test_a_declared_edge_between_tasks_that_share_nothing_is_needless(tmp_path: Path) -> None:
    one = asked(
        tmp_path,
        """
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="left") as left:
            y[0:16, :] = pl.mul(x[0:16, :], 2.0)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="right", deps=[left]) as right:
            z[0:16, :] = pl.mul(x[16:32, :], 2.0)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="over", deps=[left, right]):  # writes what right has read
            z[16:32, :] = pl.add(y[0:16, :], z[0:16, :])
        """,
    )
    assert needless_deps(one.program) == {(0, 1)}
    (found,) = [finding for finding in one.audit.findings if finding.id == "needless-dep"]
    assert (found.kernel, found.waste.waits) == ("right", 1)
    assert found.saves_ns is not None
    assert found.saves_ns > 0  # left and right then run side by side


def test_a_task_that_waits_for_very_many_is_told_how_many(tmp_path: Path) -> None:
    body = """
        made = pl.array.create(N, pl.TASK_ID)
        for i in pl.range(N):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="part") as part:
                y[i * 16 : i * 16 + 16, :] = pl.mul(x[i * 16 : i * 16 + 16, :], 2.0)
            made[i] = part
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="all_of_them", deps=[made]):
            z[0:16, :] = pl.add(y[0:16, :], y[N * 16 - 16 : N * 16, :])
        """
    few, many = asked(tmp_path / "few", body, 64), asked(tmp_path / "many", body, 65)
    assert check(few.program, rules_of(["wide-fan-in"])).findings == ()
    (found,) = check(many.program, rules_of(["wide-fan-in"])).findings
    assert "up to 65 tasks of part" in found.message


def test_a_consumer_that_could_be_staged_is_named_where_that_saves_time(tmp_path: Path) -> None:
    one = asked(tmp_path, TRIANGLES)
    late = [finding for finding in one.audit.findings if finding.id == "late-consumer"]
    assert {finding.kernel for finding in late} <= {"a", "b"}
    assert all((finding.saves_ns or 0) > 0 for finding in late)
    under = Prediction(Request(one.request.file, runtime="hbg"))
    assert not [finding for finding in under.audit.findings if finding.id == "late-consumer"]  # nobody is staged there


def test_check_runs_these_rules_only_where_they_are_named(tmp_path: Path) -> None:
    file = asked(tmp_path, TRIANGLES).request.file
    usual = json.loads(npuscope("check", file, "--json").stdout)
    assert "implied-edge" not in {finding["id"] for finding in usual["findings"]}
    named = json.loads(npuscope("check", file, "--select", "implied-edge", "--json").stdout)
    assert [finding["id"] for finding in named["findings"]] == ["implied-edge"]
    assert named["findings"][0]["saves_ns"] is not None


def test_the_audit_counts_edges_and_prices_each_finding(tmp_path: Path) -> None:
    file = asked(tmp_path, TRIANGLES).request.file
    found = json.loads(npuscope("graph", file, "--audit", "--json").stdout)
    assert (found["tasks"], found["edges"], found["implied"], found["needless"]) == (24, 24, 8, 0)
    assert "implied-edge" in {finding["id"] for finding in found["findings"]}
    told = npuscope("graph", file, "--audit")
    assert "8 implied by others" in told.stdout
    refused = npuscope("graph", file, "--audit", "--dot", tmp_path / "x.dot")
    assert refused.returncode == 2


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    for name in ("few", "many"):
        (tmp_path / name).mkdir()


EXCHANGE = """
import numpy as np
import pypto.language as pl
import pypto.language.distributed as pld
from pypto.ir.distributed_compiled_program import DistributedConfig

@pl.jit
def exchange(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
             data: pld.DistributedTensor[[16, 64], pl.FP32], arrived: pld.DistributedTensor[[1, 8], pl.INT32],
             me: pl.Scalar[pl.INT32]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="push") as push:
        pld.tile.remote_store(pl.load(x, [0, 0], [16, 64]), target=data, peer=1 - me, offsets=[0, 0])
        pld.system.notify(target=arrived, peer=1 - me, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="wait", deps=[push]) as wait:
        pld.system.wait(signal=arrived, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="gather", deps=[wait]):
        out[:] = pl.mul(pl.load(data, [0, 0], [16, 64]), 2.0)
    return out

@pl.jit.host
def everyone(x: pl.Tensor[[2, 16, 64], pl.FP32], out: pl.Out[pl.Tensor[[2, 16, 64], pl.FP32]]):
    data_buf, arrived_buf = pld.alloc_window_buffer(16 * 64 * 4), pld.alloc_window_buffer(8 * 4)
    for r in pl.range(pld.world_size()):
        data = pld.window(data_buf, [16, 64], dtype=pl.FP32)
        arrived = pld.window(arrived_buf, [1, 8], dtype=pl.INT32)
        exchange(x[r], out[r], data, arrived, r, device=r)

x = np.ones((2, 16, 64), np.float32)
everyone(x, np.zeros_like(x), config=DistributedConfig(device_ids=[0, 1], num_sub_workers=0))
"""


def test_an_edge_that_a_signal_between_ranks_makes_sense_of_is_never_needless(tmp_path: Path) -> None:
    """What a peer writes is in no record of this rank: only the wait stands between it and who reads it."""
    (tmp_path / "exchange.py").write_text(EXCHANGE)
    one = Prediction(Request(str(tmp_path / "exchange.py")))
    assert {(1, 2)} <= set(one.program.graph.pairs)
    assert needless_deps(one.program) == frozenset()
    assert false_edges(one.program) == frozenset()
