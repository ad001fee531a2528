"""Pictures of pages as small files: 256 colours, of all that are met some and of those met most the more."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

INDEXED = """async picture => {
    const image = new Image();
    image.src = picture;
    await image.decode();
    const { width, height } = image, canvas = new OffscreenCanvas(width, height), paper = canvas.getContext("2d");
    paper.drawImage(image, 0, 0);
    const { data } = paper.getImageData(0, 0, width, height), met = new Map();
    const colorAt = i => data[i] << 16 | data[i + 1] << 8 | data[i + 2];
    for (let i = 0; i < data.length; i += 4) met.set(colorAt(i), (met.get(colorAt(i)) ?? 0) + 1);
    const often = [...met].sort((a, b) => b[1] - a[1]).map(one => one[0]), first = new Map();
    for (const color of [...often].reverse()) first.set(color & 0xf0f0f0, color); // of colours much alike one
    const kept = [...new Set([...[...first.values()].reverse().slice(0, 192), ...often])].slice(0, 256);
    const near = new Map(kept.map((color, n) => [color, n])), part = (color, shift) => color >> shift & 255;
    const away = (a, b) => [16, 8, 0].reduce((sum, shift) => sum + (part(a, shift) - part(b, shift)) ** 2, 0);
    for (const color of met.keys()) {
        if (near.has(color)) continue;
        let best = 0;
        kept.forEach((one, n) => { if (away(one, color) < away(kept[best], color)) best = n; });
        near.set(color, best);
    }
    let text = "";
    for (let i = 0; i < data.length; i += 4) text += String.fromCharCode(near.get(colorAt(i)));
    return [width, height, kept, btoa(text)];
}"""


def smaller(browser: Any, file: Path) -> None:
    """The PNG file with a palette, in its own place."""
    with browser.new_context() as context:
        page = context.new_page()
        data = base64.b64encode(file.read_bytes()).decode()
        width, height, colors, places = page.evaluate(INDEXED, f"data:image/png;base64,{data}")
    rows = base64.b64decode(places)
    lines = b"".join(b"\0" + rows[at : at + width] for at in range(0, width * height, width))
    palette = b"".join(color.to_bytes(3, "big") for color in colors)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts))


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
