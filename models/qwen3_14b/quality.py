"""Does a variant of the A8W8 model still write sense? 16 or 48 greedy tokens; if not, which tensor went wrong first?

    python models/qwen3_14b/quality.py --tokens 48 --fused-qkv-dequant --fused-qk-norm
    python models/qwen3_14b/quality.py --tokens 48 --fused-qkv-dequant --fused-qk-norm --batched-q-rope    # fails

The small model decodes four prompts. It passes if no row repeats itself and every token is the golden's choice too (the
golden reads the same text), but for near ties. A variant that fails is run for one step beside the default flags, and
the first tensor whose bits differ is named.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: the package is the folder's
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt

from npuscope.tile.golden import diff_runs
from npuscope.tile.golden.traced import ValueTrace
from qwen3_14b import decode, decode_a8w8, decode_layer_a8w8, flags, generate, golden, golden_a8w8
from qwen3_14b.config import SMALL, Qwen3
from qwen3_14b.flags import Flags

LENGTHS = (3, 60, 120, 130)  # of the prompts: one row walks over the end of a KV page, one has done so
NEAR_TIE = 0.1  # logits; see `Quality.lost`
NGRAM = 4
LEAST_DISTINCT = 2 / 3  # of a row's 4-grams: a row half of which is one phrase three times has fewer


@dataclass(frozen=True)
class Quality:
    """`lost`: by how much the golden likes its own choice better than the token chosen, per row and token.

    Flips of roundings move logits by a few hundredths (they are of the order of 1); a wrong kernel loses several.
    """

    tokens: npt.NDArray[np.int32]
    distinct: tuple[float, ...]  # different 4-grams per 4-gram, row by row
    lost: npt.NDArray[np.float32]

    @property
    def repeats(self) -> bool:
        return min(self.distinct) < LEAST_DISTINCT

    @property
    def passed(self) -> bool:
        return not self.repeats and float(np.max(self.lost)) <= NEAR_TIE

    def text(self) -> str:
        rows = [f"row {i}: {share:.0%} of the {NGRAM}-grams differ" for i, share in enumerate(self.distinct)]
        agreed = (
            f"{np.mean(self.lost == 0):.0%} of the tokens are the golden's, the worst loses {np.max(self.lost):.2g}"
        )
        return "\n".join([*rows, agreed, "PASS" if self.passed else "FAIL"])


def tensors_of(specs: list[Any]) -> dict[str, Any]:
    """A program's arguments, with empty KV caches."""
    made = {spec.name: spec.create_tensor() for spec in specs}
    made["k_cache"][:] = made["v_cache"][:] = 0
    return made


def distinct_ngrams(tokens: npt.NDArray[np.integer]) -> float:
    """Different 4-grams per 4-gram: low where a text has fallen into repeating itself."""
    grams = np.lib.stride_tricks.sliding_window_view(tokens, NGRAM)
    return len(np.unique(grams, axis=0)) / len(grams)


def check(model: Qwen3, chosen: Flags, count: int, seed: int = 0) -> Quality:
    """`count` tokens by the tile program; prompts are prefilled by the golden."""
    specs = decode_a8w8.specs(model, seed)
    program, run_golden = decode_a8w8.make_program(model, chosen), decode.make_golden(model, golden_a8w8.step)
    texts = generate.prompts(model, LENGTHS, seed)
    mine, golds = tensors_of(specs), tensors_of(specs)
    golden_step = generate.stepper(model, golds, run_golden)
    with golden.one_thread():
        lengths = generate.prefill(model, golden_step, texts)
        for cache in ("k_cache", "v_cache"):
            mine[cache][:] = golds[cache]
        step = generate.stepper(model, mine, lambda arguments: program(*(arguments[spec.name] for spec in specs)))
        tokens, _ = generate.greedy(model, step, texts, lengths, count)
        _, logits = generate.greedy(model, golden_step, texts, lengths, count, forced=tokens)
    chosen_logits = np.take_along_axis(logits, tokens[..., None].astype(np.int64), axis=-1)[..., 0]
    return Quality(tokens, tuple(map(distinct_ngrams, tokens)), np.max(logits, axis=-1) - chosen_logits)


def located(model: Qwen3, chosen: Flags, seed: int = 0) -> ValueTrace:
    """One layer with these flags beside one with the default ones, on the same inputs: all named tensors, bit by bit.

    Both scale Q, K and V in their projections (or both do not), so that what stands in GM before RoPE is comparable.
    """
    plain = Flags(fused_qkv_dequant=chosen.fused_qkv_dequant)
    one = replace(model, layers=1)
    variants = (decode_layer_a8w8.make_program(one, flags_of) for flags_of in (plain, chosen))
    return diff_runs(*variants, *decode_layer_a8w8.specs(one, seed))


def main() -> None:
    parser = argparse.ArgumentParser(description="Quality of the A8W8 model under flags")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    flags.arguments(parser)
    options = parser.parse_args()
    chosen = flags.chosen(options)
    found = check(SMALL, chosen, options.tokens, options.seed)
    print(found.text())
    if not found.passed:
        print(located(SMALL, chosen, options.seed).text())
    raise SystemExit(0 if found.passed else 1)


if __name__ == "__main__":
    main()
