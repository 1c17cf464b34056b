// The numbers: unpacked once, and read where they are shown.

async function unpack(text) {
  const letters = atob(text);
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
}

const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

class Numbers {
  constructor(bytes) {
    const length = new DataView(bytes.buffer).getUint32(0, true);
    const {about, tensors} = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
    this.about = about;
    this.tensors = tensors;
    this.bytes = bytes.subarray(4 + length);
    [this.layers, , this.heads, this.tokens] = tensors.prior.shape;
    [, , , this.channels, this.kept] = tensors.top_token.shape;
    this.rows = [...this.read("rows")];
    this.labels = about.tokens.map(seen);
    const isLong = about.kind !== "text" && this.labels.some((label) => label.length > 12);
    this.axis = isLong ? this.labels.map((_, token) => String(token)) : this.labels;  // below pictures
    this.rowOf = new Map(this.rows.map((token, row) => [token, row]));
  }

  has(name) {
    return name in this.tensors;
  }

  // What stands behind the first indices: read("prior", layer, row, head) has a number for every token.
  read(name, ...indices) {
    const {dtype, shape, at} = this.tensors[name];
    const size = product(shape.slice(indices.length));
    const first = size * indices.reduce((place, index, axis) => place * shape[axis] + index, 0);
    const raw = new Uint8Array(4 * size);
    for (let byte = 0; byte < 4; byte++) {  // of all numbers the lowest byte, then the next one
      const plane = at + byte * product(shape) + first;
      for (let i = 0; i < size; i++) raw[4 * i + byte] = this.bytes[plane + i];
    }
    return dtype === "I32" ? new Int32Array(raw.buffer) : new Float32Array(raw.buffer);
  }

  // All that is kept of one token in one layer and head.
  reading({row, layer, head}) {
    const token = this.rows[row];
    const of = (name) => this.read(name, layer, row, head);
    const kept = {token: of("top_token"), weight: of("top_weight")};
    const channels = {beta: this.read("beta", layer, head), capped: this.read("capped", layer, head)};
    for (const name of ["choice", "prior_choice", "mean", "free_energy", "gated", "kl_pq", "kl_qp", "hidden_beta",
      "lambda", "outer_gate", "entropy"]) channels[name] = of(name);
    channels.weight = kept.weight.filter((_, place) => place % this.kept === 0);
    channels.gain = Array.from(channels.free_energy, (value, channel) => value - channels.mean[channel]);
    const chosen = new Float32Array(this.tokens);
    for (const choice of channels.choice) if (choice >= 0) chosen[choice] += 1;
    const one = (name) => (this.has(name) ? of(name)[0] : null);
    return {
      token, prior: of("prior"), channels, kept, chosen, end: this.about.causal ? token + 1 : this.tokens,
      rank: one("rank"), priorRank: one("prior_rank"), priorEntropy: one("prior_entropy"), energy: one("energy"),
      energyGradient: one("energy_gradient"),
    };
  }

  // A channel's weights of the tokens as far as they were kept; the others have at most `rest`.
  posterior({kept, end}, channel) {
    const weights = new Float32Array(end);
    const [from, to] = [channel * this.kept, (channel + 1) * this.kept];
    for (let place = from; place < to; place++)
      if (kept.token[place] >= 0) weights[kept.token[place]] = kept.weight[place];
    return {weights, rest: kept.token[to - 1] < 0 ? 0 : kept.weight[to - 1]};
  }
}
