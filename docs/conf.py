"""The site: Sphinx with MyST, built by `make docs` without the network. Reference pages are generated (generate.py)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from generate import generate  # noqa: E402

import npuscope  # noqa: E402

project = "npuscope"
author = "the npuscope authors"
copyright = "2026, the npuscope authors"
version = release = npuscope.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
suppress_warnings = ["misc.highlighting_failure"]  # csv has no colours
html_theme = "furo"
html_title = "npuscope"
html_static_path: list[str] = []
html_show_sphinx = False
templates_path: list[str] = []
pygments_style = "friendly"
pygments_dark_style = "github-dark"


def setup(app: Any) -> None:
    app.connect("builder-inited", lambda _: generate(HERE / "reference" / "generated"))


autodoc_mock_imports = ["torch"]  # one module works on its tensors where a script has it
