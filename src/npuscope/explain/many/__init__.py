"""Many runs: what differs from noise, and where a history changed. Measured in understand/noise.md."""

from npuscope.explain.many.gate import gate, read_budget
from npuscope.explain.many.history import history_of, read_history
from npuscope.explain.many.runs import Run, compare_runs, read_runs

__all__ = ["Run", "compare_runs", "gate", "history_of", "read_budget", "read_history", "read_runs"]
