"""What git says of a folder; nothing where there is no git or no repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

SECONDS = 60  # a repository on a slow disk may take so long


def git(folder: str | Path, *words: str) -> str | None:
    """What a git command prints in a folder; None where it fails."""
    command = ["git", "-C", str(folder), *words]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def commit_of(folder: Path) -> tuple[str | None, bool | None]:
    """The commit that a folder is at and whether tracked files differ from it; None where there is no git."""
    commit = git(folder, "rev-parse", "--short=10", "HEAD")
    if commit is None:
        return None, None
    return commit, bool(git(folder, "status", "--porcelain", "--untracked-files=no"))
