"""Many runs: what differs from noise, and where a history changed. Measured in understand/noise.md."""

from npuscope.statistics.budget import read_budget
from npuscope.statistics.gate import gate
from npuscope.statistics.runs import Run, read_runs
from npuscope.statistics.several import compare_runs

__all__ = ["Run", "compare_runs", "gate", "read_budget", "read_runs"]
