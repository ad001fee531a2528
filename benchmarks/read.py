"""How fast captures become Traces, beside the raw limit and the named peers, in one run.

    python benchmarks/read.py                       all parts (about ten minutes on two cores)
    python benchmarks/read.py kineto kernels        some of: kineto, kernels, tracr, growth
    python benchmarks/read.py --hta PYTHON          a Python that has HolisticTraceAnalysis installed
    python benchmarks/read.py --tracr-process BIN   TraCR's own post-processor, built

The largest real trace comes from where tests/real_data.py says; without it the Kineto part is left out.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measure import Cost, cost, make, python_cost, table
from real_data import DATA

T1 = DATA / "gpu" / "hta_t1_df_index_resolver.json.gz"
READ = "import npuscope; t = npuscope.read({path!r}); assert t.slices.height"


def row(what: str, cost: Cost, against: Cost | None = None, bound: str = "") -> list[str]:
    ratio = "" if against is None else f"{cost.cpu / against.cpu:.2f} / {cost.megabytes / against.megabytes:.2f}"
    return [what, f"{cost.cpu:.2f}", f"{cost.wall:.2f}", f"{cost.megabytes:.0f}", ratio, bound]


HEADER = ["what", "CPU s", "wall s", "peak MB", "CPU / MB ratio to npuscope", "bound"]


def kineto(scratch: Path, hta: str | None) -> None:
    """(a) torch-profiler JSON, once and ten times."""
    if not T1.exists():
        print(f"\nKineto left out: {T1} is not here")
        return
    t10 = scratch / "t10.json.gz"
    make("repeat_kineto", T1, t10, 10)
    for name, path, bound in (("T1", T1, "1.2 s, 200 MB"), ("T10", t10, "6 s, 350 MB")):
        ours = python_cost(READ.format(path=str(path)))
        rows = [row("npuscope", ours, None, bound)]
        raw = "import orjson, gzip, polars; e = orjson.loads(gzip.open({path!r}).read())['traceEvents']; "
        raw += "polars.DataFrame({{k: [x.get(k) for x in e] for k in ('name', 'ts', 'dur')}}, strict=False)"
        rows.append(row("orjson + Polars, three fields", python_cost(raw.format(path=str(path)), runs=2), ours))
        if hta:
            peer = "from hta.common.trace import Trace; "
            peer += f"Trace(trace_files={{0: {str(path)!r}}}, trace_dir='').load_traces()"
            rows.append(row("HolisticTraceAnalysis", python_cost(peer, python=hta, runs=2), ours))
        kept = scratch / f"{name}.npu"
        python_cost(f"import npuscope; npuscope.read({str(path)!r}).write({str(kept)!r})", runs=1)
        rows.append(
            row("npuscope, again from its Parquet folder", python_cost(READ.format(path=str(kept))), ours, "0.6 s")
        )
        table(f"(a) Kineto {name}, {path.stat().st_size >> 20} MiB packed", HEADER, rows)


def kernels(scratch: Path) -> None:
    """(b) a kernel table of a million rows."""
    path = str(scratch / "kernel_details.csv")
    make("kernel_table", path, 1_000_000)
    bare = python_cost(f"import polars; polars.read_csv({path!r}, infer_schema=False)")
    ours = python_cost(READ.format(path=path))
    told = f"{ours.cpu / bare.cpu:.2f} × CPU, {ours.megabytes / bare.megabytes:.2f} × MB of the bare read (bound 2.5)"
    rows = [row("npuscope", ours, None, told), row("polars.read_csv, all columns as text", bare, ours)]
    # what looks at a few columns must not gather fifty
    for command, most in (("info", ""), ("report", "1.5 × CPU, ")):
        used = cost([sys.executable, "-m", "npuscope", command, path])
        rows.append(row(f"npuscope {command}", used, ours, f"{most}1.3 × MB of reading"))
    table("(b) kernel_details.csv, 1,000,000 rows × 47 columns", HEADER, rows)


def tracr(scratch: Path, tool: str | None) -> None:
    """(c) a TraCR bundle of ten million trace points."""
    bundle = scratch / "big" / "tracr"
    make("tracr_bundle", bundle, 10_000_000)
    record = "numpy.dtype([('channel','<u2'),('event','<u2'),('extra','<u4'),('time','<u8')])"
    bare = python_cost(
        f"import numpy, glob; r = {record}; files = sorted(glob.glob({str(bundle)!r} + '/*/*/traces.bts')); "
        "a = numpy.concatenate([numpy.fromfile(f, r) for f in files]); "
        "a = a[numpy.argsort(a['time'], kind='stable')]"
    )
    ours = python_cost(READ.format(path=str(bundle)))
    out = scratch / "big.pftrace"
    both = python_cost(f"import npuscope; npuscope.read({str(bundle)!r}).write({str(out)!r})", runs=2)
    rows = [
        row("npuscope to a Trace", ours, None, f"{ours.cpu / bare.cpu:.2f} × the bare read (bound 5)"),
        row("numpy.fromfile + one stable sort", bare, ours),
        row(f"npuscope to Perfetto protobuf ({out.stat().st_size >> 20} MiB)", both, ours, "faster than tracr_process"),
    ]
    if tool:
        copy = scratch / "copy" / "tracr"
        shutil.copytree(bundle, copy)
        rows.append(row("tracr_process to JSON", cost([tool, str(copy)], 2), ours))
    table("(c) TraCR bundle, 10,000,000 trace points on 77 channels", HEADER, rows)


def growth(scratch: Path) -> None:
    """(d) cost per record from 10^5 to 10^7."""
    formats = (
        ("TraCR bundle", "tracr_bundle", "tracr", (10**5, 10**6, 10**7)),
        ("kernel_details.csv", "kernel_table", "k.csv", (10**5, 10**6)),
        ("Chrome JSON", "chrome_trace", "t.json", (10**5, 10**6, 10**7)),
    )
    empty = python_cost("import npuscope, npuscope.trace")
    rows = []
    for name, maker, file, sizes in formats:
        for n in sizes:
            path = scratch / f"growth{n}" / file
            path.parent.mkdir()
            make(maker, path, n)
            used = python_cost(READ.format(path=str(path)), runs=2)
            size = (
                sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else path.stat().st_size
            )
            each = (used.cpu - empty.cpu) / n * 1e6
            kept = (used.megabytes - empty.megabytes) * 2**20 / n
            rows.append(
                [
                    name,
                    f"{n:,}",
                    f"{used.cpu:.2f}",
                    f"{each:.2f}",
                    f"{used.megabytes:.0f}",
                    f"{kept:.0f}",
                    f"{size / n:.0f}",
                ]
            )
            shutil.rmtree(path.parent)
    header = [
        "format",
        "records",
        "CPU s",
        "µs per record",
        "peak MB",
        "bytes in memory per record",
        "bytes on disk per record",
    ]
    table("(d) growth", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ["kineto", "kernels", "tracr", "growth"]
    parser.add_argument("parts", nargs="*", help=f"{', '.join(known)}; all if none is named")
    parser.add_argument("--hta", help="a Python with HolisticTraceAnalysis")
    parser.add_argument("--tracr-process", help="TraCR's post-processor")
    arguments = parser.parse_args()
    parts = arguments.parts or known
    if unknown := set(parts) - set(known):
        parser.error(f"no part is called {unknown.pop()}")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if "kineto" in parts:
            kineto(scratch, arguments.hta)
        if "kernels" in parts:
            kernels(scratch)
        if "tracr" in parts:
            tracr(scratch, arguments.tracr_process)
        if "growth" in parts:
            growth(scratch)


if __name__ == "__main__":
    main()
