"""Another package brings a reader and a rule: the example of docs/howto/extend.md, installed beside npuscope."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from command import npuscope
from sessions import FENCE

from npuscope.trace import formats
from npuscope.trace import readers as trace_readers

PAGE = (Path(__file__).resolve().parents[1] / "docs/howto/extend.md").read_text()


def shown(language: str, first: str) -> str:
    """The one block of the page that begins so."""
    (block,) = (text for kind, text in FENCE.findall(PAGE) if kind == language and text.startswith(first))
    return str(block)


READER = shown("python", '"""Reads captures of acme')
RULE = shown("python", '"""Loads of one element')
PROJECT = shown("toml", "[project]") + shown("toml", '[project.entry-points."npuscope.rules"]')
PROGRAM = """import numpy as np
import npuscope.tile as pl


@pl.jit
def element(x: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="element"):
        out[0:1, 0:1] = pl.add(x[0:1, 0:1], 1.0)
    return out


element(np.ones((16, 16), np.float32), np.zeros((16, 16), np.float32))
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
    project = tomllib.loads(PROJECT)["project"]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    entries = (
        line
        for group, named in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {where}" for name, where in named.items()))
    )
    (info / "entry_points.txt").write_text("\n".join(entries))
    return tmp_path


def test_a_capture_of_another_packages_format_is_read(acme: Path) -> None:
    capture = acme / "run.acme"
    capture.write_text("acme 1\nmatmul 0 1000\nsoftmax 1500 2500\n")
    found = npuscope("info", capture, "--json", PYTHONPATH=str(acme))
    assert found.returncode == 0, found.stderr
    assert '"format": "acme"' in found.stdout
    # AND its slices count as work
    assert "2 tasks, one per 1.25 µs" in npuscope("report", capture, PYTHONPATH=str(acme)).stdout
    assert (
        "  acme             captures of acme's own: *.acme (from acme-npuscope)\n"
        in npuscope("formats", PYTHONPATH=str(acme)).stdout
    )
    # WITHOUT the package it is no capture that anybody knows
    assert "no capture npuscope knows" in npuscope("info", capture).stderr


def test_a_rule_of_another_package_is_listed_and_can_be_selected(acme: Path) -> None:
    listed = npuscope("check", "--list-rules", PYTHONPATH=str(acme)).stdout
    assert "one-element-load" in listed
    (acme / "element.py").write_text(PROGRAM)
    chosen = npuscope("check", acme / "element.py", "--select", "one-*", PYTHONPATH=str(acme))
    assert chosen.returncode == 0, chosen.stderr
    assert "element.py:8: hint: loads one element as a tile [one-element-load]" in chosen.stdout


@pytest.mark.parametrize(
    ("file", "text", "shown"),
    [
        ("rules.py", "import nothing_there", "'one-element-load' of acme-npuscope cannot be loaded (ModuleNotFound"),
        ("rules.py", "one_element_load = 7", "'one-element-load' of acme-npuscope is no Rule"),
        ("rules.py", RULE.replace("one-element-load", "race"), "brings a rule 'race', which there is"),
    ],
)
def test_a_broken_package_is_named_not_skipped(acme: Path, file: str, text: str, shown: str) -> None:
    (acme / "acme_npuscope" / file).write_text(text)
    done = npuscope("check", "--list-rules", PYTHONPATH=str(acme))
    assert done.returncode == 2
    assert shown in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_fails_is_named(acme: Path) -> None:
    broken = READER.replace("return sample.head", "return 1 / 0 and sample.head")
    (acme / "acme_npuscope" / "reader.py").write_text(broken)
    (acme / "run.acme").write_text("acme 1\n")
    done = npuscope("info", acme / "run.acme", PYTHONPATH=str(acme))
    assert done.returncode == 2
    assert "the reader 'acme' of acme-npuscope failed (ZeroDivisionError" in done.stderr


def test_a_file_among_the_readers_is_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_reader.py").write_text(READER)
    (tmp_path / "run.bin").write_text("acme 1\nmatmul 0 1000\n")
    monkeypatch.setattr(trace_readers, "__path__", [*trace_readers.__path__, str(tmp_path)])
    formats._modules.cache_clear()
    try:
        assert formats.read(tmp_path / "run.bin").meta.format == "acme"
    finally:
        formats._modules.cache_clear()
        sys.modules.pop(f"{trace_readers.__name__}.acme_reader", None)
