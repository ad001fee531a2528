"""A model as its Hugging Face `config.json` describes it: sizes only, checked, in our own words.

Families: dense decoders with grouped-query attention (Llama, Qwen3), their mixtures of experts (Qwen3 MoE), and
latent attention with experts (DeepSeek-V3 and V3.1; with an indexer that picks keys: DeepSeek-V3.2, GLM-5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuscope.errors import BadInput
from npuscope.trace.json_file import read_json

LARGEST = 10**9  # no size of a model is beyond this
DEEPEST = 10_000  # layers; each becomes a dozen kernels
FAMILIES = {
    "llama": "Llama",
    "qwen3": "Qwen3",
    "qwen3_moe": "Qwen3 MoE",
    "deepseek_v3": "DeepSeek-V3",
    "deepseek_v32": "DeepSeek-V3.2",
    "glm_moe_dsa": "GLM-5",
}
ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
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
    """A mixture of experts in every layer from `first_layer` on, each `every` layers, save the layers in `dense`."""

    count: int
    per_token: int
    shared: int
    intermediate: int
    first_layer: int = 0
    every: int = 1
    dense: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Model:
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
    latent: Latent | None = None
    indexer: Indexer | None = None
    experts: Experts | None = None
    next_n: int = 0
    quantisation: str | None = None  # as the config names its method

    @property
    def title(self) -> str:
        return FAMILIES[self.family]

    def has_experts(self, layer: int) -> bool:
        e = self.experts
        return e is not None and layer >= e.first_layer and (layer + 1) % e.every == 0 and layer not in e.dense


def read_config(path: str | Path) -> Model:
    """The model of a `config.json`."""
    place = Path(path)
    return model_of(read_json(place, dict[str, Any], "a model's config.json"), place)


def model_of(config: Mapping[str, Any], path: str | Path | None = None) -> Model:
    """The model that a decoded config describes; raises BadInput with what is missing or wrong."""
    fields = _Fields(config, path)
    family = _family(config, path)
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    layers = fields.size("num_hidden_layers", most=DEEPEST)
    kv_heads = fields.size("num_key_value_heads", heads)
    latent = None
    if family in ("deepseek_v3", "deepseek_v32", "glm_moe_dsa"):
        latent = Latent(
            fields.size("q_lora_rank"),
            fields.size("kv_lora_rank"),
            fields.size("qk_nope_head_dim"),
            fields.size("qk_rope_head_dim"),
            fields.size("v_head_dim"),
        )
    else:
        if heads % kv_heads:
            raise BadInput(f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}", path=path)
        if "head_dim" not in config and hidden % heads:
            raise BadInput(f"hidden_size {hidden} is no multiple of num_attention_heads {heads}", path=path)
    head_dim = latent.nope + latent.rope if latent else fields.size("head_dim", max(1, hidden // heads))
    return Model(
        family=family,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=fields.size("intermediate_size"),
        vocab=fields.size("vocab_size"),
        tied=fields.flag("tie_word_embeddings"),
        qk_norm=family in ("qwen3", "qwen3_moe"),
        latent=latent,
        indexer=_indexer(fields, family),
        experts=_experts(fields, family, layers),
        next_n=fields.size("num_nextn_predict_layers", 0, least=0),
        quantisation=_quantisation(config, path),
    )


def _family(config: Mapping[str, Any], path: str | Path | None) -> str:
    listed = config.get("architectures")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    for name in names:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    kind = config.get("model_type")
    if not names and isinstance(kind, str) and kind in FAMILIES:
        return kind
    told = names[0] if names else kind if isinstance(kind, str) else None
    what = f"architecture '{told}' is not known" if told else "no architectures and no model_type"
    raise BadInput(what, path=path, remedy=f"Known are {', '.join(ARCHITECTURES)}.")


def _indexer(fields: _Fields, family: str) -> Indexer | None:
    if family not in ("deepseek_v32", "glm_moe_dsa"):
        return None
    return Indexer(fields.size("index_n_heads"), fields.size("index_head_dim"), fields.size("index_topk"))


def _experts(fields: _Fields, family: str, layers: int) -> Experts | None:
    if family == "qwen3_moe":
        experts = Experts(
            fields.size("num_experts"),
            fields.size("num_experts_per_tok"),
            0,
            fields.size("moe_intermediate_size"),
            every=fields.size("decoder_sparse_step", 1),
            dense=fields.layers("mlp_only_layers"),
        )
    elif family in ("deepseek_v3", "deepseek_v32", "glm_moe_dsa"):
        experts = Experts(
            fields.size("n_routed_experts"),
            fields.size("num_experts_per_tok"),
            fields.size("n_shared_experts", 0, least=0),
            fields.size("moe_intermediate_size"),
            first_layer=fields.size("first_k_dense_replace", 0, least=0),
        )
    else:
        return None
    if experts.per_token > experts.count:
        raise BadInput(f"{experts.per_token} experts per token of {experts.count} in all", path=fields.path)
    if experts.first_layer > layers:
        raise BadInput(f"first_k_dense_replace is {experts.first_layer} of {layers} layers", path=fields.path)
    return experts


def _quantisation(config: Mapping[str, Any], path: str | Path | None) -> str | None:
    """What the config says of itself; `npuscope predict --quant` decides what is predicted."""
    told = config.get("quantization_config")
    if told is None:
        return None
    method = told.get("quant_method") if isinstance(told, Mapping) else None
    if not isinstance(method, str):
        raise BadInput("quantization_config has no quant_method", path=path)
    return method


@dataclass(frozen=True)
class _Fields:
    """Fields of a config, each checked when it is asked for."""

    config: Mapping[str, Any]
    path: str | Path | None

    def size(self, name: str, otherwise: int | None = None, least: int = 1, most: int = LARGEST) -> int:
        value = self.config.get(name)
        if value is None:
            if otherwise is None:
                raise BadInput(f"the config has no {name}", path=self.path)
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise BadInput(f"{name} is {value!r}, not a whole number from {least} to {most:,}", path=self.path)
        return value

    def flag(self, name: str) -> bool:
        value = self.config.get(name, False)
        if not isinstance(value, bool):
            raise BadInput(f"{name} is {value!r}, not true or false", path=self.path)
        return value

    def layers(self, name: str) -> frozenset[int]:
        value = self.config.get(name) or []
        if not isinstance(value, list) or not all(isinstance(n, int) and not isinstance(n, bool) for n in value):
            raise BadInput(f"{name} is {value!r}, not a list of layers", path=self.path)
        return frozenset(value)
