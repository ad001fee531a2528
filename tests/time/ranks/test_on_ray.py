"""Programs over up to 64 ranks, and sweeps over layouts, on a local Ray cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuscope.answer.prediction import brief_answer_of
from npuscope.answer.request import Request
from npuscope.base.pool import Workers, run
from tests.time.ranks.test_together import PROGRAM

pytest.importorskip("ray")


@pytest.mark.full
def test_layouts_and_64_ranks_are_swept_on_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "everyone.py"
    file.write_text(PROGRAM.replace("EXPECTED", "1"))
    asked = [Request(str(file), (str(ranks),), skew=skew) for ranks in (2, 8, 64) for skew in (0.0, 1e4)]
    there = list(run(brief_answer_of, asked, Workers("ray", 2)))
    assert [answer.verdict for answer in there] == ["good"] * len(asked)
    times = [answer.time.value for answer in there if answer.time is not None]
    assert times[0] < times[2] < times[4], "more ranks, more peers to add up"
    here = [brief_answer_of(one) for one in asked[:4]]
    assert [one.time for one in here] == [one.time for one in there[:4]]
