"""Mangled names read as people write them, and what is not understood stays as it was."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.chip.kernels import area_of
from npuscope.chip.kernels.demangle import demangled, readable

NAMES = {
    "_Z4gemmv": "gemm",
    "_Z4gemmPfS_i": "gemm",
    "_ZN5aiter4rope6kernelEPKfi": "aiter::rope::kernel",
    "_Z4copyIfEvPT_": "copy<float>",
    "_ZN5aiter4normIDF16bfLi64ELb0ELin3ELm8EEEvPT0_PT_": "aiter::norm<__bf16, float, 64, false, -3, 8ul>",
    "_ZN2ck4tile6kernelINS_4convINS_5shapeIJLi1ELi8EEEEEEENS_6layoutE5EEvT_": None,  # more arguments after the last
    "_ZN2ck6kernelINS_4convINS_5shapeIJLi1ELi8EEEEEEEEvT_": "ck::kernel<ck::conv<ck::shape<1, 8> > >",
    "_ZN2ck6kernelILNS_4ModeE2EEEvv": "ck::kernel<(ck::Mode)2>",
    "_ZN2at6native12_GLOBAL__N_14fillEPf": "at::native::(anonymous namespace)::fill",
    "_Z3runIZ4mainEUliE_EvT_": "run<main()::{lambda(int)#1}>",
    "_Z3runISt6vectorIiSaIiEEEvRKT_": "run<std::vector<int, std::allocator<int> > >",
    "_Z3runIPFviEEvT_": "run<void (*)(int)>",
    "_Z5applyI4halfTnPFT_RKS1_EXadL_Z4siluIS0_ES1_S3_EEEvPS1_": "apply<half, &silu<half> >",
    "_Z4gemmv.kd": "gemm.kd",
    "_ZN3runIXplLi1ELi2EEEvv": None,  # an expression
    "_Z": None,
    "_ZN": None,
    "_Z9short": None,
    "MatMulV2": None,
}


@pytest.mark.parametrize("name", NAMES)
def test_common_parts_are_read_and_others_left(name: str) -> None:
    assert demangled(name) == (NAMES[name] or name)


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="binutils are not on this machine")
def test_the_compilers_own_tool_reads_them_alike() -> None:
    odd = ("DF16b", "Tn", "IZ", ".")  # which it spells otherwise, or does not know
    known = [name for name, told in NAMES.items() if told and not any(part in name for part in odd)]
    told = subprocess.run(["c++filt", "-p", *known], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [demangled(name).replace(" ", "") for name in known] == [line.replace(" ", "") for line in told]


def test_names_that_would_read_alike_stay_apart() -> None:
    one, other = "_Z4gemmPf", "_Z4gemmPi"
    assert readable([one, other, "_Z4ropev"]) == {"_Z4ropev": "rope"}
    assert readable([one, "gemm"]) == {}


def test_a_mangled_name_means_what_the_plain_one_means() -> None:
    assert area_of("_ZN4vllm15rms_norm_kernelIfEEvPT_") == area_of("void vllm::rms_norm_kernel<float>(float*)")


parts = st.sampled_from(
    ["N", "2ck", "I", "E", "Li1E", "f", "P", "S_", "T_", "J", "Z", "Ul", "v", "X", "S0_", "_", "K", "9x"]
)


@given(st.lists(parts, max_size=20))
def test_anything_is_read_or_left(drawn: list[str]) -> None:
    assert demangled("_Z" + "".join(drawn))
