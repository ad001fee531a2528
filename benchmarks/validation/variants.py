"""Programs of models/ with one change undone: a copy of the folder in which a few lines read differently."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

MODELS = Path(__file__).resolve().parents[2] / "models"
# name -> file, what stands there, what stands there in the variant
CHANGES: dict[str, list[tuple[str, str, str]]] = {
    "rope_late": [("layer.py", 'name_hint="rope_qkv", allow_early_resolve=True,', 'name_hint="rope_qkv",')],
    "dcr_tasks": [  # as #558 found it: a parallel task with two outputs waits for its siblings
        ("layer.py", '        with pl.spmd(SLABS, name_hint="dcr_xgamma", deps=[down_tids]) as dcr_tid:\n'
         "            c = pl.get_block_idx() * SLAB\n",
         "        for slab in pl.parallel(SLABS):\n"
         '          with pl.at(level=pl.Level.CORE_GROUP, name_hint="dcr_xgamma", deps=[down_tids]) as dcr_tid:\n'
         "            c = slab * SLAB\n"),
    ],
}  # fmt: skip


@cache
def folder(name: str) -> Path:
    """Where the Qwen3-14B programs are in a variant; the empty name is the folder itself."""
    if not name:
        return MODELS / "qwen3_14b"
    made = Path(mkdtemp(prefix=f"npuscope_{name}_")) / "qwen3_14b"
    shutil.copytree(MODELS / "qwen3_14b", made, ignore=shutil.ignore_patterns("__pycache__"))
    for file, stands, instead in CHANGES[name]:
        text = (made / file).read_text()
        if text.count(stands) != 1:
            raise SystemExit(f"{file} has changed: the variant {name!r} does not find what it replaces")
        (made / file).write_text(text.replace(stands, instead))
    return made
