from __future__ import annotations

import io
import json

import ml_dtypes
import numpy as np
import pytest

from npuscope.base.errors import NpuscopeError
from npuscope.ops import dtypes
from npuscope.tile.golden import ScalarSpec, TensorSpec, run_jit

pytestmark = pytest.mark.usefixtures("fake_runs")


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


HEADER = npy(np.zeros((3, 5), np.uint16))[:128]


_SIZES = b"{'descr': '<u2', 'fortran_order': False, 'shape': (4611686018427387904,), }"
HUGE = b"\x93NUMPY\x01\x00" + len(_SIZES).to_bytes(2, "little") + _SIZES


def doubled(wrote, x, offset, cache, y) -> None:
    y[:] = (x.astype(np.float32) * 2 + offset).astype(y.dtype)
    cache += 1
    wrote("y", y)


def golden(values) -> None:
    values["y"][:] = (values["x"].astype(np.float32) * 2 + values["offset"]).astype(ml_dtypes.bfloat16)
    values["cache"] += 1


def specs(**changed) -> list:
    made = {
        "x": TensorSpec("x", [3, 5], dtypes.BF16, init_value=lambda rng: rng.standard_normal((3, 5))),
        "offset": ScalarSpec("offset", np.float32, 0.5),
        "cache": TensorSpec("cache", [2], np.int32, init_value=4, is_output=True),
        "y": TensorSpec("y", [3, 5], dtypes.BF16, is_output=True),
    }
    return list((made | changed).values())


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "case"
    assert run_jit(doubled, specs(), golden, save_data=folder).passed
    return folder


def test_a_replay_has_the_same_inputs_and_goldens(saved) -> None:
    assert sorted(p.relative_to(saved).as_posix() for p in saved.rglob("*.npy")) == [
        "in/cache.npy",
        "in/offset.npy",
        "in/x.npy",
        "out/cache.npy",
        "out/y.npy",
    ]
    first = run_jit(doubled, specs()).run.arguments
    other = TensorSpec("x", [3, 5], dtypes.BF16, init_value=lambda: 1 / 0)  # not made again
    result = run_jit(doubled, specs(x=other), golden_data=str(saved), rtol=0, atol=0)
    assert result.passed
    assert result.compared
    assert result.run.arguments[0].tobytes() == first[0].tobytes()
    assert result.run.arguments[1] == 0.5


def test_a_replay_catches_a_program_that_changed(saved) -> None:
    def changed(wrote, x, offset, cache, y) -> None:
        doubled(wrote, x, offset + 1, cache, y)

    result = run_jit(changed, specs(), lambda values: 1 / 0, golden_data=saved)  # golden_fn is ignored
    assert not result.passed
    assert "['y']" in result.error


def test_bf16_is_kept_by_its_bits(saved) -> None:
    assert np.load(saved / "in" / "x.npy").dtype == np.uint16
    assert json.loads((saved / "in" / "dtypes.json").read_text())["x"] == "bfloat16"


def test_missing_files_are_listed(saved) -> None:
    (saved / "in" / "x.npy").unlink()
    (saved / "out" / "y.npy").unlink()
    result = run_jit(doubled, specs(), golden_data=saved)
    assert not result.passed
    assert f"{saved}/in/x.pt" in result.error
    assert f"{saved}/out/y.pt" in result.error
    assert "cache" not in result.error


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("in/x.npy", np.zeros((5, 3), np.uint16), "has shape (5, 3), the spec of 'x' (3, 5)"),
        ("in/cache.npy", np.zeros(2, np.float32), "holds float32, the spec of 'cache' says"),
        ("in/offset.npy", np.zeros(1, np.float32), "the spec of 'offset' ()"),
        ("out/y.npy", b"no array", "cannot be read"),
        ("in/x.npy", b"", "cannot be read"),
        ("in/x.npy", HEADER[:40], "in/x.npy: cannot be read: it is no whole array in NumPy's .npy format."),
        ("in/x.npy", HEADER.replace(b"(3, 5)", b"(3, 2"), "cannot be read"),
        ("in/x.npy", HEADER.replace(b"(3, 5), }" + b" " * 18, b"(999999999, 99999999), }   "), "cannot be read"),
        ("in/x.npy", HUGE, "cannot be read"),
        ("in/x.npy", b"PK\x03\x04" + bytes(80), "it is no whole array in NumPy's .npy format"),
        ("out/y.npy", np.zeros((3, 5), np.float32), "holds float32, the spec of 'y' says"),
        ("out/cache.npy", np.zeros(2, np.int64), "holds int64, the spec of 'cache' says"),
        ("in/dtypes.json", b"[", "in/dtypes.json: cannot be read: it is no JSON"),
        ("in/dtypes.json", b'["x"]', "in/dtypes.json: holds a list, not dtypes by name"),
        ("in/dtypes.json", b'{"x": "bf16"}', "in/dtypes.json: names 'bf16' for 'x', which is no dtype"),
        ("in/dtypes.json", b'{"x": [3]}', "names [3] for 'x', which is no dtype"),
    ],
)
def test_files_that_do_not_fit_are_refused(saved, name, content, says) -> None:
    if isinstance(content, bytes):
        (saved / name).write_bytes(content)
    else:
        np.save(saved / name, content)
    result = run_jit(doubled, specs(), golden_data=saved)
    assert not result.passed
    assert says in result.error
    assert name.split("/")[0] in result.error
    assert "allow_pickle" not in result.error


def test_a_golden_that_was_saved_in_another_dtype_is_replayed_in_it(tmp_path) -> None:
    def wide(values) -> None:
        golden(values)
        values["y"] = values["y"].astype(np.float64)

    assert run_jit(doubled, specs(), wide, save_data=tmp_path / "case").passed
    assert np.load(tmp_path / "case" / "out" / "y.npy").dtype == np.float64
    assert run_jit(doubled, specs(), golden_data=tmp_path / "case").passed


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "..", "", "a/b", "a\\b", "a\0b"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name) -> None:
    given = [TensorSpec(name, [2], np.float32, init_value=1.0)]
    for option in ("save_data", "golden_data"):
        with pytest.raises(
            NpuscopeError, match=r"test_data.py, line \d+: the spec's name .* is no plain name of a file"
        ):
            run_jit(lambda wrote, x: None, given, **{option: tmp_path / "deep" / "case"})
    assert not list(tmp_path.rglob("*"))


def test_a_torch_file_needs_torch(saved, monkeypatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)
    (saved / "in" / "x.pt").write_bytes(b"")
    assert "Import torch" in run_jit(doubled, specs(), golden_data=saved).error


def test_saving_again_replaces_and_never_touches_anything_else(saved, tmp_path) -> None:
    assert run_jit(doubled, specs(), golden, save_data=saved).passed
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.txt").write_text("mine")
    with pytest.raises(Exception, match="something else is there"):
        run_jit(doubled, specs(), golden, save_data=tmp_path / "work")
    assert [p.name for p in (tmp_path / "work").iterdir()] == ["thesis.txt"]
    (saved / "in" / "notes.txt").write_text("mine too")
    with pytest.raises(Exception, match="something else is there"):
        run_jit(doubled, specs(), golden, save_data=saved)
    with pytest.raises(NpuscopeError, match=r"work/thesis\.txt"):
        run_jit(doubled, specs(), golden, save_data=tmp_path / "work" / "thesis.txt" / "a" / "b")


def test_saving_without_a_folder_goes_to_build_output(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_jit(doubled, specs(), golden, save_data=True)
    assert result.work_dir.as_posix() == "build_output/doubled"
    assert run_jit(doubled, specs(), golden_data="build_output/doubled/data").passed
