"""`report` and `forward` say the same of a run's steps: how many, of which phase, how long, how many layers."""

from pathlib import Path

import numpy as np
import pytest
from builders import write_events, x
from made import Task, made
from written_passes import same

import npuscope
from npuscope import explain as analysis
from npuscope.explain.passes.found import passes
from npuscope.explain.passes.layers import usual_size
from npuscope.explain.passes.statistics import statistics
from npuscope.trace import Trace

LAYER = ("rms_norm", "qkv_gemm", "flash_fwd_kernel", "out_gemm", "mlp_gemm")
US = 1000


class Stream:
    """Kernels of 10 µs end to end on a stream of a torch-profiler file, each launched 5 µs before it begins."""

    def __init__(self) -> None:
        self.now, self.events = 100, list[dict[str, object]]()

    def run(self, *kernels: str, each: int = 10) -> None:
        for name in kernels:
            id = len(self.events)
            launch = x("cudaLaunchKernel", self.now - 5, 1, cat="cuda_runtime", args={"correlation": id})
            kernel = x(name, self.now, each, pid=0, tid=7, cat="kernel", args={"correlation": id})
            self.events += [launch, kernel]
            self.now += each

    def step(self, name: str, *kernels: str, each: int = 10, late: int = 0) -> None:
        """A step that the host marks, from before its first launch to behind its last kernel."""
        began = self.now + late - 6
        self.now += late
        self.run(*kernels, each=each)
        self.events.append(x(name, began, self.now - began, cat="user_annotation"))
        self.now += 20

    def read(self, path: Path) -> Trace:
        return npuscope.read(write_events(path / "t.json", self.events, deviceProperties=[]))


def test_a_prefill_among_decodes_is_no_outlier(tmp_path: Path) -> None:
    # GIVEN a prefill of 6 layers with kernels of 200 µs, then four decodes with kernels of 10
    stream, body = Stream(), ("embedding_kernel", *LAYER * 6, "argmax_kernel")
    stream.step("execute_context_1(2048)_generation_0(0)", *body, each=200)
    for _ in range(4):
        stream.step("execute_context_0(0)_generation_8(8)", *body)
    # WHEN / THEN the first step is of another kind, not slow
    steps, found = same(stream.read(tmp_path))
    assert (steps.outliers, steps.first_penalty) == ([], None)
    assert steps.table["phase"].to_list() == ["prefill", *["decode"] * 4]
    assert found.table["tokens"].to_list() == [2048, 8, 8, 8, 8]
    assert steps.layers == 6 == found.table["layers"][0]
    assert "step" not in {cause.kind for cause in analysis.explain(stream.read(tmp_path)).diagnosis.causes}


def test_a_slow_decode_among_decodes_is_one(tmp_path: Path) -> None:
    stream, body = Stream(), ("embedding_kernel", *LAYER * 6, "argmax_kernel")
    for each in (10, 10, 30, 10):
        stream.step("execute_context_0(0)_generation_8(8)", *body, each=each)
    assert same(stream.read(tmp_path))[0].outliers == [2]


def test_a_stray_kernel_does_not_stretch_a_step(tmp_path: Path) -> None:
    # GIVEN one kernel, 5 ms of nothing although the next ones are launched, and a pass of 32 kernels of 10 µs
    stream = Stream()
    stream.run("fill_kernel")
    early = stream.now
    stream.now = early + 5000
    stream.run("embedding_kernel", *LAYER * 6, "argmax_kernel")
    launches = [event for event in stream.events if event["name"] == "cudaLaunchKernel"]
    for number, launch in enumerate(launches):
        launch["ts"] = 90 + 0.1 * number
    stream.events.append(x("step[DECODE bs=4]", 80, 100, cat="user_annotation"))
    # WHEN / THEN
    steps, found = same(stream.read(tmp_path))
    assert steps.table["span_ns"].to_list() == [32 * 10 * US]
    assert (steps.unassigned, found.outside) == (1, 1)


