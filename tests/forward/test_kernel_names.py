"""Kernels and shapes that go by several names are one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.forward.align.pairing import form_of
from npuscope.forward.align.sides import families_of


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (["MatMul", "MatMulV2", "MatMulV3", "aten.mm.default", "aclnnMatmul_MatMulV2Common_MatMulV2"], "MatMul"),
        (["hcom_allReduce_", "HcomAllReduce", "all_reduce", "tensor_cast.all_reduce.default"], "AllReduce"),
        (["AddRmsNorm", "AddRmsNormBias", "InplaceAddRmsNorm", "add_rms_norm"], "AddRmsNorm"),
        (["FusedInferAttentionScore", "RINGMLAPrefillBF16Kernel", "FlashAttentionScore"], "Attention"),
        (["void at::native::(anonymous namespace)::spin<int, 4>(float*)", "spin<f(x)>"], "spin"),
        (["UnheardOfV2", "unheard_of_12", "ns.unheard_of.default"], "UnheardOf"),
    ],
)
def test_names_of_one_thing(names: list[str], family: str) -> None:
    assert {*families_of(names).values()} == {family}


@given(st.text(alphabet="aV2_.:<( ", max_size=12))
def test_any_name_has_a_family(name: str) -> None:
    assert families_of([name]).keys() == {name}


@pytest.mark.parametrize(
    ("shapes", "formats", "form"),
    [
        ('"4,3072;1024,192,16,16"', "ND;FRACTAL_NZ", ((4, 3072), (3072, 16384))),  # LongCat's output projection
        ("384,1024;32,96,64,16,32", "ND;FRACTAL_NZ", ((384, 1024), (32, 1024, 3072))),
        ("16,512;768,512", "", ((16, 512), (512, 768))),  # a transposed weight
        ("[[16, 512], [512, 768]]", "", ((16, 512), (512, 768))),  # as TensorCast writes it
        ("1,16,512;;768x512", "", ((16, 512), (512, 768))),
        ("161,1,32,128,16", "ND", ((16, 32, 128, 161),)),  # a cache, not NZ
        ("N/A", "", ()),
    ],
)
def test_shapes_of_one_call(shapes: str, formats: str, form: tuple[tuple[int, ...], ...]) -> None:
    assert form_of(shapes, formats) == form
