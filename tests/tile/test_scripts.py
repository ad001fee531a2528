"""Scripts written for PyPTO: what they import and how they call is served."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.tile.fault import TileError
from npuscope.tile.script.run import run_script

W = 32


@pl.jit
def plus_one(x: pl.Tensor[[4, W], pl.FP32], y: pl.Out[pl.Tensor[[4, W], pl.FP32]], n: pl.Scalar[pl.INT32]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="add"):
        tile = pl.load(x, [0, 0], [4, W])
        for _i, (acc,) in pl.range(n, init_values=(tile,)):
            (tile,) = pl.yield_(pl.add(acc, 1.0))
        y = pl.store(tile, [0, 0], y)
    return y


def test_outputs_may_be_left_out_and_come_back() -> None:
    x = np.zeros((4, W), np.float32)
    assert (plus_one(x, 3) == 3).all()
    assert (plus_one(x, 0) == 0).all()
    given = np.zeros((4, W), np.float32)
    plus_one(x, given, 2)
    assert (given == 2).all()


def test_what_compile_returns_can_be_called_and_names_its_functions() -> None:
    x, y = np.zeros((4, W), np.float32), np.zeros((4, W), np.float32)
    compiled = plus_one.compile(x, y, 2)
    assert {name: f.func_type.name for name, f in compiled.program.functions.items()} == {
        "plus_one": "Orchestration",
        "add": "AIV",
    }
    assert (y == 0).all()  # nothing ran yet
    compiled(x, y, 2, config=None)
    assert (y == 2).all()


def script(folder: Path, text: str) -> Path:
    file = folder / "script.py"
    file.write_text(text)
    return file


SETTINGS = """
import numpy as np
import pypto.language as pl
from pypto import backend
from pypto.backend import BackendType, set_backend_type
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.ir.pass_manager import OptimizationStrategy
from pypto.runtime import RunConfig, run

