"""Many runs: what differs from noise, and where a history changed. Measured in understand/noise.md."""

from npuscope.statistics.budget import read_budget
from npuscope.statistics.gate import gate
from npuscope.statistics.history import history_of
from npuscope.statistics.history_folder import read_history
from npuscope.statistics.runs import Run, read_runs
from npuscope.statistics.several import compare_runs

__all__ = ["Run", "compare_runs", "gate", "history_of", "read_budget", "read_history", "read_runs"]
