"""Try all combinations of a tile program's settings.

On the chip's model: which is fastest, and why.

Examples:

  npuscope sweep layer.py --set MLP_TN=128,256,512 --set DUAL=0,1

  npuscope sweep layer.py --set TILE=64,128 --results sweep.jsonl   (again: only what is missing)

  npuscope sweep layer.py --set LAYERS=1,2,4 --engine ray --json -- --max-seq 4096

  npuscope sweep layer.py --set TILE=64,128 --measured layer.py=run   (on top of a capture of layer.py as it is)

A setting NAME is an option of the program (--mlp-tn for MLP_TN), a top-level constant of the file, an environment
variable, or all of them; a NAME that is none is an error. The first combination is the baseline: name the present
values first. What does not fit is listed with its error. Exit code 1 where nothing fits.
"""

from __future__ import annotations

from npuscope.cli.rank import Command, command

__all__ = ["Command", "command"]
