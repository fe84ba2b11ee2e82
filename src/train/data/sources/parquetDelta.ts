/** Checks strings that Parquet stores as what each begins with of the one before, and the rest of it. */
import type { ThriftReader } from "./thriftReader.js";

/**
 * Refuses strings that would take more than so many bytes: a few bytes may name a long one again and again.
 *
 * @param count how many strings there are
 */
export function checkDeltaStrings(reader: ThriftReader, count: number, maxBytes: number): void {
  const shared = readLengths(reader, count);
  const own = readLengths(reader, count);
  let [before, numStored, total] = [0, 0, 0];
  for (const [i, length] of own.entries()) {
    const start = shared[i] ?? 0;
    if (start < 0 || start > before || length < 0)
      throw new Error(
        `a string of a page shares ${start} bytes with one of ${before}, and has ${length} more`,
      );
    before = start + length;
    numStored += length;
    total += before;
    if (total > maxBytes)
      throw new Error(`the strings of a page take ${total} bytes, over the limit ${maxBytes}`);
  }
  reader.bytes(numStored);
}

/** Numbers as the first one and blocks of differences, packed into as few bits as the largest of some takes. */
function readLengths(reader: ThriftReader, count: number): Int32Array {
  const [blockSize, numParts] = [reader.varint(), reader.varint()];
  reader.varint();
  const perPart = blockSize / numParts;
  if (!(perPart > 0 && perPart % 8 === 0))
    throw new Error(`a block of ${blockSize} lengths has ${numParts} parts`);
  const lengths = new Int32Array(count);
  let value = reader.integer();
  lengths[0] = value;
  for (let next = 1; next < count; ) {
    const begin = reader.offset;
    const least = reader.integer();
    if (reader.offset - begin > 4) throw new Error("lengths of strings differ by 2^27 and more");
    for (const width of reader.bytes(numParts)) {
      if (next >= count) break;
      if (width > 32) throw new Error(`differences of lengths have ${width} bits`);
      const bytes = reader.bytes((perPart * width) / 8);
      for (let i = 0; i < perPart && next < count; i++) {
        // As the decoder does, modulo 2^32.
        value = (value + least + bitsAt(bytes, i * width, width)) | 0;
        lengths[next++] = value;
      }
    }
  }
  return lengths;
}

/** Bits from a place on, the lowest first. */
function bitsAt(bytes: Uint8Array, place: number, width: number): number {
  let value = 0;
  for (let done = 0; done < width; ) {
    const shift = (place + done) & 7;
    const part = Math.min(8 - shift, width - done);
    value |= (((bytes[(place + done) >> 3] ?? 0) >> shift) & ((1 << part) - 1)) << done;
    done += part;
  }
  return value;
}
