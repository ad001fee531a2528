// The page's data: one JSON document whose long columns are packed as base64 of deflated little-endian arrays.

const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array, f64: Float64Array };

async function unpack(column) {
  const packed = Uint8Array.from(atob(column.data), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new ARRAYS[column.type](await new Response(stream).arrayBuffer());
}

export async function readData() {
  const data = JSON.parse(document.getElementById("data").textContent);
  for (const side of data.sides) {
    for (const table of [side.timeline.slices, side.timeline.bubbles, side.timeline.path, side.timeline.heat]) {
      for (const [name, column] of Object.entries(table)) {
        if (column?.type) table[name] = await unpack(column);
      }
    }
  }
  return data;
}
