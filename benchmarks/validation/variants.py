"""Programs of models/ with one change undone: a copy of the folder in which a few lines read differently."""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

MODELS = Path(__file__).resolve().parents[2] / "models"
SEEDS = """            # The MLP's zeros are put down while attention runs.
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_seed", deps=[hidden_tids]) as down_seed_tid:
                down = zero_down(down)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_seed", deps=[hidden_tids]) as gate_seed_tid:
                gate = zero_mlp(gate)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="up_seed", deps=[hidden_tids]) as up_seed_tid:
                up = zero_mlp(up)
"""
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
    "attention_fused": [  # as #756 left it: three launches are one, whose phases are separated by barriers
        ("layer.py", """            with pl.spmd(
                ROPE_BLOCKS, name_hint="rope_qkv", allow_early_resolve=True, deps=[qk_tids, v_tids, rms_tid]
            ) as rope_tid:
                block = pl.get_block_idx()
                for i in pl.pipeline(ROPE_ITEMS, stage=2):
                    item = block * ROPE_ITEMS + i
""", SEEDS + """            with pl.spmd(
                CUBES, name_hint="attention", sync_start=True, deps=[qk_tids, v_tids, rms_tid, work_tid]
            ) as softmax_tid:
                block = pl.get_block_idx()
                for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
                  for item in pl.range(2 * block + lane, ROWS * KV_HEADS, 2 * CUBES):
"""),
        ("layer.py", SEEDS + """
            with pl.spmd(
                CUBES, name_hint="fa_fused", optimizations=[pl.split(pl.SplitMode.UP_DOWN)], deps=[work_tid, rope_tid]
            ) as fa_tid:
                block = pl.get_block_idx()
""", "                pl.system.syncall()\n"),
        ("layer.py", """            with pl.spmd(2 * CUBES, name_hint="online_softmax", deps=[fa_tid]) as softmax_tid:
                block = pl.get_block_idx()
                for item in pl.range(block, ROWS * KV_HEADS, 2 * CUBES):
""", """                pl.system.syncall()
                for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
                  for item in pl.range(2 * block + lane, ROWS * KV_HEADS, 2 * CUBES):
"""),
        ("parts.py", """        scores = pl.mul(pl.matmul(query, keys, b_trans=True, out_dtype=pl.FP32), scale)
        scores = pl.fillpad(pl.set_validshape(scores, Q_PAD, valid), pad_value=pl.PadValue.min)
        top = pl.row_max(scores)
        weights = pl.exp(pl.row_expand_sub(scores, top))
        total = pl.row_sum(weights)
        values = v_cache[cache_row : cache_row + tokens, :]
        out = pl.matmul(pl.cast(weights, target_type=store), values, out_dtype=pl.FP32)
        outs = pl.assemble(outs, pl.set_validshape(out, group, dim), [part_row, 0])
        tops = pl.assemble(tops, pl.set_validshape(top, group, 1), [part_row, 0])
        sums = pl.assemble(sums, pl.set_validshape(total, group, 1), [part_row, 0])
""", """        product = pl.matmul(query, keys, b_trans=True, out_dtype=pl.FP32)
        for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            mine = part_row + lane * (Q_PAD // 2)
            scores = pl.mul(pl.aiv_shard(product), scale)
            scores = pl.fillpad(pl.set_validshape(scores, Q_PAD // 2, valid), pad_value=pl.PadValue.min)
            top = pl.row_max(scores)
            weights = pl.exp(pl.row_expand_sub(scores, top))
            total = pl.row_sum(weights)
            both = pl.aic_gather(pl.cast(weights, target_type=store))
            tops = pl.assemble(tops, top, [mine, 0])
            sums = pl.assemble(sums, total, [mine, 0])
        values = v_cache[cache_row : cache_row + tokens, :]
        out = pl.matmul(both, values, out_dtype=pl.FP32)
        outs = pl.assemble(outs, pl.set_validshape(out, group, dim), [part_row, 0])
"""),
    ],
}  # fmt: skip


@cache
def folder(name: str) -> Path:
    """Where the Qwen3-14B programs are in a variant; the empty name is the folder itself."""
    if not name:
        return MODELS / "qwen3_14b"
    made = Path(mkdtemp(prefix=f"npuscope_{name}_")) / "qwen3_14b"
    atexit.register(shutil.rmtree, made.parent, ignore_errors=True)
    shutil.copytree(MODELS / "qwen3_14b", made, ignore=shutil.ignore_patterns("__pycache__"))
    for file, stands, instead in reversed(CHANGES[name]):
        text = (made / file).read_text()
        if text.count(stands) != 1:
            raise SystemExit(f"{file} has changed: the variant {name!r} does not find what it replaces")
        (made / file).write_text(text.replace(stands, instead))
    return made
