"""Which of several tile programs is fastest, and why.

All simulated, in parallel.

Examples:

  npuscope rank layer.py layer_dual.py layer_spmd.py

  npuscope rank as_found.py improved.py --device 910b2 --html gap.html -- --max-seq 4096   (arguments of all of them)

  npuscope rank A.py B.py --set TILE=64,128 --plot ranked.html   (each program with each value)

  npuscope rank A.py B.py C.py --engine ray --results ranked.jsonl --json

  npuscope rank A.py B.py --measured A.py=run/chip_swimlane_records.json   (on top of a capture of A.py)

The first file is the baseline. What does not fit is listed with its error. Exit code 1 where nothing fits.
"""

from __future__ import annotations

from npuscope.cli.ranking import Command, command

__all__ = ["Command", "command"]
