"""The time of a call: by hand for each law, in words for where it came from, and never below the chip's limit."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.chip.devices import Device, constants, load
from npuscope.forward.calls import Call, CallTensor
from npuscope.forward.estimate import CallTime, estimate

ROOT = Path(__file__).resolve().parents[2]
A3 = load("a3")


def matmul(m: int, k: int, n: int, kind: str = "MatMulV2") -> Call:
    dtype = "INT8" if kind.startswith("Quant") else "BF16"
    return Call(kind, (CallTensor((m, k), dtype), CallTensor((k, n), dtype)), (CallTensor((m, n)),))


def collective(kind: str, size: float, ranks: int = 16) -> Call:
    return Call(f"hcom_{kind}_", (), (), {"bytes": size, "ranks": float(ranks)})


def us(call: Call, device: Device = A3) -> float:
    ns = estimate(call, device).ns
    assert ns is not None
    return ns / 1000


def test_a_product_of_few_rows_by_hand() -> None:
    """16×5120×768: 24 column tiles of 32, one per core, in one wave.

    Weights 7.864 MB: 4.470 µs at 1.759 TB/s, and 0.3277 MB per core at 78.2 GB/s 4.190 µs; together the cube root of
    the sum of cubes, 5.462 µs. Beyond them each core loads 16 rows of 5120: 0.1638 MB at 126 GB/s, 1.300 µs.
    """
    cost = {name: c.value for name, c in A3.family["gemm"].items()}
    weights = 5120 * 768 * 2
    first = ((weights / A3.bandwidth) ** 3 + (weights / 24 / cost["first"]) ** 3) ** (1 / 3)
    again = 16 * 5120 * 2 / cost["again"]
    found = estimate(matmul(16, 5120, 768), A3)
    assert found.ns == pytest.approx((cost["fixed"] + first + again) * 1e9, abs=1)
    assert (found.source, found.extrapolated) == ("INTERPOLATED", False)


def test_a_quantised_product_uses_wide_columns_only() -> None:
    """1×7168×2112 has 9 columns of 256 for 24 cores, so it takes nearly as long as the twice as wide 4096."""
    narrow, wide = (us(matmul(1, 7168, n, "QuantBatchMatmulV3")) for n in (2112, 4096))
    assert narrow == pytest.approx(28.25, rel=0.06)  # measured 28.2 and 28.3
    assert wide == pytest.approx(32.1, rel=0.06)


def test_outside_the_measured_sizes_a_product_is_extrapolated() -> None:
    assert estimate(matmul(16, 5120, 200_000), A3).extrapolated
    assert not estimate(matmul(64, 4096, 4096), A3).extrapolated


def test_the_measured_all_reduce_and_one_of_another_size() -> None:
    point = estimate(collective("allReduce", 163840), A3)
    assert point == CallTime(20200, "MEASURED", point.limit_ns, "measured point")
    other = estimate(collective("allReduce", 81920), A3)
    assert (other.source, other.extrapolated) == ("INTERPOLATED", True)
    assert other.ns is not None
    assert 18_000 < other.ns < 20_200


def test_prefill_collectives_follow_the_published_lines() -> None:
    """measured.md §5, for 2.5 MB per rank: 86.9 + 15·2.5/0.2146 = 261.6 µs, and 103.2 + 15·2.5/0.1714 = 322.0 µs."""
    assert us(collective("allGather", 2.5e6)) == pytest.approx(261.6, abs=0.1)
    assert us(collective("reduceScatter", 16 * 2.5e6)) == pytest.approx(322.0, abs=0.1)
    assert not estimate(collective("allGather", 2.5e6), A3).extrapolated
    assert estimate(collective("allGather", 2.5e6, ranks=8), A3).extrapolated


def test_one_measured_point_is_measured_there_and_extrapolated_elsewhere() -> None:
    logits = CallTensor((16, 151936), "FLOAT")
    sort = Call("Sort", (logits,), (logits, CallTensor((16, 151936), "INT32")))
    found = estimate(sort, A3)
    assert (found.source, found.extrapolated) == ("MEASURED", False)
    assert found.ns == pytest.approx(234_548, rel=0.001)
    half = CallTensor((8, 151936), "FLOAT")
    other = estimate(Call("Sort", (half,), (half, CallTensor((8, 151936), "INT32"))), A3)
    assert (other.source, other.extrapolated) == ("INTERPOLATED", True)


def test_a_kernel_without_calibration_is_at_its_limit_and_says_so() -> None:
    x = CallTensor((4096, 4096))
    found = estimate(Call("Gelu", (x,), (x,)), A3)
    assert found.source == "ANALYTIC"
    assert found.ns == found.limit_ns
    assert "no calibration" in found.why


def test_products_of_a_type_that_was_not_measured_are_at_the_limit() -> None:
    a, b = CallTensor((64, 4096), "FLOAT"), CallTensor((4096, 4096), "FLOAT")
    assert estimate(Call("MatMulV2", (a, b)), A3).source == "ANALYTIC"


@pytest.mark.parametrize(
    "call",
    [
        Call("MatMulV2"),
        Call("MatMulV2", (CallTensor((4, 8)), CallTensor((9, 10)))),
        Call("MatMulV2", (CallTensor((0, 8)), CallTensor((8, 10)))),
        Call("hcom_allReduce_"),
        Call(
            "FusedInferAttentionScore",
            (CallTensor((16, 4, 128)), CallTensor((99, 128, 128)), CallTensor((99, 128, 128))),
        ),
        Call("DispatchFFNCombine", (CallTensor((1, 7168)),)),
        Call("DispatchFFNCombine", (CallTensor((1, 7168)),), (), {"tokens_per_expert": 1.0, "ranks": 16.0}),
        Call("AddRmsNormBias"),
        Call("somebodys_kernel", (CallTensor((4096, 4096)),), (CallTensor((4096, 4096)),)),
        Call(""),
    ],
)
def test_a_call_that_cannot_be_priced_has_no_time_and_a_reason(call: Call) -> None:
    found = estimate(call, A3)
    assert (found.ns, found.source, found.limit_ns) == (None, "UNKNOWN", None)
    assert found.why


@given(
    m=st.integers(1, 50_000),
    k=st.integers(1, 20_000),
    n=st.integers(1, 20_000),
    kind=st.sampled_from(["MatMulV2", "MatMulV3", "QuantBatchMatmulV3"]),
)
def test_no_product_beats_the_chip(m: int, k: int, n: int, kind: str) -> None:
    found = estimate(matmul(m, k, n, kind), A3)
    assert found.ns is not None
    assert found.limit_ns is not None
    assert found.ns >= found.limit_ns


@given(rows=st.integers(1, 20_000), more=st.integers(1, 20_000))
@pytest.mark.parametrize(
    "kind", ["AddRmsNormBias", "SwiGlu", "DynamicQuant", "RmsNorm", "InterleaveRope", "Sort", "Muls"]
)
def test_more_rows_are_never_faster(kind: str, rows: int, more: int) -> None:
    few, many = (us(Call(kind, (CallTensor((r, 4096)),), (CallTensor((r, 4096)),))) for r in (rows, rows + more))
    assert many >= few


def test_every_calibrated_constant_says_where_it_comes_from() -> None:
    calibrated = [(place, c) for place, c in constants(A3) if place.startswith("family.")]
    assert len(calibrated) > 100
    assert all(c.source and c.unit for _, c in calibrated)


def test_the_device_file_holds_what_the_fit_gives_and_products_meet_their_bound(shared: Path) -> None:
    """`calibrate.py --check`: cross-validated error of products at most 8 %, shapes and whole (type, K, N) left out."""
    script = ROOT / "benchmarks" / "calibrate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if "left out |" in line and "family" not in line]
    errors = {row[1].strip(): float(row[2].strip(" %")) for row in rows}
    assert set(errors) == {"shape left out", "type, K, N left out"}
    assert max(errors.values()) <= 8.0
