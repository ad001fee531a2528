"""The debugging of a fused kernel: the norm agrees bit for bit, the rotation does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.base.errors import NpuscopeError
from npuscope.tile.golden import ScalarSpec, TensorSpec, diff_runs, differences
from tests.tile.golden.conftest import execute

f = np.float32
X = np.linspace(-1, 1, 16, dtype=f).reshape(2, 8)


def variant(rotate, *, extra: bool = False):
    def program(wrote, x, out) -> None:
        wrote("x", x, task=False)
        wrote("out", out, task=False)  # a parameter: made first, written last
        q_pre_rope = x * f(0.5)
        wrote("q_pre_rope", q_pre_rope)
        q_rope = rotate(q_pre_rope)
        wrote("q_rope", q_rope)
        if extra:
            wrote("scratch", q_rope)
        out[:] = q_rope + 1
        wrote("out", out)

    return program


def right(q):
    return q[:, ::-1].copy()


def faulty(q):
    wrong = right(q)
    wrong[1, 3:] = q[0, 3:]
    return wrong


def test_the_first_tensor_that_differs_is_found_with_its_writers(executor) -> None:
    found = diff_runs(variant(right), variant(faulty), X, np.zeros_like(X), executor=executor)
    first = found.first
    assert first.name == "q_rope"
    assert first.identical_before == ("x", "q_pre_rope")
    assert (first.differing, first.elements, first.index) == (5, 16, (1, 3))
    assert first.a == right(X * f(0.5))[1, 3]
    assert first.b == (X * f(0.5))[0, 3]
    assert (first.written_a, first.written_b) == ("task 1", "task 1")
    assert [d.name for d in found.differing] == ["q_rope", "out"]
    # element (1, j) is x / 2 of flat index 15 - j, faulty of j: (15 - 2j) / 15, largest at j = 3
    assert found.text().splitlines() == [
        "2 of 4 named tensors differ",
        "first: 'q_rope' [2, 8] float32 differs",
        "  5 of 16 elements, by at most 0.6",
        f"  first at [1, 3]: A {first.a:.9g} ({first.bits_a}), B {first.b:.9g} ({first.bits_b})",
        "  last written in A by task 1",
        "  last written in B by task 1",
        "  bitwise identical before it: x, q_pre_rope",
        "then: out (5)",
    ]


def test_equal_variants_have_no_difference(executor) -> None:
    found = diff_runs(variant(right), variant(right), X, np.zeros_like(X), executor=executor)
    assert found.first is None
    assert found.text() == "all 4 named tensors are bitwise identical"


def test_the_arguments_stay_as_they_were(executor) -> None:
    out = np.zeros_like(X)
    diff_runs(variant(right), variant(faulty), X, out, executor=executor)
    assert not out.any()


def test_specs_serve_as_arguments(executor) -> None:
    def program(wrote, x, n) -> None:
        wrote("x", x * n)

    specs = [TensorSpec("x", [4], f, init_value=lambda rng: rng.random(4)), ScalarSpec("n", np.int32, 3)]
    assert diff_runs(program, program, *specs, executor=executor).identical == ("x",)


def run_of(**tensors):
    def program(wrote) -> None:
        for name, value in tensors.items():
            wrote(name, np.asarray(value))

    return execute(program, mode="values")


def test_tensors_may_be_chosen_and_renamed() -> None:
    a = run_of(q=[1.0, 2.0], k=[1.0], tmp=[0.0])
    b = run_of(q_fused=[1.0, 3.0], k=[1.0], other=[0.0])
    assert differences(a, b).identical == ("k",)
    assert (differences(a, b).only_a, differences(a, b).only_b) == (("q", "tmp"), ("q_fused", "other"))
    first = differences(a, b, rename={"q": "q_fused"}).first
    assert (first.name, first.name_b, first.index) == ("q", "q_fused", (1,))
    assert first.text().startswith("'q' ('q_fused' in B) [2] float64 differs")
    assert differences(a, b, only=["k"], rename={"q": "q_fused"}).first is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"only": ["v"]}, "only: run A has no tensor v. It has q, k."),
        ({"rename": {"v": "q"}}, "rename: run A has no tensor v"),
        ({"rename": {"q": "v"}}, "rename: run B has no tensor v"),
    ],
)
def test_unknown_names_are_refused(options, says) -> None:
    with pytest.raises(NpuscopeError, match=says):
        differences(run_of(q=[1.0], k=[1.0]), run_of(q=[1.0], k=[1.0]), **options)


def test_nothing_in_common_is_no_agreement() -> None:
    with pytest.raises(NpuscopeError, match="no named tensor in common"):
        differences(run_of(a=[1.0]), run_of(b=[1.0]))


def test_shapes_of_as_many_elements_are_compared_in_order() -> None:
    a, b = run_of(q=np.arange(6.0).reshape(2, 3)), run_of(q=np.arange(6.0))
    assert differences(a, b).first is None


@pytest.mark.parametrize("other", [np.zeros(5), np.zeros(6, np.float32)])
def test_what_cannot_be_compared_differs(other) -> None:
    first = differences(run_of(q=np.zeros(6)), run_of(q=other)).first
    assert first.index is None
    assert first.reason == f"A has [6] float64, B has [{other.size}] {other.dtype}"


def test_bits_decide() -> None:
    quiet, payload = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(f)
    same = run_of(q=np.array([quiet, payload]))
    assert differences(same, run_of(q=np.array([quiet, payload]))).first is None
    assert differences(same, run_of(q=np.array([quiet, quiet]))).first.index == (1,)
    zero = differences(run_of(q=np.array([0.0], f)), run_of(q=np.array([-0.0], f))).first
    assert (zero.bits_a, zero.bits_b) == ("0x00000000", "0x80000000")


@given(st.lists(st.integers(0, 255), min_size=1, max_size=20), st.data())
def test_as_many_elements_differ_as_were_changed(values, data) -> None:
    changed = sorted(data.draw(st.sets(st.integers(0, len(values) - 1))))
    a, b = np.array(values, np.uint8), np.array(values, np.uint8)
    b[changed] ^= 1
    first = differences(run_of(q=a), run_of(q=b)).first
    assert (first is None) == (not changed)
    if first is not None:
        assert (first.differing, first.index, first.largest) == (len(changed), (changed[0],), 1.0)
