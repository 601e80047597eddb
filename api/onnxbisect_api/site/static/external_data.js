// Where a model keeps its weights: the locations of external data that its initializers name, read as onnx.proto numbers
// the fields: ModelProto.graph 7, GraphProto.initializer 5, TensorProto.external_data 13, its key 1 and value 2.

// A file whose weights are elsewhere is smaller than this; a larger one is not looked through.
const MOST = 64e6;
const text = new TextDecoder();

export async function locations(file) {
  const found = new Set();
  if (file.size > MOST) return found;
  try {
    const model = new Uint8Array(await file.arrayBuffer());
    for (const graph of parts(model, 7))
      for (const tensor of parts(graph, 5))
        for (const entry of parts(tensor, 13)) {
          const [key, value] = [1, 2].map((number) => text.decode([...parts(entry, number)][0]));
          if (key === "location") found.add(value.replace(/^(\.\/)+/, ""));
        }
  } catch {
    return new Set(); // no ONNX file: the service says what it is
  }
  return found;
}

// The messages, strings and bytes of one field.
function* parts(bytes, wanted) {
  let at = 0;
  const varint = () => {
    for (let value = 0, scale = 1; ; scale *= 128) {
      if (at >= bytes.length || scale > 2 ** 63) throw new RangeError();
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const key = varint();
    const kind = key % 8;
    if (kind === 2) {
      const length = varint();
      if (at + length > bytes.length) throw new RangeError();
      if (Math.floor(key / 8) === wanted) yield bytes.subarray(at, at + length);
      at += length;
    } else if (kind === 0) varint();
    else if (kind === 1) at += 8;
    else if (kind === 5) at += 4;
    else throw new RangeError();
  }
}
