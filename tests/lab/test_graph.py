"""The graph panel: boxes that open into tasks, edges by kind, false ones and races, zoomed and dragged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import chromium, watched_page
from planted_races import lost_war

import npuscope.tile as pl
from npuscope.check.races import races
from npuscope.check.races.conflicts import false_edges
from npuscope.chip.devices import load
from npuscope.explain.work import area_rules
from npuscope.lab.document import document
from npuscope.lab.payload.graph import graph, graph_of
from npuscope.lab.program_runs import graph_page
from npuscope.lower.program import Program
from npuscope.tile.graph.outputs import count_graphs
from npuscope.tile.graph.task_graph import task_graph
from npuscope.tile.record.model import Recording
from tests.lab.app import opened, state
from tests.tile.graph.test_by_kernel import diamond

NASTY = '<script>alert("k")</script>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def recording() -> Recording:
    return diamond.record(np.ones((16, 64), np.float32), np.zeros((16, 64), np.float32)).recording


@pl.jit
def halves(x: pl.Tensor[[32, 64], pl.FP32], y: pl.Out[pl.Tensor[[32, 64], pl.FP32]]):
    """Each reader takes a half of what two writers made, and waits for both: it is given the whole."""
    mid = pl.create_tensor([32, 64], dtype=pl.FP32)
    for i in pl.parallel(2):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="write"):
            mid[i * 16 : i * 16 + 16, :] = pl.add(x[i * 16 : i * 16 + 16, :], 1.0)
    for i in pl.parallel(2):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="read"):
            y[i * 16 : i * 16 + 16, :] = pl.mul(mid[i * 16 : i * 16 + 16, :], 2.0)
    return y


def program_of(made: Any) -> Program:
    found = made.record(np.ones((32, 64), np.float32), np.zeros((32, 64), np.float32)).recording
    return Program(found, load("ascend910b1"))


def test_edges_between_kernels_and_tasks_are_those_of_the_graph(recording: Recording) -> None:
    found = task_graph(recording)
    text: Any = graph_of(recording, found)
    pairs = {pair: why for pair, why in found.pairs.items() if pair[0] >= 0}
    assert sum(edge["count"] for edge in text["edges"]) == len(pairs)
    assert {(node["kernel"], tuple(node["tasks"])) for node in text["nodes"]} == {
        (task.kernel, (task.id,)) for task in recording.tasks
    }


def test_edges_that_order_nothing_are_marked() -> None:
    program = program_of(halves)
    false = false_edges(program)
    assert false == {(0, 3), (1, 2)}  # write 0 and read 1 of tasks 0 1 | 2 3: other halves
    text: Any = graph(program)["programs"]
    assert text[0]["false"] == 2
    assert [edge["false"] for edge in text[0]["edges"]] == [2]


def test_the_page_draws_every_kernel_and_runs_nothing(recording: Recording, browser: Any, tmp_path: Path) -> None:
    tasks = [replace(t, kernel=NASTY) if t.kernel == "middle" else t for t in recording.tasks]
    edited = replace(recording, tasks=tuple(tasks))
    found = task_graph(edited)
    page_file = tmp_path / "page.html"
    page_file.write_text(
        graph_page("diamond.py", True, [(edited, found, count_graphs([edited], [found], area_rules(None)))])
    )
    with watched_page(browser) as watched:
        page = watched.page
        page.goto(page_file.as_uri())
        page.wait_for_selector("svg.graph .node")
        names = page.locator("svg.graph .node .name").all_text_contents()
        assert sorted(names) == ["<script>a…</script>", "first", "last", "late_seed"]
        assert page.locator("svg.graph path.edge").count() == 3
        assert "golden (the numbers it should give): PASS" in page.locator("#panel").inner_text()
        assert NASTY in page.locator("#panel table").first.inner_text()
        assert page.locator("#app script").count() == 0
        assert watched.errors == []


def test_a_kernel_opens_into_its_tasks(browser: Any, tmp_path: Path) -> None:
    data = document("halves", [], {"graph": graph(program_of(halves))})
    with watched_page(browser, viewport={"width": 1200, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, data)
        page.wait_for_selector("svg.graph .node")
        assert page.locator("path.edge.false").count() == 1  # between the two kernels
        page.locator(".node[data-kernel='read']").dblclick()
        assert page.locator(".task").all_text_contents() == ["2", "3"]
        page.locator(".node[data-kernel='write']").focus()
        page.keyboard.press("Enter")
        assert page.locator(".task").count() == 4
        # each reader waits for both writers, for one of them in vain
        assert page.locator("path.edge").count() == 4
        assert page.locator("path.edge.false").count() == 2
        page.locator(".task[data-task='3']").click()
        assert state(page, "selection") == {"kind": "task", "task": 3}
        assert page.locator("path.edge.own").count() == 2
        page.get_by_label("Close all kernels").click()
        assert page.locator(".task").count() == 0
        assert watched.errors == []


def test_it_is_zoomed_and_dragged(recording: Recording, browser: Any, tmp_path: Path) -> None:
    data = document("diamond", [], {"graph": {"programs": [graph_of(recording, task_graph(recording))]}})
    with watched_page(browser, viewport={"width": 1200, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, data)
        page.wait_for_selector("svg.graph .node")
        first = page.locator(".node[data-kernel='first'] .box")
        before = first.bounding_box()
        page.locator("#panel").get_by_label("Zoom in").click()
        larger = first.bounding_box()
        assert larger["width"] == pytest.approx(1.3 * before["width"], rel=0.02)
        sheet = page.locator("svg.graph").bounding_box()
        x, y = sheet["x"] + 20, sheet["y"] + sheet["height"] - 20
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 80, y - 50, steps=4)
        page.mouse.up()
        moved = first.bounding_box()
        assert moved["x"] - larger["x"] == pytest.approx(80, abs=2)
        assert moved["y"] - larger["y"] == pytest.approx(-50, abs=2)
        page.get_by_label("All of it").click()
        assert first.bounding_box()["x"] == pytest.approx(before["x"], abs=1)


def test_a_race_is_drawn_with_its_remedy(browser: Any, tmp_path: Path) -> None:
    program = program_of(lost_war(safe=False))
    found = races(program)
    assert found
    data = document("race", [], {"graph": graph(program)})
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, data)
        page.wait_for_selector("svg.graph .node")
        assert page.locator("g.race").count() == len(found)
        assert found[0].remedy in page.locator("#panel .notes").inner_text()
