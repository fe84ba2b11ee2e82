/** Reads the numbers and structures of Thrift's compact protocol, in which Parquet files describe themselves. */

type Value = number | boolean | Fields | undefined;

/** The fields of a structure by their numbers. */
export class Fields extends Map<number, Value> {
  number(id: number): number {
    const value = this.get(id);
    if (typeof value === "number") return value;
    throw new Error(`field ${id} of a header must be a number`);
  }

  struct(id: number): Fields {
    const value = this.get(id);
    if (value instanceof Fields) return value;
    throw new Error(`a header lacks its field ${id}`);
  }
}

const types = {
  stop: 0,
  yes: 1,
  no: 2,
  byte: 3,
  short: 4,
  long: 6,
  double: 7,
  binary: 8,
  list: 9,
  struct: 12,
};

/** Reads bytes one after the other; an error where there are none. */
export class ThriftReader {
  offset = 0;

  constructor(private readonly all: Uint8Array) {}

  byte(): number {
    const [byte = 0] = this.bytes(1);
    return byte;
  }

  bytes(length: number): Uint8Array {
    const end = this.offset + length;
    if (!(length >= 0 && end <= this.all.length))
      throw new Error(`${length} bytes are named where ${this.all.length - this.offset} are left`);
    const bytes = this.all.subarray(this.offset, end);
    this.offset = end;
    return bytes;
  }

  /** Reads what begins with the number of its bytes, and goes to its end. */
  counted(read: () => void): void {
    const [a = 0, b = 0, c = 0, d = 0] = this.bytes(4);
    const length = (a | (b << 8) | (c << 16) | (d << 24)) >>> 0;
    const start = this.offset;
    read();
    this.offset = start + length;
  }

  varint(): number {
    let result = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.byte();
      result |= (byte & 0x7f) << shift;
      if (byte < 0x80) return result;
    }
  }

  struct(): Fields {
    const fields = new Fields();
    for (let id = 0, head = this.byte(); (head & 15) !== types.stop; head = this.byte()) {
      id = head >> 4 === 0 ? this.integer() : id + (head >> 4);
      fields.set(id, this.value(head & 15));
    }
    return fields;
  }

  integer(): number {
    const zigzag = this.varint();
    return (zigzag >>> 1) ^ -(zigzag & 1);
  }

  /** A value; undefined for those that are passed over. */
  private value(type: number): Value {
    if (type === types.yes || type === types.no) return type === types.yes;
    if (type === types.byte) return (this.byte() << 24) >> 24;
    if (type >= types.short && type <= types.long) return this.integer();
    if (type === types.struct) return this.struct();
    if (type === types.list) this.list();
    else if (type === types.double) this.bytes(8);
    else if (type === types.binary) this.bytes(this.varint());
    else throw new Error(`there is no Thrift type ${type}`);
    return undefined;
  }

  private list(): void {
    const head = this.byte();
    const size = head >> 4 === 15 ? this.varint() : head >> 4;
    const left = this.all.length - this.offset;
    // Each element takes a byte at least.
    if (size < 0 || size > left)
      throw new Error(`a list states ${size} elements where ${left} bytes are left`);
    const type = head & 15;
    for (let i = 0; i < size; i++) this.value(type === types.yes || type === types.no ? types.byte : type);
  }
}
