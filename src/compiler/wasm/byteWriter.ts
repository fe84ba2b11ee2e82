/** A growing byte array that writes the encodings of the WebAssembly binary format. */
export class ByteWriter {
  private bytes = new Uint8Array(256);
  private view = new DataView(this.bytes.buffer);
  private used = 0;

  /** The number of bytes written so far. */
  get length(): number {
    return this.used;
  }

  private reserve(count: number): number {
    const at = this.used;
    if (at + count > this.bytes.length) {
      const grown = new Uint8Array(Math.max(this.bytes.length * 2, at + count));
      grown.set(this.bytes.subarray(0, at));
      this.bytes = grown;
      this.view = new DataView(grown.buffer);
    }
    this.used = at + count;
    return at;
  }

  /** Appends one byte. */
  byte(value: number): void {
    const at = this.reserve(1);
    this.bytes[at] = value;
  }

  /** Appends bytes as they are. */
  raw(values: ArrayLike<number>): void {
    const at = this.reserve(values.length);
    this.bytes.set(values, at);
  }

  /** Appends an unsigned LEB128 integer below 2^32. */
  u32(value: number): void {
    if (!Number.isInteger(value) || value < 0 || value > 0xffffffff) {
      throw new RangeError(`[ByteWriter] ${value} is not an unsigned 32-bit integer`);
    }
    let rest = value >>> 0;
    while (rest >= 0x80) {
      this.byte((rest & 0x7f) | 0x80);
      rest >>>= 7;
    }
    this.byte(rest);
  }

  /** Appends a signed LEB128 integer of up to 64 bits. */
  signed(value: bigint): void {
    let rest = value;
    for (;;) {
      const low = Number(rest & 0x7fn);
      rest >>= 7n;
      const done = (rest === 0n && (low & 0x40) === 0) || (rest === -1n && (low & 0x40) !== 0);
      this.byte(done ? low : low | 0x80);
      if (done) return;
    }
  }

  /** Appends a little-endian float32. */
  f32(value: number): void {
    const at = this.reserve(4);
    this.view.setFloat32(at, value, true);
  }

  /** Appends a little-endian float64. */
  f64(value: number): void {
    const at = this.reserve(8);
    this.view.setFloat64(at, value, true);
  }

  /** Appends a little-endian 32-bit word. */
  word(value: number): void {
    const at = this.reserve(4);
    this.view.setUint32(at, value >>> 0, true);
  }

  /** Appends a length-prefixed UTF-8 name. */
  name(text: string): void {
    const encoded = new TextEncoder().encode(text);
    this.u32(encoded.length);
    this.raw(encoded);
  }

  /** The bytes written so far, as a copy. */
  toBytes(): Uint8Array<ArrayBuffer> {
    return this.bytes.slice(0, this.used);
  }
}
