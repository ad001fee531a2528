"""Packed captures unpack as they are read; damaged and malicious ones are refused in one sentence."""

import gzip
import zlib
from pathlib import Path

import pytest
import zstandard
from builders import balanced, kernel_row, refused, write_events, write_kernel_table, x

import npuscope
from npuscope.trace import source


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_a_packed_capture_reads_like_the_plain_one(tmp_path: Path, pack) -> None:
    plain = write_kernel_table(tmp_path / "k.csv", [kernel_row(), kernel_row(start="2000.5")])
    packed = tmp_path / "no_ending_that_tells"
    packed.write_bytes(pack(plain.read_bytes()))
    assert npuscope.read(packed).slices.equals(npuscope.read(plain).slices)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_a_packed_file_cut_short_is_refused(tmp_path: Path, pack) -> None:
    events = write_events(tmp_path / "t.json", [x(f"k{i}", i, 1) for i in range(500)])
    cut = tmp_path / "cut"
    cut.write_bytes(pack(events.read_bytes())[:-20])
    refused(cut, "ends too early")


def test_several_members_and_frames_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "two"
    path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert source.read_all(path) == b"one two"
    path.write_bytes(zstandard.compress(b"one ") + zstandard.compress(b"two"))
    assert source.read_all(path) == b"one two"


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_a_flipped_bit_is_refused_or_harmless(tmp_path: Path, pack) -> None:
    plain = write_events(tmp_path / "t.json", [x(f"k{i}", i, 1, args={"a": i * i}) for i in range(60)]).read_bytes()
    whole = pack(plain)
    path = tmp_path / "flipped"
    refused = 0
    for bit in range(0, 8 * len(whole), 3):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            read = npuscope.read(path)
        except npuscope.NpuscopeError:
            refused += 1
        else:
            assert balanced(read)
    assert refused > len(whole)  # of 8/3 of its size


def bomb(megabytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    blanks = (packer.compress(b" " * (1 << 20)) for _ in range(megabytes))
    return b"".join([packer.compress(b"["), *blanks, packer.flush()])


@pytest.mark.parametrize("packed", [bomb(300), zstandard.compress(b"[" + b" " * (300 << 20))], ids=["gzip", "zstd"])
def test_a_bomb_is_refused_long_before_it_is_unpacked(tmp_path: Path, packed: bytes) -> None:
    path = tmp_path / "bomb.json"
    path.write_bytes(packed)  # 300 MB of blanks in less than one
    with pytest.raises(npuscope.NpuscopeError, match="64 times its size"):
        source.read_all(path)
    refused(path, "64 times its size")