@pl.jit
def copy(x: pl.Tensor[[1, 32], pl.FP32], y: pl.Out[pl.Tensor[[1, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.store(pl.load(x, [0, 0], [1, 32]), [0, 0], y)
    return y

set_backend_type(BackendType.Ascend910B)
x, y = np.ones((1, 32), np.float32), np.zeros((1, 32), np.float32)
settings = RunConfig(platform="a2a3", strategy=OptimizationStrategy.Default)
assert settings.platform == "a2a3"
run(copy, x, y, config=settings)
assert (y == 1).all()
"""


def test_settings_that_mean_nothing_here_are_taken(tmp_path: Path) -> None:
    ran = run_script(script(tmp_path, SETTINGS))
    assert [len(recording.tasks) for recording in ran.recordings] == [1]


def test_a_checkout_of_pypto_on_the_path_is_not_taken_for_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    tmp_path.joinpath("pypto", "python").mkdir(parents=True)
    assert len(run_script(script(tmp_path, SETTINGS)).recordings) == 1


def test_the_compilers_own_parts_are_named_as_such(tmp_path: Path) -> None:
    text = "import pypto.language as pl\nfrom pypto.ir.pass_manager import PassManager\nPassManager()"
    with pytest.raises(NpuscopeError, match=r"PassManager belongs to PyPTO's compiler"):
        run_script(script(tmp_path, text))


def test_what_a_script_imports_of_the_compiler_and_does_not_use_is_no_hindrance(tmp_path: Path) -> None:
    unused = """
from pypto.backend.pto_backend import PartialCodegenError
from pypto.pypto_core import passes
from pypto.torch import init, register

TILES = passes.l0_tile_chooser.choices

class Renamed(passes.Mutator):
    def planned(self, planner: passes.MemoryPlanner | None = None) -> PartialCodegenError | None: ...

init()
try:
    register(copy, "mine::copy")(x, y)
except PartialCodegenError:
    raise SystemExit("nobody raises it here")
assert not hasattr(copy, "return_types")
"""
    assert len(run_script(script(tmp_path, SETTINGS + unused)).recordings) == 2
    with pytest.raises(NpuscopeError, match=r"passes.Mutator belongs to PyPTO's compiler"):
        run_script(script(tmp_path, SETTINGS + unused + "Renamed()\n"))
    with pytest.raises(NpuscopeError, match=r"copy.params belongs to PyPTO's IR"):
        run_script(script(tmp_path, SETTINGS + "print(copy.params)\n"))


def test_an_output_of_unknown_shape_cannot_be_left_out() -> None:
    @pl.jit
    def unknown(x: pl.Tensor[[4, W], pl.FP32], y: pl.Out[pl.Tensor]):
        return y

    with pytest.raises(TileError, match="y: its shape is not declared"):
        unknown(np.zeros((4, W), np.float32))


STEERED = """
import numpy as np
import pypto.language as pl

@pl.jit
def steered(x: pl.Tensor[[1, 32], pl.FP32], y: pl.Out[pl.Tensor[[1, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:] = x
    if pl.read(x, [0, 0]) > 0.5:  # a float: shapes mode does not compute it
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:] = pl.add(x, 1.0)
    return y

steered(np.full((1, 32), {value}, np.float32), np.zeros((1, 32), np.float32))
"""


@pytest.mark.parametrize(("value", "count"), [(1.0, 2), (0.0, 1)])
def test_a_program_that_values_steer_computes_those_and_says_so(value: float, count: int, tmp_path: Path) -> None:
    [recording] = run_script(script(tmp_path, STEERED.format(value=value)), mode="shapes").recordings
    assert (recording.mode, len(recording.tasks)) == ("shapes", count)
    [note] = recording.notes
    assert note.startswith("values decide what runs (last at script.py, line 9): those were computed")


WORKERS = """
import numpy as np
import pypto.language as pl
from pypto import backend, ir
from pypto.ir.compiled_program import CompiledProgram
from pypto.pypto_core import ir as core
from pypto.runtime import ChipWorker, DistributedWorker, RunConfig, StackedDeviceTensor

@pl.jit
def twice(x: pl.Tensor[[4, 64], pl.FP32], y: pl.Out[pl.Tensor[[4, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.store(pl.add(pl.load(x, [0, 0], [4, 64]), pl.load(x, [0, 0], [4, 64])), [0, 0], y)
    return y

def cores(chip, kind):
    return sum(
        n * clusters * dies
        for die, dies in chip.soc.die_counts.items()
        for cluster, clusters in die.cluster_counts.items()
        for one, n in cluster.core_counts.items()
        if one.core_type == kind
    )

x, y = np.full((4, 64), 3, np.float32), np.zeros((4, 64), np.float32)
compiled = twice.compile(x, y)
assert isinstance(compiled, CompiledProgram)
with ChipWorker(config=RunConfig()) as worker:
    kept = worker.alloc_tensor((4, 64), np.float32, init=x)
    handle = worker.register(compiled)
    handle(kept, y)
    assert (y == 6).all()
    x[...] = 0  # a copy was kept
    y[...] = 0
    worker.submit(compiled, kept, y).result()
    assert (y == 6).all() and worker.aicpu_dlopen_count == 1
with DistributedWorker([compiled, compiled]) as shared:
    shared.run(compiled, y, kept)
    assert (kept == 12).all()
    try:
        shared(y, kept)
    except TypeError as error:
        print(error)
worker = compiled.prepare()
worker(kept, y)
assert (y == 24).all()
weights = np.stack([np.full((4, 64), n, np.float32) for n in (5, 6)])
stacked = worker.alloc_stacked_tensor(weights, worker_ids=[1, 0])
weights[...] = 0  # a copy was kept
assert isinstance(stacked, StackedDeviceTensor) and stacked.shape == (2, 4, 64) and stacked.worker_ids == (1, 0)
worker(stacked[1], y)
assert (y == 12).all()
worker.copy_stacked_from(stacked, weights)
assert (weights[0] == 5).all()
worker.free_stacked_tensor(stacked)
try:
    worker.alloc_stacked_tensor(weights, worker_ids=[1, 1])
except ValueError as error:
    print(error)
worker.close()
try:
    worker.register(compiled)
except RuntimeError as error:
    print(error)
for chip in (backend.Backend910B.instance(), backend.Backend950.instance()):
    print(*(cores(chip, kind) for kind in core.CoreType), *(chip.get_core_count(kind) for kind in core.CoreType))
"""


def test_workers_keep_tensors_and_chips_tell_their_cores(tmp_path: Path) -> None:
    ran = run_script(script(tmp_path, WORKERS), echo=False)
    refused = [
        "a call is ambiguous with 2 programs: use run(compiled, ...)",
        "alloc_stacked_tensor: 2 parts on the cards [1, 1]: one card each",
        "register called after close",
    ]
    assert ran.output.splitlines() == [*refused, "48 24 48 24", "72 36 72 36"]
    assert len(ran.recordings) == 5


def test_callbacks_of_a_worker_that_nobody_would_call_are_refused(tmp_path: Path) -> None:
    text = "from pypto.runtime import Worker\nWorker(callbacks={'done': print})\n"
    with pytest.raises(NpuscopeError, match="are not sub-workers of the program"):
        run_script(script(tmp_path, text), echo=False)


@pytest.mark.parametrize("draw", ["random.randint(1, 40)", "np.random.randint(1, 40)", "int(torch.randint(1, 40, ()))"])
def test_what_is_drawn_without_a_seed_is_the_same_in_every_run(
    draw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "torch" in draw:
        pytest.importorskip("torch")
    file = tmp_path / "drawn.py"
    file.write_text(
        f"import random\nimport numpy as np\nimport pypto.language as pl\n{'import torch' * ('torch' in draw)}\n"
        f"TURNS = [{draw} for _ in range(3)]\n\n@pl.jit\n"
        "def f(x: pl.Tensor[[40, 16], pl.FP32], y: pl.Out[pl.Tensor[[40, 16], pl.FP32]]):\n"
        "    for turns in TURNS:\n        for i in pl.range(turns):\n"
        "            with pl.at(level=pl.Level.CORE_GROUP):\n"
        "                y[i : i + 1, :] = pl.add(x[i : i + 1, :], 1.0)\n    return y\n\n"
        "f(np.zeros((40, 16), np.float32), np.zeros((40, 16), np.float32))\n"
    )

    def tasks() -> int:
        return len(run_script(file).recordings[0].tasks)

    before = random.getstate()
    first = tasks()
    assert tasks() == first
    assert random.getstate() == before  # of whoever asks nothing changes
    monkeypatch.setenv("NPUSCOPE_SEED", "7")
    assert tasks() != first


@pytest.mark.parametrize(
    ("platform", "device", "chip", "noted"),
    [
        ("a5sim", "", "ascend950dt", "the program asks for the platform a5sim; the chip is ascend950dt"),
        ("a5", "910b2", "ascend910b2", "the program asks for the platform a5; --device chose ascend910b2"),
        ("a2a3", "", "ascend910b1", None),
        ("elsewhere", "", "ascend910b1", None),
    ],
)
def test_a_platform_chooses_the_chip_unless_it_is_named(
    platform: str, device: str, chip: str, noted: str | None, tmp_path: Path
) -> None:
    text = (
        "import numpy as np\nimport pypto.language as pl\nfrom golden import TensorSpec, run_jit\n\n@pl.jit\n"
        "def f(y: pl.Out[pl.Tensor[[8, 16], pl.FP32]]):\n    with pl.at(level=pl.Level.CORE_GROUP):\n"
        "        y[:] = pl.full([8, 16], dtype=pl.FP32, value=1.0)\n    return y\n\n"
        "specs = [TensorSpec('y', [8, 16], np.float32, is_output=True)]\n"
        f"run_jit(fn=f, specs=specs, runtime_cfg={{'platform': '{platform}'}})\n"
    )
    one = Prediction(Request(str(script(tmp_path, text)), device=device))
    assert one.simulated.prepared.program.device.name == chip
    assert [note for note in one.recording.notes if "platform" in note] == ([noted] if noted else [])


def test_annotations_that_are_text_see_the_factory_around_them(tmp_path: Path) -> None:
    """GIVEN `from __future__ import annotations` and a class made in a function WHEN its methods name that function's
    numbers, or what only the device has, THEN outputs are outputs.
    """
    script = tmp_path / "factory.py"
    script.write_text(
        """
from __future__ import annotations
import numpy as np
import pypto.language as pl

def make(rows):
    @pl.program
    class Twice:
        @pl.function(type=pl.FunctionType.Orchestration)
        def main(self, x: pl.Tensor[[rows, 16], pl.FP32], n: other.Scalar, y: pl.Out[pl.Tensor[[other, 16], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[:] = pl.mul(x, 2.0)
            return y
    return Twice

x, y = np.ones((32, 16), np.float32), np.zeros((32, 16), np.float32)
make(32)(x, 3, y)
assert (y == 2).all()
"""
    )
    ran = run_script(script, mode="values")
    assert ran.exit_code == 0
    assert not [one for one in ran.recordings[0].notices if one.kind == "direction"]


def test_a_script_that_benchmarks_its_program_runs_it_once(tmp_path: Path) -> None:
    """The device's times are 0, as on PyPTO's own simulators, and a script can ask whether they are."""
    script = tmp_path / "bench.py"
    script.write_text(
        """
import numpy as np
import pypto.language as pl
from pypto.runtime import BenchmarkStats, RunConfig, benchmark

@pl.jit
def twice(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:] = pl.mul(x, 2.0)
    return y

x, y = np.ones((16, 16), np.float32), np.zeros((16, 16), np.float32)
stats = benchmark(twice.compile(x, y), [x, y], rounds=5, warmup=1, config=RunConfig(platform="a2a3sim"))
assert isinstance(stats, BenchmarkStats) and stats.all_zero_device and (y == 2).all()
assert (stats.rounds, stats.samples, stats.per_round(), stats.per_round("union")) == (5, [0.0] * 5, [0.0] * 5, [])
assert (stats.device_us_median, stats.device_wall_us_min, stats.per_rank("device")) == (0.0, 0.0, {})
"""
    )
    ran = run_script(script, mode="values")
    assert (ran.exit_code, len(ran.recordings)) == (0, 1)
