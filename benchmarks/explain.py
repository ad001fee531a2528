"""How fast traces are explained and compared, beside the time of reading them and the named peers, in one run.

    python benchmarks/explain.py                        all parts (a few minutes on two cores)
    python benchmarks/explain.py kineto large           some of: kineto, compare, path, large
    python benchmarks/explain.py --hta PYTHON           a Python that has HolisticTraceAnalysis (and pandas 2) installed
    python benchmarks/explain.py --tracelens PYTHON     one that has AMD's TraceLens installed (it is not on PyPI)
    python benchmarks/explain.py --msprof-analyze BIN   msprof-analyze's command

CPU seconds are of a fresh process and include imports. Real traces come from where tests/real_data.py says; without
them only the made ones are measured.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measure import Cost, cost, make, python_cost, table
from real_data import DATA

T1 = DATA / "gpu" / "hta_t1_df_index_resolver.json.gz"
PAIR = DATA / "gpu" / "hta_diff_control.json.gz", DATA / "gpu" / "hta_diff_test.json.gz"
READ = "import npuscope; npuscope.read({path!r})"
EXPLAIN = "import npuscope; from npuscope.explain import explain; explain(npuscope.read({path!r})).as_dict()"
PATH = "import npuscope; from npuscope.explain import explain; explain(npuscope.read({path!r})).path.as_dict()"
COMPARE = "import npuscope as n; from npuscope.explain import compare; compare(n.read({a!r}), n.read({b!r})).as_dict()"
QUIET = "import warnings, logging; warnings.simplefilter('ignore'); logging.disable(logging.ERROR); "
HTA = (
    QUIET
    + "from hta.trace_analysis import TraceAnalysis; a = TraceAnalysis(trace_files={{0: {path!r}}}, trace_dir=''); "
)
HTA_ALL = HTA + (
    "a.get_temporal_breakdown(visualize=False); a.get_idle_time_breakdown(ranks=[0], visualize=False); "
    "a.get_gpu_kernel_breakdown(visualize=False); a.get_comm_comp_overlap(visualize=False)"
)
HTA_PATH = HTA + "a.critical_path_analysis(rank=0, annotation='ProfilerStep', instance_id=1)"
HTA_DIFF = QUIET + (
    "from hta.trace_diff import TraceDiff; from hta.common.trace import Trace; "
    "c, t = (Trace(trace_files={{0: p}}, trace_dir='') for p in ({a!r}, {b!r})); c.parse_traces(); t.parse_traces(); "
    "c.decode_symbol_ids(); t.decode_symbol_ids(); "
    "TraceDiff.compare_traces(c, t, use_short_name=False)"
)
TRACELENS = (
    "from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch as g; "
    "g(profile_json_path={path!r}, output_csvs_dir={out!r})"
)
HEADER = ["what", "CPU s", "wall s", "peak MB", "times npuscope's CPU", "bound"]


def row(what: str, used: Cost, ours: Cost | None = None, bound: str = "") -> list[str]:
    ratio = "" if ours is None else f"{used.cpu / ours.cpu:.1f}"
    return [what, f"{used.cpu:.2f}", f"{used.wall:.2f}", f"{used.megabytes:.0f}", ratio, bound]


def kineto(scratch: Path, peers: argparse.Namespace) -> None:
    """(a) read and all analyses of a torch-profiler trace, once and ten times as long."""
    t10 = scratch / "t10.json.gz"
    make("repeat_kineto", T1, t10, 10)
    for name, path, bound in (("T1", T1, "2 CPU-s"), ("T10", t10, "10 CPU-s")):
        ours = python_cost(EXPLAIN.format(path=str(path)))
        rows = [row("npuscope: read + all analyses", ours, None, bound)]
        rows.append(row("npuscope: read only", python_cost(READ.format(path=str(path))), ours))
        if peers.hta:
            used = python_cost(HTA_ALL.format(path=str(path)), python=peers.hta, runs=1)
            rows.append(row("HolisticTraceAnalysis: read + four analyses", used, ours))
        if peers.tracelens and name == "T1":
            code = TRACELENS.format(path=str(path), out=str(scratch / "tracelens"))
            rows.append(row("TraceLens: performance report", python_cost(code, python=peers.tracelens, runs=1), ours))
        table(f"(a) explain Kineto {name}", HEADER, rows)


def path(scratch: Path, peers: argparse.Namespace) -> None:
    """(b) the path that decides the end, on T1."""
    ours = python_cost(PATH.format(path=str(T1)))
    rows = [row("npuscope: cover of the whole trace", ours, None, "2 CPU-s")]
    if peers.hta:
        used = python_cost(HTA_PATH.format(path=str(T1)), python=peers.hta, runs=1)
        rows.append(row("HolisticTraceAnalysis: critical path of one step", used, ours))
    table("(b) critical path on T1", HEADER, rows)


def compare(scratch: Path, peers: argparse.Namespace) -> None:
    """(c) two traces of about 105,000 events."""
    a, b = map(str, PAIR)
    ours = python_cost(COMPARE.format(a=a, b=b))
    rows = [row("npuscope: read both, compare, waterfall", ours, None, "2 CPU-s")]
    if peers.hta:
        used = python_cost(HTA_DIFF.format(a=a, b=b), python=peers.hta, runs=1)
        rows.append(row("HolisticTraceAnalysis: TraceDiff", used, ours))
    if peers.msprof_analyze:
        plain = []
        for packed in PAIR:
            plain.append(scratch / packed.stem)
            plain[-1].write_bytes(gzip.decompress(packed.read_bytes()))
        command = [
            peers.msprof_analyze,
            "compare",
            "-d",
            str(plain[0]),
            "-bp",
            str(plain[1]),
            "-o",
            str(scratch / "out"),
        ]
        rows.append(row("msprof-analyze compare", cost(command, runs=1), ours))
    table("(c) compare the pair of 109,123 and 105,167 events", HEADER, rows)


def large(scratch: Path, _: argparse.Namespace) -> None:
    """(d) a million slices on 72 lanes: explaining against reading."""
    cases = [("swimlane + deps.json, a million edges", "chip_swimlane", scratch / "run")]
    cases += [("Chrome JSON", "chrome_trace", scratch / "trace.json")]
    rows = []
    for name, maker, path in cases:
        make(maker, path, 1_000_000)
        read = python_cost(READ.format(path=str(path)), runs=2)
        both = python_cost(EXPLAIN.format(path=str(path)), runs=2)
        rows.append(
            [name, f"{read.cpu:.2f}", f"{both.cpu - read.cpu:.2f}", f"{(both.cpu - read.cpu) / read.cpu:.2f}", "3"]
        )
    header = ["1,000,000 slices", "read CPU s", "explain CPU s", "explain / read", "bound"]
    table("(d) a large trace", header, rows)


PARTS = {"kineto": kineto, "path": path, "compare": compare, "large": large}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--hta")
    parser.add_argument("--tracelens")
    parser.add_argument("--msprof-analyze")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for name in chosen.parts or PARTS:
            if name != "large" and not T1.exists():
                print(f"\n{name} left out: {DATA} is not here")
                continue
            PARTS[name](Path(scratch), chosen)


if __name__ == "__main__":
    main()
