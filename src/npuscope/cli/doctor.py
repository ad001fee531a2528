"""What is wrong with a capture, and which numbers that touches.

Examples:

  npuscope doctor kernel_details.csv

  npuscope doctor trace.json.gz --json
"""

from __future__ import annotations

from npuscope.cli.output import CapturePath, JsonFlag, print_json, print_report, progress_bar


def command(path: CapturePath, json: JsonFlag = False) -> None:
    from npuscope.explain.doctor import symptoms_of
    from npuscope.report.captures import doctor
    from npuscope.trace import read

    with progress_bar():
        trace = read(path)
        symptoms = symptoms_of(trace)
    if json:
        print_json({"format": trace.meta.format, "slices": trace.slices.height, **symptoms.as_dict()})
    else:
        print_report(doctor(path, trace.meta.format, trace.slices.height, symptoms))
