"""A model as its Hugging Face `config.json` describes it (sizes only, checked), and how a pass of it is run.

Each feature is read from its own fields, whatever the others are: attention with grouped queries or a latent cache, an
indexer that picks keys, experts with their router, its bias, shared experts and dense layers. An architecture only
says what its configs leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, Literal

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.trace.source import read_json

LARGEST = 10**9  # no size of a model is beyond this
DEEPEST = 10_000  # layers; each becomes a dozen kernels
Scoring = Literal["softmax", "sigmoid"]
SCORING = ("softmax", "sigmoid")


@dataclass(frozen=True)
class Architecture:
    """What is true of a model by its architecture, where the config has no field for it.

    `latent`, `indexed` and `experts`: the config must have the fields of that feature. `fused_experts`: captures of it
    show one DispatchFFNCombine for exchange and products.
    """

    title: str
    latent: bool = False
    indexed: bool = False
    experts: bool = False
    fused_experts: bool = False
    qk_norm: bool = False
    scoring: Scoring = "softmax"
    router_bias: bool = False
    scale: float = 1.0  # of the routed experts' sum


_DEEPSEEK_V3 = Architecture(
    "DeepSeek-V3", latent=True, experts=True, fused_experts=True, scoring="sigmoid", router_bias=True, scale=2.5
)
FAMILIES = {
    "llama": Architecture("Llama"),
    "qwen3": Architecture("Qwen3", qk_norm=True),
    "qwen3_moe": Architecture("Qwen3 MoE", experts=True, qk_norm=True),
    "glm4_moe": Architecture("GLM-4.5", experts=True, scoring="sigmoid", router_bias=True),
    "deepseek_v3": _DEEPSEEK_V3,
    "deepseek_v32": replace(_DEEPSEEK_V3, title="DeepSeek-V3.2", indexed=True),
    "glm_moe_dsa": replace(_DEEPSEEK_V3, title="GLM-5", indexed=True),
}
ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Glm4MoeForCausalLM": "glm4_moe",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
}


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: widths of the compressed query and cache, and of a head's parts."""

    q_lora: int
    kv_lora: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True)
