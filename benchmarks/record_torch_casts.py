"""Records what torch answers to a fixed set of casts and products, for tests/ops/test_beside_torch.py.

    python benchmarks/record_torch_casts.py          writes tests/data/torch_numerics.npz; needs torch

torch rounds to nearest even (mode "rint" of the language), cuts towards zero to integers ("trunc"), goes by way of
fp32 from integers to bf16, and sums int8 products in int32. Values that overflow fp16 are left out: torch makes them
infinite.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "torch_numerics.npz"


def main() -> None:
    rng = np.random.default_rng(2026)
    patterns = rng.integers(0, 2**32, 200, dtype=np.uint32)
    patterns[:100] &= 0xFFFF8000  # half of them where bf16 ties or is exact
    wide = np.concatenate((patterns.view(np.float32), rng.standard_normal(100, dtype=np.float32)))
    halves = rng.integers(0, 0x7C00, 200, dtype=np.uint16).view(np.float16).astype(np.float32)
    near_halves = halves * (1 + rng.integers(-4, 5, 200) * 2.0**-13).astype(np.float32)
    near_halves = near_halves[near_halves < 65504]
    integers = rng.integers(-(2**31), 2**31, 200).astype(np.int32)
    small = (rng.standard_normal(200) * 90).astype(np.float32)
    a = torch.from_numpy(rng.standard_normal((8, 64), dtype=np.float32)).bfloat16()
    b = torch.from_numpy(rng.standard_normal((64, 12), dtype=np.float32)).bfloat16()
    left = rng.integers(-128, 128, (2, 1200)).astype(np.int8)
    right = rng.integers(-128, 128, (1200, 2)).astype(np.int8)
    bits = torch.int16
    with np.errstate(all="ignore"):
        np.savez_compressed(
            OUT,
            wide=wide,
            wide_bf16=torch.from_numpy(wide).bfloat16().view(bits).numpy(),
            near_halves=near_halves,
            near_halves_fp16=torch.from_numpy(near_halves).half().view(bits).numpy(),
            integers=integers,
            integers_fp32=torch.from_numpy(integers).float().numpy(),
            integers_bf16=torch.from_numpy(integers).bfloat16().view(bits).numpy(),
            small=small,
            small_rint_int32=torch.from_numpy(small).round().int().numpy(),
            small_trunc_int8=torch.from_numpy(small).clamp(-128, 127).to(torch.int8).numpy(),
            a=a.view(bits).numpy(),
            b=b.view(bits).numpy(),
            ab=(a.float() @ b.float()).numpy(),
            ab_bf16=(a @ b).view(bits).numpy(),
            left=left,
            right=right,
            left_right=torch._int_mm(torch.from_numpy(left), torch.from_numpy(right)).numpy(),
        )
    print(f"torch {torch.__version__}: {OUT.stat().st_size:,} bytes in {OUT}")


if __name__ == "__main__":
    main()
