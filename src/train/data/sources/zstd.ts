/**
 * Reads what zstd has compressed (RFC 8878), in bounded time and memory: a block never becomes more than 128 KiB, and
 * no more is remembered than was read.
 */
import { StreamChecksum } from "../../files/disk/xxh64.js";
import {
  BackwardBits,
  constantTable,
  FseState,
  type FseTable,
  fseTable,
  type HuffmanTable,
  readFseTable,
  readHuffman,
  readHuffmanTable,
} from "./zstdTables.js";

/** Content may refer to what is this far behind, as far as zstd itself allows without being asked for more. */
const maxWindow = 2 ** 27;

const maxBlock = 2 ** 17;

const magic = { frame: 0xfd2fb528, skipped: 0x184d2a5 };

/** Codes of lengths or of distances: more bits that follow the code, and which value each begins with. */
interface Codes {
  readonly maxAccuracy: number;
  readonly maxSymbol: number;
  readonly numBits: readonly number[];
  readonly first: readonly number[];
  readonly usual: FseTable;
}

const repeated = (value: number, count: number) => new Array<number>(count).fill(value);

function codes(first: number, numBits: readonly number[], accuracy: number, frequencies: readonly number[]) {
  const firsts: number[] = [];
  for (let [code, value] = [0, first]; code < numBits.length; code++) {
    firsts.push(value);
    value += 2 ** (numBits[code] ?? 0);
  }
  const usual = fseTable(frequencies, accuracy);
  return { maxAccuracy: 9, maxSymbol: numBits.length - 1, numBits, first: firsts, usual };
}

