"""`python -m npuscope` is the command."""

from npuscope.cli import run

run()
