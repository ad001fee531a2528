"""Published changes of public programs, predicted: rows, runs, the score. The command is `benchmarks/changes.py`."""
