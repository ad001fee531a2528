"""What starting costs: `npuscope --help` beside an empty Python.

    python benchmarks/start.py

tests/cli/test_commands.py holds that nothing heavy is loaded; this says what is left.
"""

from __future__ import annotations

import sys

from measure import cost, table


def main() -> None:
    empty = cost([sys.executable, "-c", "pass"], runs=9)
    rows = []
    for words in ("--help", "report --help", "formats"):
        used = cost([sys.executable, "-m", "npuscope", *words.split()], runs=9)
        rows.append([f"npuscope {words}", f"{used.cpu:.3f}", f"{used.wall:.3f}", f"{used.cpu / empty.cpu:.1f}"])
    table("Starting", ["command", "CPU s", "wall s", "times an empty Python"], rows)


if __name__ == "__main__":
    main()