const literalLengths: Codes = codes(
  0,
  [...repeated(0, 16), 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
  6,
  [4, 3, ...repeated(2, 11), 1, 1, 1, ...repeated(2, 9), 3, 2, ...repeated(1, 5), ...repeated(-1, 4)],
);
const matchLengths: Codes = codes(
  3,
  [...repeated(0, 32), 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
  6,
  [1, 4, 3, ...repeated(2, 6), ...repeated(1, 37), ...repeated(-1, 7)],
);
const distances: Codes = {
  // Values of one and more, of which the first three stand for distances that were used before.
  ...codes(
    1,
    Array.from({ length: 32 }, (_, code) => code),
    5,
    [...repeated(1, 6), 2, 2, 2, ...repeated(1, 15), ...repeated(-1, 5)],
  ),
  maxAccuracy: 8,
};

/** What blocks of a frame leave for later ones. */
interface Frame {
  readonly window: number;
  /** The size of the content, if the frame says it, and how much of it was read. */
  readonly size: number | undefined;
  read: number;
  /** The hash of the content, if its checksum follows. */
  readonly hash: StreamChecksum | undefined;
  /** The content, as far back as the window; `end` bytes of it are used. */
  history: Uint8Array;
  end: number;
  readonly recent: [number, number, number];
  huffman: HuffmanTable | undefined;
  /** Tables of lengths of literals, distances and lengths of matches. */
  tables: readonly FseTable[];
}

/** Reads a compressed stream piece by piece; throws an `Error` where it is damaged. */
export class ZstdDecoder {
  private pending = new Uint8Array();
  /** Bytes that are passed over before the next frame. */
  private toSkip = 0;
  private frame: Frame | undefined;
  /** The checksum of the frame before, which comes next. */
  private checksum: number | undefined;
  /** What hashes the content of frames, if one needed it. */
  private hasher: StreamChecksum | undefined;
  /** What the frame before remembered: the memory of one frame serves them all, however many there are. */
  private history: Uint8Array = new Uint8Array();

  /** The content that some more bytes complete, a block at a time. */
  *push(chunk: Uint8Array): Generator<Uint8Array, void> {
    const bytes = new Uint8Array(this.pending.length + chunk.length);
    bytes.set(this.pending);
    bytes.set(chunk, this.pending.length);
    let offset = 0;
    for (;;) {
      const skipped = Math.min(this.toSkip, bytes.length - offset);
      this.toSkip -= skipped;
      offset += skipped;
      const rest = bytes.subarray(offset);
      const used = this.frame
        ? yield* this.block(this.frame, rest)
        : this.checksum === undefined
          ? this.header(rest)
          : this.check(rest, this.checksum);
      if (used === 0) break;
      offset += used;
    }
    this.pending = bytes.slice(offset);
  }

  /** Throws if the stream ends within a frame. */
  end(): void {
    if (this.frame || this.toSkip > 0 || this.checksum !== undefined || this.pending.length > 0)
      throw new Error("it ends too early");
  }

  /** Reads the beginning of a frame. @returns how many bytes that took; 0 if there are too few */
  private header(bytes: Uint8Array): number {
    if (bytes.length < 6) return 0;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    if (view.getUint32(0, true) >>> 4 === magic.skipped) {
      if (bytes.length < 8) return 0;
      this.toSkip = view.getUint32(4, true);
      return 8;
    }
    if (view.getUint32(0, true) !== magic.frame) throw new Error("a frame does not begin as it must");
    const flags = view.getUint8(4);
    const isWhole = (flags & 32) !== 0;
    const sizeBytes = flags >> 6 === 0 ? Number(isWhole) : 1 << (flags >> 6);
    if ((flags & 8) !== 0) throw new Error("a reserved bit of a frame is set");
    const numBytes = 5 + Number(!isWhole) + sizeBytes;
    if ((flags & 3) !== 0) throw new Error("it needs a dictionary");
    if (bytes.length < numBytes) return 0;
    const described = view.getUint8(5);
    const size = sizeBytes === 0 ? undefined : sizeAt(view, numBytes - sizeBytes, sizeBytes);
    const window = isWhole ? (size ?? 0) : 2 ** (10 + (described >> 3)) * (1 + (described & 7) / 8);
    if (window > maxWindow) throw new Error(`its window of ${window} bytes is over the limit ${maxWindow}`);
    this.frame = {
      window,
      size,
      read: 0,
      hash: (flags & 4) !== 0 ? this.hash() : undefined,
      history: this.history,
      end: 0,
      recent: [1, 4, 8],
      huffman: undefined,
      tables: [],
    };
    return numBytes;
  }

  private hash(): StreamChecksum {
    this.hasher ??= new StreamChecksum();
    return this.hasher;
  }

  /** Compares a checksum. @returns how many bytes it takes; 0 if there are too few */
  private check(bytes: Uint8Array, checksum: number): number {
    if (bytes.length < 4) return 0;
    if (new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) !== checksum)
      throw new Error("its content is not that of its checksum");
    this.checksum = undefined;
    return 4;
  }

  /** Reads a block, and gives its content. @returns how many bytes it took; 0 if there are too few */
  private *block(frame: Frame, bytes: Uint8Array): Generator<Uint8Array, number> {
    if (bytes.length < 3) return 0;
    const head = (bytes[0] ?? 0) | ((bytes[1] ?? 0) << 8) | ((bytes[2] ?? 0) << 16);
    const [isLast, kind, size] = [(head & 1) !== 0, (head >> 1) & 3, head >> 3];
    const most = Math.min(maxBlock, frame.window);
    if (size > most) throw new Error(`a block of ${size} bytes is over the limit ${most}`);
    const numBytes = 3 + (kind === 1 ? 1 : size);
    if (bytes.length < numBytes) return 0;
    const own = bytes.subarray(3, numBytes);
    if (kind === 3) throw new Error("a block is of no known kind");
    const begin = makeRoom(frame, most);
    if (kind === 2) readBlock(frame, own, begin + most);
    else {
      if (kind === 1) frame.history.fill(own[0] ?? 0, begin, begin + size);
      else frame.history.set(own, begin);
      frame.end += size;
    }
    this.history = frame.history;
    frame.read += frame.end - begin;
    const { size: whole = frame.read } = frame;
    if (frame.read > whole || (isLast && frame.read < whole))
      throw new Error(`a frame has ${frame.read} bytes, and not the ${whole} that it says`);
    const content = frame.history.slice(begin, frame.end);
    frame.hash?.push(content);
    if (content.length > 0) yield content;
    if (isLast) {
      this.checksum = frame.hash && Number(BigInt.asUintN(32, frame.hash.end()));
      this.frame = undefined;
    }
    return numBytes;
  }
}

/** A size in 0, 1, 2, 4 or 8 bytes; those of two bytes begin after those of one. */
function sizeAt(view: DataView, offset: number, numBytes: number): number {
  if (numBytes === 1) return view.getUint8(offset);
  if (numBytes === 2) return 256 + view.getUint16(offset, true);
  const low = view.getUint32(offset, true);
  return numBytes === 4 ? low : low + 2 ** 32 * view.getUint32(offset + 4, true);
}

/** Makes room for a block after what is remembered, and forgets what is out of the window. @returns where it begins */
function makeRoom(frame: Frame, size: number): number {
  const { history, end, window } = frame;
  if (end + size <= history.length) return end;
  if (end > 2 * window) {
    history.copyWithin(0, end - window, end);
    frame.end = window;
  } else {
    frame.history = new Uint8Array(Math.min(2 * (end + size), 2 * window + 2 * maxBlock));
    frame.history.set(history.subarray(0, end));
  }
  return frame.end;
}

/** Reads a compressed block to the end of what a frame remembers. @param limit where it must end at the latest */
function readBlock(frame: Frame, bytes: Uint8Array, limit: number): void {
  const [literals, numBytes] = readLiterals(frame, bytes, limit - frame.end);
  const rest = bytes.subarray(numBytes);
  const used = rest.length === 0 ? undefined : readSequences(frame, rest, literals, limit);
  if (used === undefined) throw new Error("a block lacks its number of sequences");
  const left = literals.subarray(used);
  if (frame.end + left.length > limit) throw new Error("a block has more content than it may");
  append(frame, left, 0, left.length);
}

/** Reads the literals of a block. @returns them, and how many bytes they took */
function readLiterals(frame: Frame, bytes: Uint8Array, most: number): readonly [Uint8Array, number] {
  const head = bytes[0] ?? 0;
  const [kind, format] = [head & 3, (head >> 2) & 3];
  const word = (from: number) => (bytes[from] ?? 0) | ((bytes[from + 1] ?? 0) << 8);
  const check = (size: number, end: number) => {
    if (size > most) throw new Error(`${size} literals of a block are over the limit ${most}`);
    if (end > bytes.length) throw new Error("literals are cut off");
  };
  if (kind < 2) {
    const start = format === 1 ? 2 : format === 3 ? 3 : 1;
    const size = start === 1 ? head >> 3 : (word(0) >> 4) | (start === 3 ? (bytes[2] ?? 0) << 12 : 0);
    const end = start + (kind === 1 ? 1 : size);
    check(size, end);
    return [kind === 1 ? new Uint8Array(size).fill(bytes[start] ?? 0) : bytes.subarray(start, end), end];
  }
  const [start, width] = format === 3 ? [5, 18] : format === 2 ? [4, 14] : [3, 10];
  const bits = word(0) + 2 ** 16 * word(2) + (start === 5 ? 2 ** 32 * (bytes[4] ?? 0) : 0);
  const field = (place: number) => Math.floor(bits / 2 ** place) % 2 ** width;
  const [size, end] = [field(4), start + field(4 + width)];
  check(size, end);
  let coded = bytes.subarray(start, end);
  if (kind === 2) {
    const [table, numBytes] = readHuffmanTable(coded);
    frame.huffman = table;
    coded = coded.subarray(numBytes);
  }
  if (frame.huffman === undefined) throw new Error("literals lack their Huffman table");
  const literals = new Uint8Array(size);
  if (format === 0) readHuffman(frame.huffman, coded, literals);
  else readFourStreams(frame.huffman, coded, literals);
  return [literals, end];
}

function readFourStreams(table: HuffmanTable, bytes: Uint8Array, to: Uint8Array): void {
  const part = (to.length + 3) >> 2;
  if (bytes.length < 6 || 3 * part > to.length) throw new Error("literals lack one of their four streams");
  let offset = 6;
  for (let i = 0; i < 4; i++) {
    const size = i === 3 ? bytes.length - offset : (bytes[2 * i] ?? 0) | ((bytes[2 * i + 1] ?? 0) << 8);
    const own = bytes.subarray(offset, offset + size);
    readHuffman(table, own, to.subarray(part * i, i === 3 ? to.length : part * (i + 1)));
    offset += size;
  }
}

/** Puts literals and repetitions of earlier content after each other. @returns how many literals were used */
function readSequences(frame: Frame, bytes: Uint8Array, literals: Uint8Array, limit: number): number {
  const [a = 0, b = 0, c = 0] = bytes;
  const [count, start] = a < 128 ? [a, 1] : a < 255 ? [((a - 128) << 8) | b, 2] : [0x7f00 + b + (c << 8), 3];
  if (count === 0 && bytes.length === start) return 0;
  if (count === 0) throw new Error("a block goes on after its content");
  const modes = bytes[start] ?? 0;
  if ((modes & 3) !== 0) throw new Error("reserved bits of a block are set");
  let offset = start + 1;
  frame.tables = [literalLengths, distances, matchLengths].map((codes, i) => {
    const mode = (modes >> (6 - 2 * i)) & 3;
    const [table, numBytes] = readTable(codes, mode, bytes.subarray(offset), frame.tables[i]);
    offset += numBytes;
    return table;
  });
  const bits = new BackwardBits(bytes.subarray(offset));
  const [literal, distance, match] = frame.tables.map((table) => new FseState(table, bits));
  if (!literal || !distance || !match) throw new Error("a block lacks a table");
  let used = 0;
  for (let i = 0; i < count; i++) {
    const value = readValue(distances, distance.symbol, bits);
    const matchLength = readValue(matchLengths, match.symbol, bits);
    const literalLength = readValue(literalLengths, literal.symbol, bits);
    if (i < count - 1) {
      literal.advance();
      match.advance();
      distance.advance();
    }
    if (bits.left < 0) throw new Error("a block has fewer sequences than it says");
    if (used + literalLength > literals.length || frame.end + literalLength + matchLength > limit)
      throw new Error("a block has more content than it may");
    append(frame, literals, used, literalLength);
    used += literalLength;
    repeat(frame, distanceOf(frame.recent, value, literalLength), matchLength);
  }
  if (bits.left !== 0) throw new Error("a block has more sequences than it says");
  return used;
}

/** The table of a block: the usual one, one symbol, its own, or that of the block before. */
function readTable(
  codes: Codes,
  mode: number,
  bytes: Uint8Array,
  previous: FseTable | undefined,
): readonly [FseTable, number] {
  if (mode === 0) return [codes.usual, 0];
  if (mode === 2) return readFseTable(bytes, codes);
  if (mode === 3) {
    if (previous === undefined) throw new Error("a block repeats a table that there is not");
    return [previous, 0];
  }
  const [symbol = codes.maxSymbol + 1] = bytes;
  if (symbol > codes.maxSymbol) throw new Error(`there is no code ${symbol}`);
  return [constantTable(symbol), 1];
}

function readValue({ numBits, first }: Codes, code: number, bits: BackwardBits): number {
  const width = numBits[code] ?? 0;
  if (width === 0) return first[code] ?? 0;
  // At most 24 bits are read at once.
  const high = width > 16 ? bits.read(width - 16) * 2 ** 16 : 0;
  return (first[code] ?? 0) + high + bits.read(Math.min(width, 16));
}

/** The distance that a value stands for: one of the last three, or a new one. */
function distanceOf(recent: [number, number, number], value: number, literalLength: number): number {
  const place = value > 3 ? 3 : value - 1 + Number(literalLength === 0);
  const distance = value > 3 ? value - 3 : place < 3 ? (recent[place] ?? 0) : recent[0] - 1;
  if (place > 1) recent[2] = recent[1];
  if (place > 0) recent[1] = recent[0];
  recent[0] = distance;
  return distance;
}

/** Shorter copies are made byte by byte, which takes less than a call. */
const shortCopy = 64;

function append(frame: Frame, bytes: Uint8Array, from: number, length: number): void {
  const { history, end } = frame;
  if (length > shortCopy) history.set(bytes.subarray(from, from + length), end);
  else for (let i = 0; i < length; i++) history[end + i] = bytes[from + i] ?? 0;
  frame.end = end + length;
}

function repeat(frame: Frame, distance: number, length: number): void {
  const { history, end, window } = frame;
  const from = end - distance;
  if (distance < 1 || distance > window || from < 0)
    throw new Error("a repetition begins before the content");
  if (length > shortCopy && distance >= length) history.copyWithin(end, from, from + length);
  else for (let i = 0; i < length; i++) history[end + i] = history[from + i] ?? 0;
  frame.end = end + length;
}

/** The content of a whole stream, which must have this size. */
export function unzstdWhole(bytes: Uint8Array, size: number): Uint8Array {
  const decoder = new ZstdDecoder();
  const content = new Uint8Array(size);
  let used = 0;
  for (const part of decoder.push(bytes)) {
    if (used + part.length > size) throw new Error(`it has more than the ${size} bytes that it says`);
    content.set(part, used);
    used += part.length;
  }
  decoder.end();
  if (used < size) throw new Error(`it has ${used} of the ${size} bytes that it says`);
  return content;
}
