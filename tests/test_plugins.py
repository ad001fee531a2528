"""Another package brings a reader and a rule: the example of docs/howto/extend.md, installed beside npuscope."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import npuscope

READER = '''
"""Reads captures of acme's own: a line per slice, `kernel start_ns end_ns`."""
from pathlib import Path

import polars as pl

from npuscope import Meta, Trace


def recognises(path):
    return path.suffix == ".acme" and path.read_bytes().startswith(b"acme 1")


def read(path):
    rows = [line.split() for line in path.read_text().splitlines()[1:]]
    slices = pl.DataFrame(
        {
            "lane": [0] * len(rows),
            "start": [int(start) for _, start, _ in rows],
            "dur": [int(end) - int(start) for _, start, end in rows],
            "kernel": [kernel for kernel, _, _ in rows],
        }
    )
    lanes = pl.DataFrame({"lane": [0], "name": ["core 0"], "unit": ["AIC"]})
    return Trace.of(slices, lanes, Meta(format="acme", files=(str(path),)))
'''
RULE = """
from npuscope.check.rule import Example, Rule


def check(program):
    return ()


RULE = Rule("acme-no-exp", "hint", "an exp where acme's chip has none", "It is slow there.", check, Example("a", "b"))
"""
ENTRIES = """[npuscope.readers]
acme = acme_npuscope.reader

[npuscope.rules]
acme-no-exp = acme_npuscope.rules:RULE
"""


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    """A folder with an installed package, as pip leaves it."""
    package, info = tmp_path / "acme_npuscope", tmp_path / "acme_npuscope-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").touch()
    (package / "reader.py").write_text(READER)
    (package / "rules.py").write_text(RULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-npuscope\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    return tmp_path


def test_a_capture_of_another_packages_format_is_read(acme: Path) -> None:
    capture = acme / "run.acme"
    capture.write_text("acme 1\nmatmul 0 1000\nsoftmax 1500 2500\n")
    found = npuscope("info", capture, "--json", PYTHONPATH=str(acme))
    assert found.returncode == 0, found.stderr
    assert '"format": "acme"' in found.stdout
    assert npuscope("report", capture, PYTHONPATH=str(acme)).returncode == 0
    # WITHOUT the package it is no capture that anybody knows
    assert "no capture npuscope knows" in npuscope("info", capture).stderr


def test_a_rule_of_another_package_is_listed_and_can_be_selected(acme: Path) -> None:
    listed = npuscope("check", "--list-rules", PYTHONPATH=str(acme)).stdout
    assert "acme-no-exp" in listed
    chosen = npuscope("check", "model:basics/gemm", "--select", "acme-*", PYTHONPATH=str(acme))
    assert chosen.returncode == 0, chosen.stderr


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("rules.py", "import nothing_there", "'acme-no-exp' of acme-npuscope cannot be loaded (ModuleNotFoundError"),
        ("rules.py", "RULE = 7", "'acme-no-exp' of acme-npuscope is no Rule"),
        ("rules.py", RULE.replace("acme-no-exp", "race"), "brings a rule 'race', which there is"),
    ],
)
def test_a_broken_package_is_named_not_skipped(acme: Path, file: str, text: str, told: str) -> None:
    (acme / "acme_npuscope" / file).write_text(text)
    done = npuscope("check", "--list-rules", PYTHONPATH=str(acme))
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_fails_is_named(acme: Path) -> None:
    (acme / "acme_npuscope" / "reader.py").write_text("def recognises(path): return 1 / 0\ndef read(path): ...\n")
    (acme / "run.acme").write_text("acme 1\n")
    done = npuscope("info", acme / "run.acme", PYTHONPATH=str(acme))
    assert done.returncode == 2
    assert "the reader 'acme' of acme-npuscope failed (ZeroDivisionError" in done.stderr
