"""The skill in skills/ is in the form that agents read, and the commands that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import npuscope

SKILLS = sorted((Path(__file__).resolve().parents[2] / "skills").iterdir())


@pytest.mark.parametrize("folder", SKILLS, ids=[folder.name for folder in SKILLS])
def test_a_skill_says_when_to_use_it_and_names_commands_that_exist(folder: Path) -> None:
    text = (folder / "SKILL.md").read_text()
    head = re.match(r"---\nname: ([\w-]+)\ndescription: (Use when [^\n]+)\n---\n", text)
    assert head is not None
    assert head[1] == folder.name
    assert "interface:" in (folder / "agents" / "openai.yaml").read_text()
    lines = [line for line in re.findall(r"npuscope ([^`\n]*)", text) if not line.startswith("is ")]
    assert lines
    for line in lines:
        command = line.split()[0]
        told = npuscope(command, "--help").stdout
        for option in re.findall(r"--[a-z][\w-]+", line.partition(" -- ")[0].partition("|")[0]):
            assert option in told, (command, option)
