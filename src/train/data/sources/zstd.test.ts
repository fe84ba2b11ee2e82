import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { unzstdWhole, ZstdDecoder } from "./zstd.js";

interface Row {
  readonly content: string;
  readonly options: string;
  readonly base64: string;
}

/** What the `zstd` command has made of the contents below, with some of its options. */
const rows: readonly Row[] = JSON.parse(
  readFileSync(new URL("../../../../test/data/fixtures/zstd.json", import.meta.url), "utf8"),
);

function contentOf(name: string): Uint8Array {
  let state = 1;
  const next = (below: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const word = () => "abcdefghijklmnopqrstuvwxyz".slice(next(20), 21 + next(5)).slice(0, 1 + next(7));
  const line = (_: unknown, i: number) => `${i % 70} ${next(50) === 0 ? word() : "as the line before it"}\n`;
  if (name === "words") return Buffer.from(Array.from({ length: 900 }, word).join(" "));
  if (name === "lines") return Buffer.from(Array.from({ length: 9000 }, line).join(""));
  if (name === "noise") return Uint8Array.from({ length: 900 }, () => next(256));
  if (name === "zeros") return new Uint8Array(400_000);
  if (name === "numbers")
    return new Uint8Array(Int32Array.from({ length: 1500 }, (_, i) => 1000 * i + next(9)).buffer);
  return new Uint8Array();
}

/** The content of a stream that arrives in pieces of a size. */
function inPieces(bytes: Uint8Array, size: number): Buffer {
  const decoder = new ZstdDecoder();
  const parts: Uint8Array[] = [];
  for (let i = 0; i < bytes.length; i += size) parts.push(...decoder.push(bytes.subarray(i, i + size)));
  decoder.end();
  return Buffer.concat(parts);
}

test.each(rows)("what zstd makes of $content with $options is read", ({ content, base64 }) => {
  const [expected, bytes] = [Buffer.from(contentOf(content)), Buffer.from(base64, "base64")];
  expect(Buffer.from(unzstdWhole(bytes, expected.length)).equals(expected)).toBe(true);
  for (const size of [1, 7, 1000]) expect(inPieces(bytes, size).equals(expected)).toBe(true);
});

test("frames follow each other, with what is to be passed over between them", () => {
  const [frame, skipped] = [wholeFrame(3, rawBlock("abc")), [0x53, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9]];
  const bytes = Uint8Array.from([...skipped, ...frame, ...skipped, ...frame]);
  expect(inPieces(bytes, 1).toString()).toBe("abcabc");
  expect(Buffer.from(unzstdWhole(bytes, 6)).toString()).toBe("abcabc");
});

const head = [0x28, 0xb5, 0x2f, 0xfd];

/** The three bytes that a block begins with. */
const blockHead = (kind: number, size: number) => {
  const bits = 1 | (kind << 1) | (size << 3);
  return [bits & 255, (bits >> 8) & 255, bits >> 16];
};
const rawBlock = (text: string) => [...blockHead(0, text.length), ...Buffer.from(text)];
/** A frame whose window is its content, of less than 256 bytes. */
const wholeFrame = (size: number, block: readonly number[]) => [...head, 0x20, size, ...block];
/** A frame with a window of 2 to the `log` bytes. */
const windowed = (log: number, block: readonly number[]) =>
  Uint8Array.from([...head, 0, (log - 10) << 3, ...block]);

/** A block of one literal and sequences, of which all have the same codes; `bits` follow. */
const sequences = (count: number, codes: readonly number[], bits: readonly number[]) => {
  const counted = [255, (count - 0x7f00) & 255, (count - 0x7f00) >> 8];
  const body = [(1 << 3) | 1, 0x61, ...counted, 0b01010100, ...codes, ...bits];
  return [...blockHead(2, body.length), ...body];
};

describe("a hostile stream is refused:", () => {
  // 100 repetitions of 65,539 bytes would be 6 MiB; each takes 16 bits.
  const many = sequences(0x7f00, [1, 0, 52], [...new Array<number>(2 * 0x7f00).fill(0), 1]);

  test.each([
    [
      "a window of 2 GiB",
      windowed(31, rawBlock("a")),
      "its window of 2147483648 bytes is over the limit 134217728",
    ],
    [
      "a block of 2 MiB",
      windowed(20, blockHead(1, 2 ** 21 - 1)),
      "a block of 2097151 bytes is over the limit 131072",
    ],
    ["a block that repeats far more than it may", windowed(20, many), "a block has more content than it may"],
    [
      "a block that goes on after its content",
      windowed(20, [...blockHead(2, 5), 2 << 3, 0x61, 0x62, 0, 7]),
      "a block goes on after its content",
    ],
    ["a dictionary", Uint8Array.from([...head, 1, 0, 7, ...rawBlock("a")]), "it needs a dictionary"],
    ["a block of an unknown kind", windowed(20, blockHead(3, 0)), "a block is of no known kind"],
    ["no frame at all", Buffer.from("PAR1 and more"), "a frame does not begin as it must"],
  ])("%s", (_, bytes, message) => {
    expect(() => unzstdWhole(bytes, 10)).toThrow(message);
  });

  test("content whose size is not the one that the frame says", () => {
    // A size in two bytes, which is 256 more.
    const said = (size: number) =>
      Uint8Array.from([...head, 0x40, 0, size - 256, 0, ...rawBlock("a".repeat(259))]);
    expect(inPieces(said(259), 50).length).toBe(259);
    for (const size of [258, 260]) {
      const message = `a frame has 259 bytes, and not the ${size} that it says`;
      expect(() => inPieces(said(size), 50)).toThrow(message);
    }
  });

  test("very many small frames, which share their memory", () => {
    const frame = windowed(20, [...blockHead(2, 2), 0, 0]);
    const bytes = new Uint8Array(400_000 * frame.length);
    for (let at = 0; at < bytes.length; at += frame.length) bytes.set(frame, at);
    expect(inPieces(bytes, 65_536).length).toBe(0);
  }, 8_000);

  test("one that has more than it says ends with the block that goes too far", () => {
    const full = blockHead(1, 2 ** 17);
    full[0] = (full[0] ?? 0) & 0xfe;
    const blocks = new Array<number[]>(10_000).fill([...full, 0x61]).flat();
    const bytes = Uint8Array.from([...head, 0, 10 << 3, ...blocks]);
    expect(() => unzstdWhole(bytes, 200_000)).toThrow("it has more than the 200000 bytes that it says");
  });

  test.each(rows)("$content with $options, cut off or with other bytes", ({ content, options, base64 }) => {
    const [expected, bytes] = [Buffer.from(contentOf(content)), Buffer.from(base64, "base64")];
    const { length } = expected;
    expect(() => unzstdWhole(bytes.subarray(0, -1), length)).toThrow();
    for (let i = 0; i < bytes.length; i += 1 + (bytes.length >> 6)) {
      const changed = Uint8Array.from(bytes);
      changed[i] = (changed[i] ?? 0) ^ (1 << (i & 7));
      try {
        const found = unzstdWhole(changed, length);
        expect(found.length).toBe(length);
        // Checksums find what the code of blocks does not.
        if (!options.includes("--no-check")) expect(Buffer.from(found).equals(expected)).toBe(true);
      } catch (error) {
        expect((error as Error).constructor).toBe(Error);
      }
    }
  });
});
