// Long columns: base64 of deflated little-endian arrays (lab/payload/packed.py), decoded all at once.

const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array, f64: Float64Array };

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
function bytes(text) {
  const fast = /** @type {any} */ (Uint8Array).fromBase64;
  return fast ? fast(text) : Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** @param {import("./types").Packed} column @returns {Promise<import("./types").Column>} */
async function unpack(column) {
  const stream = new Blob([bytes(column.data)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  if (!column.delta) return new ARRAYS[column.type](buffer);
  const steps = new ARRAYS[column.delta](buffer),
    values = new Float64Array(steps.length);
  let sum = 0;
  for (let i = 0; i < steps.length; i++) {
    sum += steps[i];
    values[i] = sum;
  }
  return values;
}

/** @param {any} value */
const isPacked = (value) =>
  typeof value === "object" && value !== null && typeof value.data === "string" && typeof value.type === "string";

/**
 * Replaces every packed column inside plain data by its array.
 * @param {any} data
 */
export async function unpackAll(data) {
  /** @type {Promise<void>[]} */
  const under = [];
  /** @param {any} at */
  const visit = (at) => {
    for (const key of Object.keys(at)) {
      const value = at[key];
      if (isPacked(value))
        under.push(
          unpack(value).then((array) => {
            at[key] = array;
          }),
        );
      else if (typeof value === "object" && value !== null && !ArrayBuffer.isView(value)) visit(value);
    }
  };
  visit(data);
  await Promise.all(under);
  return data;
}
