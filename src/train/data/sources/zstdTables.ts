/** What zstd's blocks are coded with (RFC 8878): bits that are read backwards, states of FSE, and Huffman codes. */

/** The place of the highest bit that is set. */
export const highBit = (value: number) => 31 - Math.clz32(value);

const damaged = (rule: string) => new Error(rule);

/** Up to 24 bits from a place on; those before the first byte and after the last are zeros. */
function bitsAt(bytes: Uint8Array, place: number, count: number): number {
  if (place < 0) return count + place <= 0 ? 0 : bitsAt(bytes, 0, count + place) << -place;
  const at = place >> 3;
  const word =
    (bytes[at] ?? 0) |
    ((bytes[at + 1] ?? 0) << 8) |
    ((bytes[at + 2] ?? 0) << 16) |
    ((bytes[at + 3] ?? 0) << 24);
  return (word >>> (place & 7)) & ((1 << count) - 1);
}

/** Reads bits from the end of some bytes to their beginning; the highest bit that is set only marks the end. */
export class BackwardBits {
  /** How many bits are left; below 0 if more were read than there are. */
  left: number;

  constructor(private readonly bytes: Uint8Array) {
    const last = bytes.at(-1) ?? 0;
    if (last === 0) throw damaged("a stream of bits has no end");
    this.left = 8 * (bytes.length - 1) + highBit(last);
  }

  /** The next bits, at most 24, without passing over them. */
  peek(count: number): number {
    return bitsAt(this.bytes, this.left - count, count);
  }

  read(count: number): number {
    this.left -= count;
    return bitsAt(this.bytes, this.left, count);
  }
}

/** A table of states, each with a symbol and the states that may follow. */
export interface FseTable {
  readonly accuracy: number;
  readonly symbols: Uint8Array;
  /** By state, how many bits say what is next, and the first of those states. */
  readonly numBits: Uint8Array;
  readonly next: Uint16Array;
}

/** A table with only one symbol. */
export const constantTable = (symbol: number): FseTable => ({
  accuracy: 0,
  symbols: Uint8Array.of(symbol),
  numBits: new Uint8Array(1),
  next: new Uint16Array(1),
});

/** A table for symbols of these frequencies, in states of 2 to the `accuracy`; -1 is less than one state. */
export function fseTable(frequencies: readonly number[], accuracy: number): FseTable {
  const size = 1 << accuracy;
  const table = {
    accuracy,
    symbols: new Uint8Array(size),
    numBits: new Uint8Array(size),
    next: new Uint16Array(size),
  };
  const { symbols, numBits, next } = table;
  let last = size - 1;
  for (const [symbol, frequency] of frequencies.entries()) if (frequency === -1) symbols[last--] = symbol;
  const step = (size >> 1) + (size >> 3) + 3;
  let place = 0;
  for (const [symbol, frequency] of frequencies.entries())
    for (let i = 0; i < frequency; i++) {
      symbols[place] = symbol;
      do place = (place + step) & (size - 1);
      while (place > last);
    }
  const used = frequencies.map(Math.abs);
  for (let state = 0; state < size; state++) {
    const symbol = symbols[state] ?? 0;
    const ordinal = used[symbol] ?? 0;
    used[symbol] = ordinal + 1;
    const bits = accuracy - highBit(ordinal);
    numBits[state] = bits;
    next[state] = (ordinal << bits) - size;
  }
  return table;
}

/** Reads a table. @returns it, and how many bytes it takes */
export function readFseTable(
  bytes: Uint8Array,
  { maxAccuracy, maxSymbol }: { readonly maxAccuracy: number; readonly maxSymbol: number },
): readonly [FseTable, number] {
  const accuracy = 5 + ((bytes[0] ?? 0) & 15);
  if (accuracy > maxAccuracy) throw damaged(`a table has 2^${accuracy} states, more than 2^${maxAccuracy}`);
  let [place, left] = [4, 1 << accuracy];
  const frequencies: number[] = [];
  while (left > 0 && frequencies.length <= maxSymbol) {
    // The smallest values take a bit less.
    const width = highBit(left + 1) + 1;
    const low = (1 << (width - 1)) - 1;
    const numShort = (1 << width) - 2 - left;
    let value = bitsAt(bytes, place, width);
    if ((value & low) < numShort) {
      value &= low;
      place += width - 1;
    } else {
      if (value > low) value -= numShort;
      place += width;
    }
    frequencies.push(value - 1);
    left -= Math.abs(value - 1);
    for (let more = value === 1 ? 3 : 0; more === 3; ) {
      more = bitsAt(bytes, place, 2);
      place += 2;
      for (let i = 0; i < more; i++) frequencies.push(0);
      if (frequencies.length > maxSymbol + 3) break;
    }
  }
  const numBytes = (place + 7) >> 3;
  if (left !== 0 || frequencies.length > maxSymbol + 1 || numBytes > bytes.length)
    throw damaged("the frequencies of a table are no table");
  return [fseTable(frequencies, accuracy), numBytes];
}

