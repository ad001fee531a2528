"""Matrix products: int8 exactly, floats to fp32 accuracy, batches and transposes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuscope.ops.cube import matmul


@given(
    st.integers(1, 9),
    st.sampled_from([1, 16, 1023, 1024, 1025, 2048, 3000]),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(), (1,), (3,)]),
    st.integers(0, 2**32),
)
def test_int8_is_exact(m: int, k: int, n: int, a_trans: bool, b_trans: bool, batch: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(-128, 128, (*batch, *((k, m) if a_trans else (m, k))))
    b = rng.integers(-128, 128, (*batch, *((n, k) if b_trans else (k, n))))
    exact = (a.swapaxes(-1, -2) if a_trans else a) @ (b.swapaxes(-1, -2) if b_trans else b)
    product = matmul(a.astype(np.float32), b.astype(np.float32), True, a_trans, b_trans)
    assert product.dtype == np.int32
    np.testing.assert_array_equal(product, exact)


def test_the_largest_sums_are_exact_and_the_accumulator_wraps() -> None:
    a = np.full((2, 131072), -128, np.float32)
    assert matmul(a[:, :1024], a[:, :1024].T, True).tolist() == [[2**24] * 2] * 2
    assert matmul(a[:, :4097], a[:, :4097].T, True).tolist() == [[4097 * 2**14] * 2] * 2
    large = np.random.default_rng(1).integers(100, 128, (8, 5000)).astype(np.float32)  # sums that fp32 cannot hold
    np.testing.assert_array_equal(matmul(large, large, True, b_trans=True), large.astype(int) @ large.astype(int).T)
    assert matmul(a, a, True, b_trans=True).tolist() == [[-(2**31)] * 2] * 2  # 2^17 * 2^14


@given(st.integers(1, 40), st.integers(1, 300), st.integers(1, 40), st.booleans(), st.booleans(), st.integers(0, 2**32))
def test_floats_are_within_fp32_of_the_exact_product(
    m: int, k: int, n: int, a_trans: bool, b_trans: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((k, m) if a_trans else (m, k), dtype=np.float32)
    b = rng.standard_normal((n, k) if b_trans else (k, n), dtype=np.float32)
    left, right = (a.T if a_trans else a).astype(np.float64), (b.T if b_trans else b).astype(np.float64)
    bound = k * 2.0**-24 * (np.abs(left) @ np.abs(right))  # of any order of k additions
    product = matmul(a, b, False, a_trans, b_trans)
    assert product.dtype == np.float32
    assert (np.abs(product - left @ right) <= bound + 1e-30).all()


def test_nan_and_infinity_reach_their_rows_and_columns() -> None:
    a, b = np.ones((4, 16), np.float32), np.ones((16, 3), np.float32)
    a[1, 3], b[5, 2] = np.nan, np.inf
    product = matmul(a, b, False)
    assert np.isnan(product[1]).all()
    assert np.isinf(product[[0, 2, 3], 2]).all()
    assert (product[[0, 2, 3], :2] == 16).all()
