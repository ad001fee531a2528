"""The captures that npuscope reads and the formats it writes."""

from __future__ import annotations

READS = (
    ("kernel_details", "torch_npu kernel_details.csv, msprof op_summary_*.csv and task_time_*.csv, levels 0 to 2"),
    ("trace_view", "Ascend trace_view.json and msprof_*.json"),
    ("ascend-db", "ascend_pytorch_profiler_*.db and msprof_*.db"),
    ("nsys", "Nsight Systems' SQLite export (nsys export --type sqlite)"),
    ("rocprofv3", "rocprofv3's JSON (rocprofv3 --output-format json)"),
    ("tracr", "TraCR bundle: a folder with proc.*/thread.*/traces.bts"),
    ("tracr-perfetto", "the perfetto.json of TraCR's own post-processor"),
    ("swimlane", "chip_swimlane_records.json (or its folder), with deps.json and name_map beside it"),
    ("swimlane+tracr", "a folder with a bundle and the swimlane of the same run"),
    ("merged-swimlane", "PyPTO and simpler swimlane JSON for Perfetto, all dialects"),
    ("kineto", "torch-profiler JSON of NVIDIA and AMD GPUs"),
    ("chrome", "any other Chrome or Perfetto JSON"),
    ("parquet", "a folder npuscope wrote"),
    ("profiler-root", "a folder with the captures of many ranks"),
)


def command() -> None:
    from npuscope.base.plugins import READERS, brought
    from npuscope.trace.writers import FORMATS

    print("Reads, whatever the file is called; also packed with gzip or zstd:")
    for name, what in READS:
        print(f"  {name:<16} {what}")
    for one in brought(READERS):
        print(f"  {one.name:<16} brought by {one.package}")
    print("Writes:")
    for name, what in FORMATS.items():
        print(f"  {name:<16} {what}")
