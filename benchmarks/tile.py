"""What running and recording a tile program costs, beside torch and Triton's interpreter, in one run.

    python benchmarks/tile.py            # with torch and triton in the environment their columns are filled

The layer is models/qwen3_14b/decode_layer.py at full size; torch computes the same layer from the same tensors with its
own kernels. Triton's interpreter runs the same 16 x 256 x 256 step. Times are of the best of several runs, interleaved.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))

import numpy as np
from measure import table
from qwen3_14b import batch, decode_layer, decode_layer_a8w8
from qwen3_14b.config import PAGE, QWEN3_14B, Qwen3, sized

import npuscope.tile as pl
from npuscope.tile.record.summary import summarise

STEPS = 200
HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_TRITON = importlib.util.find_spec("triton") is not None


def best(*works: Callable[[], object], runs: int = 3) -> list[float]:
    """The best seconds of each, run in turn so that a slow spell of the machine meets all of them."""
    found = [float("inf")] * len(works)
    for _ in range(runs):
        for k, work in enumerate(works):
            begin = time.perf_counter()
            work()
            found[k] = min(found[k], time.perf_counter() - begin)
    return found


@pl.jit
def steps(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="steps"):
        acc = pl.matmul(a[:, 0:256], b[0:256, :])
        for k in pl.range(1, STEPS):
            acc = pl.matmul_acc(acc, a[:, k * 256 : k * 256 + 256], b[k * 256 : k * 256 + 256, :])
        out = pl.store(acc, [0, 0], out)
    return out


def step_cost() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((16, 256 * STEPS), np.float32).astype(pl.BF16.storage)
    b = rng.standard_normal((256 * STEPS, 256), np.float32).astype(pl.BF16.storage)
    out = np.zeros((16, 256), np.float32)
    works: list[Callable[[], object]] = [lambda: steps(a, b, out)]
    if HAS_TRITON:
        works.append(triton_steps())
    found = best(*works)
    rows = [["npuscope, recording and checks on", f"{found[0] / STEPS * 1e3:.3f}", "0.3", ""]]
    if HAS_TRITON:
        each = found[1] / TRITON_STEPS * 1e3
        rows.append(["Triton's interpreter", f"{each:.3f}", "", f"{each / (found[0] / STEPS * 1e3):.0f}x"])
    table("One 16 x 256 x 256 BF16 step: two loads and a matmul_acc", ["", "ms", "bound ms", "ratio"], rows)


TRITON_STEPS = 20


def triton_steps() -> Callable[[], object]:
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(a, b, out, steps: tl.constexpr):
        rows, inner, columns = tl.arange(0, 16), tl.arange(0, 256), tl.arange(0, 256)
        acc = tl.zeros((16, 256), tl.float32)
        for k in range(steps):
            x = tl.load(a + rows[:, None] * (256 * steps) + k * 256 + inner[None, :])
            y = tl.load(b + (k * 256 + inner[:, None]) * 256 + columns[None, :])
            acc += tl.dot(x, y)
        tl.store(out + rows[:, None] * 256 + columns[None, :], acc)

    a = torch.randn(16, 256 * TRITON_STEPS, dtype=torch.bfloat16)
    b = torch.randn(256 * TRITON_STEPS, 256, dtype=torch.bfloat16)
    out = torch.zeros(16, 256)
    return lambda: kernel[(1,)](a, b, out, TRITON_STEPS)


def layer_cost(max_seq: int) -> None:
    model = sized(QWEN3_14B, max_seq=max_seq, layers=1)
    specs = decode_layer.specs(model)
    inputs = {spec.name: value_of(spec) for spec in specs}
    program = decode_layer.make_program(model)
    works: list[Callable[[], object]] = [lambda: program(*inputs.values())]
    if HAS_TORCH:
        works.append(torch_layer(model, inputs))
    found = best(*works)
    lengths = inputs["seq_lens"]
    what = f"batch 16, contexts {int(np.min(lengths))} to {int(np.max(lengths))}"
    rows = [["npuscope, values", f"{found[0]:.2f}", ""]]
    if HAS_TORCH:
        rows = [
            ["torch, BF16", f"{found[1]:.2f}", "1"],
            ["npuscope, values", f"{found[0]:.2f}", f"{found[0] / found[1]:.1f}"],
        ]
    table(f"Qwen3-14B decode layer, {what} (bound: 6 times torch)", ["", "seconds", "ratio"], rows)


def value_of(spec: Any) -> Any:
    value = spec.init_value() if callable(spec.init_value) else spec.init_value
    made = np.zeros(spec.shape, spec.dtype.storage) if value is None else np.asarray(value)
    return np.ascontiguousarray(made.astype(spec.dtype.storage, copy=False))


def torch_layer(model: Qwen3, inputs: dict[str, Any]) -> Callable[[], object]:
    import torch

    from npuscope.tile.run.arguments import to_torch

    t = {name: to_torch(value) for name, value in inputs.items()}
    heads, kv_heads, dim = model.q_heads, model.kv_heads, model.head_dim
    gates = [t[name] for name in ("w_gate", "w_up", "w_down")]
    lengths = t["seq_lens"].tolist()
    pages = t["block_table"].view(model.rows, -1)
    rows = len(lengths)

    def norm(x: Any, weight: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + model.eps) * weight

    def rotated(x: Any, cos: Any, sin: Any) -> Any:
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin

    def layer() -> Any:
        x = t["hidden"]
        y = norm(x, t["input_rms_weight"][0]).bfloat16()
        q = norm((y @ t["wq"]).float().view(rows, heads, dim), t["q_norm_weight"][0])
        k = norm((y @ t["wk"]).float().view(rows, kv_heads, dim), t["k_norm_weight"][0])
        v = (y @ t["wv"]).view(rows, kv_heads, dim)
        last = t["seq_lens"].long() - 1
        cos, sin = t["rope_cos"][last][:, None], t["rope_sin"][last][:, None]
        q, k = rotated(q, cos, sin).bfloat16(), rotated(k, cos, sin).bfloat16()
        caches = [t[name].view(-1, kv_heads, PAGE, dim) for name in ("k_cache", "v_cache")]
        attended = torch.empty(rows, heads, dim, dtype=torch.bfloat16)
        for row, length in enumerate(lengths):
            used = pages[row, : -(-length // PAGE)].long()
            slot = (used[-1], slice(None), (length - 1) % PAGE)
            caches[0][slot], caches[1][slot] = k[row], v[row]
            keys, values = (c[used].transpose(0, 1).reshape(kv_heads, -1, dim)[:, :length] for c in caches)
            attended[row] = torch.nn.functional.scaled_dot_product_attention(
                q[row].view(1, heads, 1, dim), keys[None], values[None], enable_gqa=True
            ).view(heads, dim)
        x = x + (attended.view(rows, -1) @ t["wo"]).float()
        y = norm(x, t["post_rms_weight"][0]).bfloat16()
        gate, up = (y @ gates[0]).float(), y @ gates[1]
        return x + ((torch.nn.functional.silu(gate) * up).bfloat16() @ gates[2]).float()

    return layer


def shapes_cost() -> None:
    rows = []
    cases: list[tuple[str, Any, Qwen3, str]] = [
        ("BF16 layer", decode_layer, sized(QWEN3_14B, max_seq=4096, layers=1), "1"),
        ("A8W8 layer", decode_layer_a8w8, sized(QWEN3_14B, max_seq=4096, layers=1), "2"),
        ("40 BF16 layers", decode_layer, sized(QWEN3_14B, max_seq=4096, layers=40), "10"),
        ("40 A8W8 layers", decode_layer_a8w8, sized(QWEN3_14B, max_seq=4096, layers=40), "10"),
    ]
    for what, module, model, bound in cases:
        program = module.make_program(model)
        arguments = full_rows(model, {spec.name: placeholder(spec) for spec in module.specs(model)})
        runs = [program.record(*arguments, mode="shapes") for _ in range(3)]
        recording, seconds = runs[0].recording, min(run.seconds for run in runs)
        tasks, ops = len(recording.tasks), sum(kernel.ops for kernel in summarise([recording]).kernels)
        rows.append([what, f"{seconds:.2f}", bound, f"{tasks:,}", f"{ops:,}", f"{len(recording.bodies)}"])
    header = ["", "seconds", "bound", "tasks", "ops unrolled", "bodies stored"]
    table("Recording in shapes mode, 16 rows of 4096 tokens", header, rows)


def full_rows(model: Qwen3, arguments: dict[str, Any]) -> list[Any]:
    """Every row at its longest."""
    arguments["seq_lens"] = np.full(model.rows, model.max_seq, np.int32)
    arguments["slot_mapping"] = batch.slot_mapping(model, arguments["block_table"], arguments["seq_lens"])
    return list(arguments.values())


def placeholder(spec: Any) -> Any:
    """Lengths and tables are real; nothing else is made."""
    return value_of(spec) if spec.dtype.steers else pl.Placeholder(tuple(spec.shape), spec.dtype)


def main() -> None:
    step_cost()
    shapes_cost()
    layer_cost(4096)


if __name__ == "__main__":
    main()