/** One of the states that a stream of bits leads through. */
export class FseState {
  private state: number;

  constructor(
    private readonly table: FseTable,
    private readonly bits: BackwardBits,
  ) {
    this.state = bits.read(table.accuracy);
  }

  get symbol(): number {
    return this.table.symbols[this.state] ?? 0;
  }

  advance(): void {
    const { next, numBits } = this.table;
    this.state = (next[this.state] ?? 0) + this.bits.read(numBits[this.state] ?? 0);
  }
}

/** By the next bits of a stream, the symbol that they begin with and how many of them it takes. */
export interface HuffmanTable {
  readonly maxBits: number;
  readonly symbols: Uint8Array;
  readonly numBits: Uint8Array;
}

const maxCodeBits = 11;

/** Reads the weights of the symbols, and makes a table of them. @returns it, and how many bytes the weights take */
export function readHuffmanTable(bytes: Uint8Array): readonly [HuffmanTable, number] {
  const head = bytes[0] ?? 0;
  if (head < 128) return [huffmanTable(codedWeights(bytes.subarray(1, 1 + head))), 1 + head];
  const count = head - 127;
  const numBytes = 1 + ((count + 1) >> 1);
  if (numBytes > bytes.length) throw damaged("a Huffman table is cut off");
  const weights = Array.from({ length: count }, (_, i) => {
    const byte = bytes[1 + (i >> 1)] ?? 0;
    return i % 2 === 0 ? byte >> 4 : byte & 15;
  });
  return [huffmanTable(weights), numBytes];
}

/** Weights that two states in turn give, until the bits are used up. */
function codedWeights(bytes: Uint8Array): number[] {
  const [table, start] = readFseTable(bytes, { maxAccuracy: 6, maxSymbol: maxCodeBits });
  const bits = new BackwardBits(bytes.subarray(start));
  let [current, other] = [new FseState(table, bits), new FseState(table, bits)];
  const weights: number[] = [];
  while (weights.length < 255) {
    weights.push(current.symbol);
    current.advance();
    if (bits.left < 0) return [...weights, other.symbol];
    [current, other] = [other, current];
  }
  throw damaged("a Huffman table has too many symbols");
}

/** A table for symbols of these weights; that of the last symbol is what is left. */
function huffmanTable(given: readonly number[]): HuffmanTable {
  let sum = 0;
  for (const weight of given) sum += weight > 0 ? 2 ** (weight - 1) : 0;
  const maxBits = sum > 0 ? highBit(sum) + 1 : 0;
  const rest = (1 << maxBits) - sum;
  if (sum === 0 || maxBits > maxCodeBits || 1 << highBit(rest) !== rest || given.length > 255)
    throw damaged("the weights of a Huffman table do not make a tree");
  const weights = [...given, highBit(rest) + 1];
  const table = {
    maxBits,
    symbols: new Uint8Array(1 << maxBits),
    numBits: new Uint8Array(1 << maxBits),
  };
  let place = 0;
  for (let weight = 1; weight <= maxBits; weight++)
    for (const [symbol, own] of weights.entries()) {
      if (own !== weight) continue;
      const end = place + (1 << (weight - 1));
      table.symbols.fill(symbol, place, end);
      table.numBits.fill(maxBits + 1 - weight, place, end);
      place = end;
    }
  return table;
}

/** Fills an array with the symbols of a stream, which must take all of its bits. */
export function readHuffman({ maxBits, symbols, numBits }: HuffmanTable, bytes: Uint8Array, to: Uint8Array) {
  const bits = new BackwardBits(bytes);
  for (let i = 0; i < to.length; i++) {
    const next = bits.peek(maxBits);
    to[i] = symbols[next] ?? 0;
    bits.left -= numBits[next] ?? 0;
    if (bits.left < 0) break;
  }
  if (bits.left !== 0) throw damaged("coded literals are not as long as they say");
}