class Indexer:
    """DSA: small heads that score the whole context and keep the `top` keys."""

    heads: int
    head_dim: int
    top: int


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in every layer from `first_layer` on, each `every` layers, save the layers in `dense`.

    The router's scores may have a bias that corrects the choice. `shared` experts see every token, beside the routed
    ones, whose sum is scaled.
    """

    count: int
    per_token: int
    shared: int
    intermediate: int
    first_layer: int = 0
    every: int = 1
    dense: frozenset[int] = frozenset()
    scoring: Scoring = "softmax"
    router_bias: bool = False
    scale: float = 1.0
    fused: bool = False  # exchange and products run as one kernel where experts are spread over ranks


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a decoder. `next_n` layers predict further tokens and are not part of a forward pass here."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = False  # the LM head is the embedding
    qk_norm: bool = False
    qkv_bias: bool = False
    latent: Latent | None = None
    indexer: Indexer | None = None
    experts: Experts | None = None
    next_n: int = 0
    quantisation: str | None = None  # as the config names its method

    @property
    def title(self) -> str:
        return FAMILIES[self.family].title

    def has_experts(self, layer: int) -> bool:
        e = self.experts
        return e is not None and layer >= e.first_layer and (layer + 1) % e.every == 0 and layer not in e.dense


def read_config(path: str | Path) -> ModelConfig:
    """The model of a `config.json`."""
    place = Path(path)
    return model_of(read_json(place, dict[str, object], "a model's config.json"), place)


def model_of(config: Mapping[str, object], path: str | Path | None = None) -> ModelConfig:
    """The model that a decoded config describes; raises BadInput with what is missing or wrong."""
    fields = _Fields(config, path)
    family = _family(config, path)
    usual = FAMILIES[family]
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    layers = fields.size("num_hidden_layers", most=DEEPEST)
    kv_heads = fields.size("num_key_value_heads", heads)
    latent = indexer = None
    if usual.latent or fields.has("kv_lora_rank"):
        names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        latent = Latent(*map(fields.size, names))
    if usual.indexed or fields.has("index_topk"):
        indexer = Indexer(*map(fields.size, ("index_n_heads", "index_head_dim", "index_topk")))
    qkv_bias = fields.flag("attention_bias")
    if latent is None and heads % kv_heads:
        raise BadInput(f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}", path=path)
    if latent is None and not fields.has("head_dim") and hidden % heads:
        raise BadInput(f"hidden_size {hidden} is no multiple of num_attention_heads {heads}", path=path)
    if latent is not None and qkv_bias:
        raise BadInput("attention_bias is true, which is not known of latent attention", path=path)
    return ModelConfig(
        family=family,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=latent.nope + latent.rope if latent else fields.size("head_dim", max(1, hidden // heads)),
        intermediate=fields.size("intermediate_size"),
        vocab=fields.size("vocab_size"),
        tied=fields.flag("tie_word_embeddings"),
        qk_norm=fields.flag("use_qk_norm", usual.qk_norm),
        qkv_bias=qkv_bias,
        latent=latent,
        indexer=indexer,
        experts=_experts(fields, usual, layers),
        next_n=fields.size("num_nextn_predict_layers", 0, least=0),
        quantisation=_quantisation(config, path),
    )


def _family(config: Mapping[str, object], path: str | Path | None) -> str:
    listed, kind = config.get("architectures"), config.get("model_type")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    if known := [ARCHITECTURES[name] for name in names if name in ARCHITECTURES]:
        return known[0]
    if not names and isinstance(kind, str) and kind in FAMILIES:
        return kind
    name = names[0] if names else kind if isinstance(kind, str) else None
    what = f"architecture '{name}' is not known" if name else "no architectures and no model_type"
    raise BadInput(what, path=path, remedy=f"Known are {', '.join(ARCHITECTURES)}.")


def _experts(fields: _Fields, usual: Architecture, layers: int) -> Experts | None:
    count = "num_experts" if fields.has("num_experts") else "n_routed_experts"
    if not (usual.experts or fields.has(count)):
        return None
    router = fields.get("topk_method", lambda v: isinstance(v, str), "not a word", "")
    dense = fields.get("mlp_only_layers", _are_layers, "not a list of layers", [])
    experts = Experts(
        fields.size(count),
        fields.size("num_experts_per_tok"),
        fields.size("n_shared_experts", 0, least=0),
        fields.size("moe_intermediate_size"),
        first_layer=fields.size("first_k_dense_replace", 0, least=0),
        every=fields.size("decoder_sparse_step", 1),
        dense=frozenset(dense),
        scoring=fields.get("scoring_func", SCORING.__contains__, "neither softmax nor sigmoid", usual.scoring),
        router_bias=router == "noaux_tc" if router else usual.router_bias,
        scale=float(fields.get("routed_scaling_factor", _is_positive, "not a number above 0", usual.scale)),
        fused=usual.fused_experts,
    )
    if experts.per_token > experts.count:
        raise BadInput(f"{experts.per_token} experts per token of {experts.count} in all", path=fields.path)
    if experts.first_layer > layers:
        raise BadInput(f"first_k_dense_replace is {experts.first_layer} of {layers} layers", path=fields.path)
    return experts


def _are_layers(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int for n in value)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and 0 < value < LARGEST


def _quantisation(config: Mapping[str, object], path: str | Path | None) -> str | None:
    """What the config says of itself; `npuscope predict --quant` decides what is predicted."""
    section = config.get("quantization_config")
    if section is None:
        return None
    method = section.get("quant_method") if isinstance(section, Mapping) else None
    if not isinstance(method, str):
        raise BadInput("quantization_config has no quant_method", path=path)
    return method


@dataclass(frozen=True)
class _Fields:
    """Fields of a config, each checked when it is asked for; a null is as good as none."""

    config: Mapping[str, object]
    path: str | Path | None

    def has(self, name: str) -> bool:
        return self.config.get(name) is not None

    def get(self, name: str, is_good: Callable[[Any], bool], what: str, otherwise: Any = None) -> Any:
        value = self.config.get(name)
        if value is None and otherwise is None:
            raise BadInput(f"the config has no {name}", path=self.path)
        if value is not None and not is_good(value):
            raise BadInput(f"{name} is {value!r}, {what}", path=self.path)
        return otherwise if value is None else value

    def size(self, name: str, otherwise: int | None = None, least: int = 1, most: int = LARGEST) -> int:
        what = f"not a whole number from {least} to {most:,}"
        found: int = self.get(name, lambda v: type(v) is int and least <= v <= most, what, otherwise)
        return found

    def flag(self, name: str, otherwise: bool = False) -> bool:
        found: bool = self.get(name, lambda v: type(v) is bool, "not true or false", otherwise)
        return found


Phase = Literal["decode", "prefill"]
Quant = Literal["none", "w8a8"]
BLOCK = 128  # tokens of a page of the cache
MOST = 10**7


@dataclass(frozen=True)
class PassSettings:
    """One forward pass on one rank. `batch`, `tokens` and `context` are those of one data-parallel group.

    `batch` sequences have `context` tokens each in the cache before the pass, which computes `tokens` in all:
    one per sequence in decode.
    """

    phase: Phase
    batch: int
    tokens: int
    context: int
    tp: int = 1
    dp: int = 1
    ep: int = 1
    quant: Quant = "none"
    busiest: float = 1.0  # work of this rank's experts, over the mean of all ranks

    @property
    def slice_rows(self) -> int:
        """Rows of one rank where the tokens are spread over the tensor-parallel ranks (sequence parallel)."""
        return ceil(self.tokens / self.tp)

    @property
    def padded_rows(self) -> int:
        return self.slice_rows * self.tp

    @property
    def pages(self) -> int:
        """Pages of the cache that the sequences fill."""
        return self.batch * ceil((self.context + self.tokens / self.batch) / BLOCK)


def pass_settings(
    model: ModelConfig,
    phase: str,
    *,
    batch: int = 1,
    tokens: int | None = None,
    context: int = 0,
    tp: int = 1,
    dp: int = 1,
    ep: int | None = None,
    quant: str = "none",
) -> PassSettings:
    """A run that the model can be spread over; raises with one sentence where it cannot."""
    if phase not in ("decode", "prefill"):
        raise NpuscopeError(f"no phase '{phase}'", remedy="Phases are decode and prefill.")
    if quant not in ("none", "w8a8"):
        raise NpuscopeError(f"no quantisation '{quant}'", remedy="Known are w8a8 and none.")
    at_least = {
        "batch": (batch, 1),
        "context": (context, 0),
        "tp": (tp, 1),
        "dp": (dp, 1),
        "ep": (1 if ep is None else ep, 1),
    }
    if phase == "decode":
        if tokens is not None and tokens != batch:
            raise NpuscopeError("decode computes one token per sequence", remedy="Give --batch, not --tokens.")
        tokens = batch
    if tokens is None:
        raise NpuscopeError("prefill needs the number of tokens", remedy="Give --tokens, of all sequences together.")
    for name, (value, least) in {**at_least, "tokens": (tokens, 1)}.items():
        if not least <= value <= MOST:
            raise NpuscopeError(f"--{name} is {value}, not a number from {least} to {MOST:,}")
    experts = model.experts
    spread = (tp * dp if ep is None else ep) if experts else 1
    has_dense = any(not model.has_experts(layer) for layer in range(model.layers))
    shared_kv = model.latent is None and max(model.kv_heads, tp) % min(model.kv_heads, tp)
    wrong = {
        f"{tokens} tokens do not spread evenly over {batch} sequences": tokens % batch,
        f"--ep {ep} for a model without experts": experts is None and ep not in (None, 1),
        f"--ep {ep} is neither 1 nor tp·dp = {tp * dp}: experts go over all ranks or none": spread not in (1, tp * dp),
        f"tp {tp} does not divide the {model.heads} attention heads": model.heads % tp,
        f"tp {tp} neither divides nor is a multiple of the {model.kv_heads} key-value heads": shared_kv,
        f"tp {tp} does not divide the intermediate size {model.intermediate}": has_dense and model.intermediate % tp,
    }
    if experts is not None:
        wrong[f"{experts.count} experts cannot be spread over {spread} ranks"] = experts.count % spread
        split = spread == 1 and experts.intermediate % tp
        wrong[f"tp {tp} does not divide the experts' intermediate size {experts.intermediate}"] = split
    for problem, holds in wrong.items():
        if holds:
            raise NpuscopeError(problem)
    return PassSettings(phase, batch, tokens, context, tp, dp, spread, quant)  # type: ignore[arg-type]  # checked above
