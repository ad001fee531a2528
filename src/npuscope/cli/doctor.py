"""What is wrong with a capture, and which numbers that touches.

Examples:

  npuscope doctor kernel_details.csv

  npuscope doctor trace.json.gz --json
"""

from __future__ import annotations

from functools import partial

from npuscope.cli import options
from npuscope.cli.output import progress_bar, show
from npuscope.explain.doctor import symptoms_of
from npuscope.report.captures import doctor
from npuscope.trace import read


def command(path: options.Capture, json: options.Json = False) -> None:
    with progress_bar():
        trace = read(path)
        symptoms = symptoms_of(trace)
    format, slices = trace.meta.format, trace.slices.height
    data = {"format": format, "slices": slices, **symptoms.as_dict()}
    show(partial(doctor, path, format, slices, symptoms), data, json=json)
