"""The first sentence of real captures beside what an expert says of them: docs/understand/diagnoses.md.

    python benchmarks/diagnoses.py FOLDER [--write docs/understand/diagnoses.md]

FOLDER holds the captures under the paths below. The expert is an author of npuscope who looked at each timeline and
knew what npuscope says; a miss is a first cause of another kind than the expert names, and stays in the table.
"""

# ruff: noqa: E501 - a sentence of the table is a line
from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from evidence_page import write_page

from npuscope import explain as analysis
from npuscope.explain.diagnosis import Diagnosis
from npuscope.trace import read


@dataclass(frozen=True)
class Expert:
    """A capture, what it is and where it is public, and what an expert says of it first."""

    path: str
    what: str
    origin: str
    kind: str
    says: str


HTA, TRACELENS = "facebookresearch/HolisticTraceAnalysis", "AMD-AGI/TraceLens"
INSIGHT, ESL, SIMPLER = "xiaobingling93-pixel/Ascend-msinsight", "yanghaoran29/esl_proxy", "hw-native-sys/simpler"
CNN = "ascend/msinsight_cnn/level{}/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/{}"
EXPERTS = (
    Expert("ascend/longcat_910c/kernel_details.csv", "LLM decode, 5 steps, one Ascend 910C die, kernel table",
           "ParanoidHW/kernel_evaluation", "step",
           "The first step waits 14 ms in one AllReduce for another rank; every step idles a fifth of its "
           "time in pauses of "
           "20 to 800 µs, which look like the host's."),
    Expert(CNN.format(0, "kernel_details.csv"), "CNN training step, Ascend, kernel table", INSIGHT, "communication",
           "The step waits 73 of 116 ms in its first AllReduce; compute is only 9 ms."),
    Expert(CNN.format(0, "trace_view.json"), "the same step as a timeline with its host", INSIGHT, "communication",
           "The same AllReduce of 73 ms; the host also leaves 15 ms at the end of the step unused."),
    Expert(CNN.format(1, "trace_view.json"), "another run of that step, more profiled", INSIGHT, "communication",
           "AllReduces take 102 of 156 ms and nothing hides them, one of them 79 ms."),
    Expert("ascend/msinsight_cnn_db/level2/ascend_pytorch_profiler_0.db", "a third run, profiler database", INSIGHT,
           "communication", "One AllReduce of 80 ms; besides, the host launches late for a fifth of the step."),
    Expert("ascend/mstt_2023/kernel_details.csv", "LLM training step, Ascend, kernel table of 2023",
           "xiaobingling93-pixel/Ascend-mstt", "communication",
           "A broadcast at the beginning waits 309 of 517 ms for other ranks."),
    Expert(
           "ascend/npu_mfu_sample/ASCEND_PROFILER_OUTPUT/kernel_details.csv", "first 200 kernels of a 4-rank job, Ascend",
           "lishanni/npu-mfu-analyzer", "communication",
           "Weights are gathered before every layer and nothing hides it: 96 % of the busy time is "
           "allGather. The first 116 ms "
           "belong to the start of the job."),
    Expert("gpu/hta_nccl_base_time_rank0.json.gz", "training, 2 × A100, PyTorch", HTA, "launch",
           "The GPU is 24 % busy: the host launches a kernel of 44 µs every 180 µs."),
    Expert("gpu/hta_timeline_int_us_rank0.json.gz", "recommendation model, 128 GPUs", HTA, "host",
           "The GPU has nothing to do more than half of the time, mostly in pauses of several ms; the "
           "exchange between ranks "
           "is 27 % and not hidden."),
    Expert("gpu/hta_diff_control.json.gz", "recommendation model, rank 3 of 8", HTA, "communication",
           "Mostly compute; what can be won is the exchange between ranks, 19 % of the time beside no "
           "compute, then 11 % of "
           "slow launches."),
    Expert("gpu/hta_diff_test.json.gz", "the same model, other settings", HTA, "core",
           "Compute takes three quarters of the time and doubled against the run before; copies within the "
           "device are 13 %."),
    Expert("gpu/hta_t1_df_index_resolver.json.gz", "training with many small kernels", HTA, "launch",
           "The host is the limit: 11,700 pauses before launches, 37 % of the time; then AllReduces that "
           "nothing hides, 21 %."),
    Expert("gpu/tracelens_h100_qwen1.5_0.5b.json.gz", "Qwen1.5-0.5B prefill, H100", TRACELENS, "core",
           "The GPU computes 92 % of the time; only faster kernels help."),
    Expert("gpu/tracelens_sglang_qwen3_8b_decode.json.gz", "one SGLang decode step, MI300X", TRACELENS, "core",
           "The step is 10 ms of which 93 % are kernels, mostly matrix products; the 463 ms before it are "
           "a copy that waits "
           "for an earlier step, which was not captured."),
    Expert("pypto/esl_proxy_qwen3_single_buffer.json", "Qwen3 decode layer, Ascend cores, one buffer per core", ESL, "gap",
           "Cube cores stand still 22 µs between tasks of 30 µs: 43 % of the time is waiting for the next task."),
    Expert("pypto/esl_proxy_qwen3_double_buffer.json", "the same with two buffers", ESL, "gap",
           "Gaps have halved to 11 µs and still take 36 % of the time."),
    Expert("pypto/esl_proxy_paged_attention_single_buffer.json", "paged attention, one buffer per core", ESL, "gap",
           "After every task of 50 µs a cube core waits 20 µs for the next: a quarter of the time."),
    Expert("pypto/esl_proxy_paged_attention_double_buffer.json", "the same with two buffers", ESL, "core",
           "Cube cores are busy 86 %: the products are the limit now."),
    Expert("pypto/merged_swimlane_block_table.json", "16 products and norms, with scheduler threads",
           "yanghaoran29/V200-benchmark", "dispatch",
           "Half of the 16 equal products start 27 µs after the others although cores are free: they were "
           "not handed out."),
    Expert("pypto/simpler_bgemm_fullcore.json", "batched GEMM on all cores, a simulator's clock", SIMPLER, "core",
           "Cube cores are full."),
    Expert("simpler/swimlane/paged_attention_CaseVarSeq4", "paged attention on a simulator of host threads, with edges", SIMPLER,
           "dispatch", "Tasks wait for milliseconds between being handed out and starting."),
    Expert("simpler/swimlane/spmd_multiblock_mix", "282 blocks of 0.1 µs, the same simulator", SIMPLER, "dispatch",
           "All is scheduling: the blocks do next to nothing."),
    Expert("simpler/tracr/pa_varseq4_both/l2_swimlane_records.json", "paged attention, another run", SIMPLER, "dependency",
           "Ten of the sixteen QK tasks take 45 to 57 ms, everything waits for the last of them, and most cores idle."),
    Expert("simpler/swimlane_2026_09/qwen3_layer_L2", "14 of 72 cores cut out of a Qwen3 layer",
           "yanghaoran29/V200-benchmark", "core",
           "Only 14 cores are in the file; those are busy four fifths of the time, so nothing is said about the rest."),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    there = [expert for expert in EXPERTS if (asked.folder / expert.path).exists()]
    if not there:
        print(f"none of the captures is in {asked.folder}", file=sys.stderr)
        return 2
    page = page_of([(expert, analysis.explain(read(asked.folder / expert.path)).diagnosis) for expert in there])
    if asked.write is None:
        print(page, end="")
    else:
        write_page(asked.write, page)
    return 0


def page_of(found: list[tuple[Expert, Diagnosis]]) -> str:
    """The table, misses marked."""
    right = sum(expert.kind == diagnosis.bound for expert, diagnosis in found)
    lines = [
        "# First sentences, beside an expert's",
        "",
        f"What `npuscope report` says first of {len(found)} public captures, and what an expert says who looks at the "
        f"timeline. In {right} of {len(found)} both name the same cause; the others are marked. The expert is an author of "
        "npuscope and knew its answers, so compare the sentences and not only the count. Made by "
        "`benchmarks/diagnoses.py`, which names the files; the captures are test data of the repositories named here.",
        "",
        "| capture | npuscope's first sentence | an expert | the same |",
        "|---|---|---|---|",
    ]
    for expert, diagnosis in found:
        same = "yes" if expert.kind == diagnosis.bound else f"**no**: {diagnosis.bound}, not {expert.kind}"
        told = diagnosis.verdict.sentence.replace("|", "\\|")
        lines.append(f"| {expert.what} ({expert.origin}) | {told} | {expert.says} | {same} |")
    return "\n".join(lines) + "\n" + AFTER


AFTER = """
Where npuscope is wrong:

* Two thirds to three quarters of full cores with even gaps between tasks: it cannot know whether the gaps can be shortened, and
  names the cores first and the gaps second. The pair above shows that they could: two buffers per core saved 16 %.
* A file that holds some cores of a chip and names all of them: the others count as idle.

What a gap is worth can be checked on the two pairs above. With one buffer per core npuscope says of the gaps of paged attention that
they are worth 68 to 747 µs, and of those of Qwen3 394 µs to 1.74 ms; two buffers saved 457 and 483 µs.
"""


if __name__ == "__main__":
    sys.exit(main())