def test_steps_of_a_diffusion_are_passes_and_not_layers(tmp_path: Path) -> None:
    # GIVEN one step of the profiler: a text encoder of 4 layers, then 3 times a transformer of 8 layers
    stream = Stream()
    denoise = ("time_embed", "modulate", "silu_kernel", *LAYER * 8, "final_norm", "unpatchify", "scheduler_kernel")
    encode = ("embedding_kernel", *("text_norm", "text_gemm", "flash_fwd_kernel", "text_mlp") * 4, "pool", "project")
    stream.step("ProfilerStep#3", *encode, *denoise * 3)
    # WHEN / THEN
    steps, found = same(stream.read(tmp_path))
    assert found.table["layers"].to_list() == [4, 8, 8, 8]
    assert (steps.table.height, found.count.passes, steps.layers) == (1, 4, 8)


def test_what_is_typical_of_several_models_is_the_one_of_most_time(tmp_path: Path) -> None:
    # GIVEN two text encoders, 4 times a transformer of 12 layers, and a decoder of images with one attention
    stream = Stream()
    denoise = ("time_embed", "modulate", "silu_kernel", *LAYER * 12, "final_norm", "unpatchify", "scheduler_kernel")
    encode = ("embedding_kernel", *("text_norm", "text_gemm", "flash_fwd_kernel", "text_mlp") * 4, "pool", "project")
    stream.step("ProfilerStep#3", *encode * 2, *denoise * 4, "conv_in", "flash_fwd_kernel", "conv_out")
    # WHEN / THEN
    _, found = same(stream.read(tmp_path))
    assert found.table["layers"].to_list() == [4, 4, 12, 12, 12, 12, 1]
    assert found.table["complete"].to_list()[1:5] == [True] * 4
    assert statistics(found).passes == (2, 3, 4, 5)


def test_a_decoder_that_nothing_parts_from_the_last_step_makes_no_pieces_of_the_others() -> None:
    assert usual_size(np.array([12, 32, 12, 32, 38, 38, 38, 39])) == 38
    assert usual_size(np.array([3, 1, 1, 1, 40])) == 40  # a draft between the rest of one pass and a whole one


TRAINING = [f"conv_{name}" for name in "abcdefghij"] + ["loss_kernel", "conv_wgrad_kernel", "bn_backward", "sgd_step"]


@pytest.mark.parametrize("marked", [True, False])
def test_training_steps_are_steps_marked_or_not(tmp_path: Path, marked: bool) -> None:
    # GIVEN five steps of a network without attention
    stream = Stream()
    for number in range(5):
        stream.step(f"ProfilerStep#{number}" if marked else "forward", *TRAINING)
    # WHEN / THEN
    steps, found = same(stream.read(tmp_path))
    assert steps.table["phase"].to_list() == ["training"] * 5 == found.table["phase"].to_list()
    assert steps.table["span_ns"].to_list() == [len(TRAINING) * 10 * US] * 5
    assert steps.layers is None
    assert steps.source == ("column" if marked else "passes")


def test_an_attention_for_training_is_no_prefill() -> None:
    names = ["Embedding", *["RmsNorm", "MatMulV2", "FlashAttentionScore", "SwiGlu"] * 4, "MatMulV2"]
    shapes = {"Input Shapes": '"4096,1,4096;4096,1,4096"'}
    tasks = [
        Task(n, f"{name}_{n}", "stream_1", 10 * n, 10 * n + 9, more=(("Type", name), *shapes.items()))
        for n, name in enumerate(names)
    ]
    assert passes(made(tasks)).table["phase"].to_list() == ["unknown"]
    backward = Task(99, "g", "stream_1", 180, 189, more=(("Type", "FlashAttentionScoreGrad"), *shapes.items()))
    assert passes(made([*tasks, backward])).table["phase"].to_list() == ["training"]


def test_a_pass_that_no_step_marks_counts_in_both(tmp_path: Path) -> None:
    # GIVEN the rest of a pass before the profiler's first step, which is whole
    stream, body = Stream(), ("embedding_kernel", *LAYER * 6, "argmax_kernel")
    stream.run(*LAYER * 2, "argmax_kernel")
    stream.now += 50
    stream.step("ProfilerStep#6", *body)
    # WHEN / THEN
    steps, found = same(stream.read(tmp_path))
    assert (found.count.passes, found.count.clean, found.count.layers) == (2, 1, 6)
    assert (steps.table.height, found.count.pass_ns) == (1, len(body) * 10 * US)
