"""Small kernels in the compiler's assembly, written from its grammar."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def tile(space: str, rows: int, columns: int, dtype: str = "f32") -> str:
    return (
        f"!pto.tile_buf<loc={space}, dtype={dtype}, rows={rows}, cols={columns}, v_row=?, v_col=?, fractal=512, pad=0>"
    )


def allocated(name: str, kind: str, address: int, rows: int, columns: int) -> str:
    valid = f"valid_row = %c{rows} valid_col = %c{columns}"
    return f"%{name} = pto.alloc_tile addr = %a{address} {valid} : {kind}"


def function(name: str, kind: str, body: Iterable[str], arguments: str = "%arg0: !pto.ptr<f32>") -> str:
    """With constants `%cN` of index and `%aN` of addresses for every one that the body names."""
    lines = [line for text in body for line in text.splitlines()]
    words = sorted({word.strip(",])(") for line in lines for word in line.replace("[", " ").split()})
    constants = [
        f"%{word[1:]} = arith.constant {word[2:]} : {'i64' if word[1] == 'a' else 'index'}"
        for word in words
        if word[:2] in ("%c", "%a") and word[2:].isdigit()
    ]
    whole = "\n  ".join([*constants, *lines, "return"])
    head = f"func.func @{name}({arguments}) attributes {{pto.kernel_kind = #pto.kernel_kind<{kind}>}} {{"
    return f"{head}\n  {whole}\n  }}"


def module(*functions: str, arch: str = "a2a3") -> str:
    body = "\n  ".join(functions)
    return f'module attributes {{pto.target_arch = "{arch}"}} {{\n  {body}\n}}\n'


ROW = tile("vec", 16, 64)
BOX = "!pto.partition_tensor_view<16x64xf32>"
VIEW = "%x_view = pto.make_tensor_view %arg0, shape = [%c16, %c256], strides = [%c256, %c1] : !pto.tensor_view<?x?xf32>"


def box(name: str, column: str) -> str:
    sizes = "sizes = [%c16, %c64]"
    return (
        f"%{name} = pto.partition_view %x_view, offsets = [%c0, {column}], {sizes} : !pto.tensor_view<?x?xf32> -> {BOX}"
    )


def load(source: str, target: str, kind: str = ROW) -> str:
    return f"pto.tload ins(%{source} : {BOX}) outs(%{target} : {kind})"


def store(source: str, target: str, kind: str = ROW) -> str:
    return f"pto.tstore ins(%{source} : {kind}) outs(%{target} : {BOX})"


def binary(op: str, one: str, other: str, result: str) -> str:
    return f"pto.{op} ins(%{one}, %{other} : {ROW}, {ROW}) outs(%{result} : {ROW})"


def doubled(name: str = "double", loc: str = "", result: int = 4096, turns: int = 4) -> str:
    """Boxes of a row are loaded, doubled and stored, turn by turn, each in the place of the one before."""
    body = [
        VIEW,
        f"scf.for %i = %c0 to %c{turns} step %c1 {{",
        "%at = arith.muli %i, %c64 : index",
        allocated("x__tile", ROW, 0, 16, 64),
        box("from", "%at"),
        load("from", "x__tile") + loc,
        allocated("y__tile", ROW, result, 16, 64),
        binary("tadd", "x__tile", "x__tile", "y__tile"),
        store("y__tile", "from"),
        "}",
    ]
    return module(function(name, "vector", body))


def written(folder: Path, **kernels: str) -> Path:
    """A build folder with these kernels."""
    place = folder / "build_output" / "program" / "ptoas"
    place.mkdir(parents=True, exist_ok=True)
    for name, text in kernels.items():
        (place / f"{name}.pto").write_text(text)
    return place.parent
