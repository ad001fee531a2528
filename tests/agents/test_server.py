"""The server driven by the protocol's own client: every tool, schemas, errors, budgets, progress, cancelling;
and an agent that improves a slow kernel by reading nothing but what the tools return."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from npuscope.models import file_of
from npuscope.trace.example import write_decode_steps

pytest.importorskip("mcp")
from mcp import Client, StdioServerParameters
from mcp_types import ListRootsResult, Root
from pydantic import FileUrl

PROGRAM = str(Path(sys.executable).with_name("npuscope"))
SLOW = """
import numpy as np

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

M, N, K = 512, 3072, 2048
TILE_M, TILE_N, TILE_K = 128, 256, 256


@pl.jit
def gemm(a: pl.Tensor[[M, K], pl.BF16], b: pl.Tensor[[K, N], pl.BF16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
    for m in pl.parallel(0, M, TILE_M):
        for n in pl.parallel(0, N, TILE_N):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gemm"):
                total = pl.matmul(a[m : m + TILE_M, 0:TILE_K], b[0:TILE_K, n : n + TILE_N])
                for k in pl.range(TILE_K, K, TILE_K):
                    total = pl.matmul_acc(total, a[m : m + TILE_M, k : k + TILE_K], b[k : k + TILE_K, n : n + TILE_N])
                c[m : m + TILE_M, n : n + TILE_N] = total
    return c


def golden(tensors):
    tensors["c"][:] = tensors["a"].astype(np.float32) @ tensors["b"].astype(np.float32)


if __name__ == "__main__":
    specs = [
        TensorSpec("a", [M, K], pl.BF16, init_value=lambda rng: rng.normal(size=(M, K))),
        TensorSpec("b", [K, N], pl.BF16, init_value=lambda rng: rng.normal(size=(K, N))),
        TensorSpec("c", [M, N], pl.FP32, is_output=True),
    ]
    raise SystemExit(run_jit(fn=gemm, specs=specs, golden_fn=golden, rtol=1e-3, atol=1e-3).error)
"""


def served(story: Callable[[Client], Awaitable[None]], *roots: Path, **options: Any) -> None:
    """Tells a story to a server over standard input and output."""
    arguments = ["mcp", *(word for root in roots for word in ("--root", str(root)))]

    async def whole() -> None:
        with anyio.fail_after(600):
            async with Client(StdioServerParameters(command=PROGRAM, args=arguments), **options) as client:
                await story(client)

    anyio.run(whole)


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


def test_every_tool_is_listed_with_schemas_and_answers() -> None:
    async def story(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == {
            "judge", "explain", "compare", "what_if", "findings", "op", "chip", "rules", "guide", "sql", "fixes",
            "improve",
        }  # fmt: skip
        for name, tool in tools.items():
            assert tool.description
            assert tool.input_schema["type"] == "object"
            assert tool.output_schema is not None, name
        explain: Any = tools["explain"].output_schema
        assert "verdict" in explain["properties"]
        # an op, the chip, the rules
        assert (await answer(client, "op", name="row_max"))["name"] == "row_max"
        assert (await answer(client, "chip"))["limits"]["space.Mat.size"]["value"] == 524288
        assert "race" in {rule["id"] for rule in (await answer(client, "rules"))["rules"]}
        assert "pl.spmd" in (await answer(client, "guide"))["result"]
        # a program
        told = await answer(client, "explain", path="model:basics/gemm")
        assert told["verdict"] == told["causes"][0]["sentence"]
        assert (await answer(client, "what_if", path="model:basics/gemm"))["gains"]
        found = await answer(client, "findings", path="model:basics/softmax")
        assert {one["id"] for one in found["findings"]} == {"many-tasks"}

    served(story)


def test_patches_are_tried_and_shown_as_diffs() -> None:
    async def story(client: Client) -> None:
        found = await answer(client, "fixes", path=SLOW)
        gains = [one["saves_ns"] for one in found["fixes"]]
        assert gains == sorted(gains, reverse=True)
        assert all(one["diff"].startswith("--- a/") for one in found["fixes"])
        assert all(one["why"] for one in [*found["not_offered"], *found["unmended"]])
        # from then on what a finding is worth is what its fix gave, wherever the same program is asked about
        best = found["fixes"][0]
        known = (await answer(client, "findings", path=SLOW, budget=65536))["findings"]
        (mended,) = [one for one in known if one["id"] == "many-tasks"]
        assert mended["tried"] == "tried"
        assert max(one["saves_ns"] for one in known if one["tried"] == "tried") == best["saves_ns"]
        other = (await answer(client, "findings", path=f"{SLOW}\n# another one\n", budget=65536))["findings"]
        assert not any(one["tried"] == "tried" for one in other)
        improved = await answer(client, "improve", path=SLOW, trials=3)
        assert improved["best_ns"] <= improved["wall_ns"] == found["wall_ns"]
        assert len(improved["trials"]) <= 3

    served(story)


def test_captures_are_explained_and_compared(small: dict[str, Path]) -> None:
    capture = str(next(path for name, path in small.items() if "swimlane" in name))

    async def story(client: Client) -> None:
        told = await answer(client, "explain", path=capture, budget=2048)
        assert told["wall_ns"] > 0
        same = await answer(client, "compare", a=capture, b=capture)
        assert same["verdict"] == "B takes 1 times as long as A"
        assert (await answer(client, "sql", path=capture))["tables"]["gaps"]["dur"] == "int, ns: how long it took"
        [row] = (await answer(client, "sql", path=capture, query="SELECT COUNT(*) AS n FROM slices"))["rows"]
        assert row["n"] > 0
        files = await client.call_tool("sql", {"path": capture, "query": "SELECT * FROM read_csv('/etc/passwd')"})
        assert files.is_error
        assert "no files" in files.content[0].text

    served(story, Path(capture).parent)


def test_programs_are_compared_and_checked_as_files_sources_and_settings() -> None:
    async def story(client: Client) -> None:
        faster = SLOW.replace("pl.range(TILE_K, K, TILE_K)", "pl.pipeline(TILE_K, K, TILE_K, stage=2)")
        found = await answer(client, "compare", a=SLOW, b=faster, budget=4096)
        before, after = found["totals"]["wall_ns"]
        assert after < before
        assert len(json.dumps(found, ensure_ascii=False).encode()) <= 4096 + 64
        assert {one["id"] for one in (await answer(client, "findings", path=SLOW))["findings"]} >= {"many-tasks"}
        unfit = await answer(client, "findings", path=SLOW, settings={"TILE_N": "1024"})
        assert any(one["severity"] == "error" for one in unfit["findings"])

    served(story)


def test_an_argument_that_a_tool_does_not_take_is_refused() -> None:
    async def story(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            assert tool.input_schema["additionalProperties"] is False, tool.name
        wrong = await client.call_tool("chip", {"devise": "ascend910b1"})
        assert wrong.is_error
        assert "devise" in wrong.content[0].text

    served(story)


def test_mistakes_are_told_in_a_sentence_and_cost_nothing_else(tmp_path: Path) -> None:
    endless = "import npuscope.tile as pl\n\nwhile True:\n    pass\n"

    async def story(client: Client) -> None:
        missing = await client.call_tool("explain", {"path": str(tmp_path / "none.csv")})
        assert missing.is_error
        assert "no such file" in missing.content[0].text
        assert "Traceback" not in missing.content[0].text
        wrong = await client.call_tool("chip", {"device": "no_such_chip"})
        assert wrong.is_error
        told = await answer(client, "judge", programs=[endless, "raise ValueError('no')\n\n"], seconds=3, golden=False)
        assert [one["verdict"] for one in told["answers"]] == ["time", "fails"]
        assert (await answer(client, "op", name="row_max"))["name"] == "row_max"  # it goes on

    served(story, tmp_path)


def test_progress_is_told_and_budgets_are_kept() -> None:
    heard: list[float] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async def story(client: Client) -> None:
        programs = [file_of("model:basics/gemm"), file_of("model:basics/softmax")]
        arguments = {"programs": programs, "golden": False, "budget": 1024}
        result = await client.call_tool("judge", arguments, progress_callback=listen)
        assert not result.is_error, result.content
        assert result.structured_content is not None
        assert result.structured_content["of"] == 2
        for one in result.structured_content["answers"]:  # 512 bytes each
            assert len(json.dumps(one, ensure_ascii=False).encode()) <= 512
            assert one["cut"]

    served(story)
    assert heard


def test_a_call_that_is_cancelled_ends_its_program_and_the_next_is_answered(tmp_path: Path) -> None:
    told = tmp_path / "process"
    endless = f"import os\n\nopen({str(told)!r}, 'w').write(str(os.getpid()))\nwhile True:\n    pass\n"

    async def story(client: Client) -> None:
        async with anyio.create_task_group() as group:
            asked = {"programs": [endless], "seconds": 600, "golden": False}
            group.start_soon(client.call_tool, "judge", asked)
            while not (told.exists() and told.read_text()):  # it is under way
                await anyio.sleep(0.1)
            group.cancel_scope.cancel()
        while Path(f"/proc/{told.read_text()}").exists():  # it ends long before its time
            await anyio.sleep(0.1)
        assert (await answer(client, "chip"))["name"] == "ascend910b1"

    served(story)


def test_several_calls_at_a_time_are_all_answered() -> None:
    async def story(client: Client) -> None:
        found: dict[str, dict[str, Any]] = {}

        async def ask(name: str) -> None:
            program = file_of(f"model:basics/{name}")
            (found[name],) = (await answer(client, "judge", programs=[program], golden=False))["answers"]

        async with anyio.create_task_group() as group:
            for name in ("gemm", "softmax", "rope"):
                group.start_soon(ask, name)
            group.start_soon(answer, client, "op")
        assert {name: one["verdict"] for name, one in found.items()} == dict.fromkeys(found, "good")
        assert len({one["time"]["wall_ns"] for one in found.values()}) == 3

    served(story)


@pytest.mark.full
def test_a_small_agent_improves_a_slow_kernel_by_what_the_tools_say() -> None:
    """It knows nothing of kernels: it applies the line that a finding brings, and for tasks that could be blocks
    the form that the guide shows; it keeps what the judge calls faster."""

    async def story(client: Client) -> None:
        guide = (await answer(client, "guide"))["result"]
        assert "pl.spmd(BLOCKS" in guide
        source = SLOW
        (first,) = (await answer(client, "judge", programs=[source]))["answers"]
        assert first["verdict"] == "good"
        steps = 0
        for _ in range(4):
            (now,) = (await answer(client, "judge", programs=[source]))["answers"]
            candidate = next(
                (made for one in now.get("findings", []) if (made := mended(source, one)) is not None), None
            )
            if candidate is None:
                break
            (then,) = (await answer(client, "judge", programs=[candidate], baseline=source))["answers"]
            if then["verdict"] == "good" and then["versus"]["ratio"] < 1:
                source, steps = candidate, steps + 1
        (last,) = (await answer(client, "judge", programs=[source], baseline=SLOW))["answers"]
        assert steps >= 1
        assert last["right"] is True
        assert last["versus"]["ratio"] < 0.9

    served(story)


def mended(source: str, finding: dict[str, Any]) -> str | None:
    """The source with a finding's fix, where it is a line or the form of the guide."""
    lines = source.splitlines()
    if finding["id"] == "unpipelined-k":
        at = next((n for n, line in enumerate(lines) if "in pl.range(" in line), None)
        if at is None:
            return None
        lines[at] = re.sub(r"pl\.range\((.*)\)", r"pl.pipeline(\1, stage=2)", lines[at])
        return "\n".join(lines) + "\n"
    if finding["id"] == "many-tasks" and "pl.spmd" not in source:
        head = source.index("    for m in pl.parallel")
        tail = source.index("    return c\n")
        body = source[head:tail].splitlines()[3:]
        blocks = [
            '    for block in pl.spmd((M // TILE_M) * (N // TILE_N), name_hint="gemm"):',
            "        m = block // (N // TILE_N) * TILE_M",
            "        n = block % (N // TILE_N) * TILE_N",
            *(line[8:] for line in body),
        ]
        return source[:head] + "\n".join(blocks) + "\n" + source[tail:]
    return None


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return str(result.content[0].text)


@pytest.fixture
def rooms(tmp_path: Path) -> Path:
    """in/kernel.csv, and outside of `in` a table, a program and a device file with a secret, to which links lead."""
    for name in ("in", "out", "in/folder"):
        (tmp_path / name).mkdir()
    write_decode_steps(tmp_path / "in" / "kernel.csv")
    for name in ("secret.csv", "secret.py", "secret.toml"):
        (tmp_path / "out" / name).write_text("hunter2 = hunter2\n")
    (tmp_path / "in" / "link.csv").symlink_to(tmp_path / "out" / "secret.csv")
    (tmp_path / "in" / "folder" / "kernel_details.csv").symlink_to(tmp_path / "out" / "secret.csv")
    return tmp_path


def test_nothing_outside_the_roots_is_read(rooms: Path) -> None:
    # GIVEN a server with one root
    inside, out = str(rooms / "in" / "kernel.csv"), rooms / "out"
    heir = rooms / "in" / "heir.toml"
    heir.write_text('name = "heir"\ninherits = "../out/secret.toml"\n')

    async def story(client: Client) -> None:
        # WHEN tools are asked for what lies in it, and for a model
        assert (await answer(client, "explain", path=inside))["wall_ns"] > 0
        assert (await answer(client, "findings", path="model:basics/softmax"))["findings"]
        # THEN they answer; what lies elsewhere is refused in a sentence without its content
        asked: list[tuple[str, dict[str, Any]]] = [
            ("explain", {"path": str(out / "secret.csv")}),
            ("explain", {"path": str(rooms / "in" / ".." / "out" / "secret.csv")}),
            ("explain", {"path": str(rooms / "in" / "link.csv")}),
            ("explain", {"path": str(rooms / "in" / "folder")}),
            ("explain", {"path": inside, "device": str(out / "secret.toml")}),
            ("compare", {"a": inside, "b": str(out / "secret.csv")}),
            ("what_if", {"path": str(out / "secret.csv")}),
            ("findings", {"path": str(out / "secret.py")}),
            ("judge", {"programs": [str(out / "secret.py")]}),
            ("judge", {"programs": ["import os\n\n"], "baseline": str(out / "secret.py")}),
            ("chip", {"device": str(out / "secret.toml")}),
            ("op", {"device": str(out / "secret.toml")}),
            ("chip", {"device": str(heir)}),
            ("findings", {"path": "model:basics/softmax", "device": str(heir)}),
        ]
        for tool, arguments in asked:
            text = await refusal(client, tool, **arguments)
            assert "outside the folders" in text, (tool, arguments)
            assert "hunter2" not in text
            assert "\n" not in text

    served(story, rooms / "in")


def test_the_roots_of_the_client_are_allowed_too(rooms: Path) -> None:
    async def roots(_: object) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl((rooms / "in").as_uri()))])

    async def story(client: Client) -> None:
        assert (await answer(client, "explain", path=str(rooms / "in" / "kernel.csv")))["wall_ns"] > 0
        assert "outside the folders" in await refusal(client, "explain", path=str(rooms / "out" / "secret.csv"))

    served(story, rooms / "in" / "folder", list_roots_callback=roots)
