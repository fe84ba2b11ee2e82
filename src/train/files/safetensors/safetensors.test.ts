import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { byteSize } from "../../../ir/dtype.js";
import { readSafetensors, readSafetensorsHeader, writeSafetensors } from "./safetensors.js";
import {
  encodeSafetensors,
  parseSafetensors,
  SafetensorsError,
  type StoredArray,
} from "./safetensorsBytes.js";

/** A file with the given header text, or header bytes, and data. */
function fileWith(header: string | Uint8Array, dataBytes = 0, length?: bigint): Uint8Array {
  const text = typeof header === "string" ? new TextEncoder().encode(header) : header;
  const file = new Uint8Array(8 + text.length + dataBytes);
  new DataView(file.buffer).setBigUint64(0, length ?? BigInt(text.length), true);
  file.set(text, 8);
  return file;
}

const entry = (dtype: string, shape: string, offsets: string) =>
  `{"dtype":"${dtype}","shape":${shape},"data_offsets":${offsets}}`;

const one: StoredArray = { dtype: "float32", shape: [2], data: Float32Array.of(1.5, -2) };

const everyType: readonly (readonly [string, StoredArray])[] = [
  ["bytes", { dtype: "uint8", shape: [3], data: Uint8Array.of(0, 7, 255) }],
  ["flags", { dtype: "bool", shape: [1, 3], data: Uint8Array.of(1, 0, 1) }],
  ["half", { dtype: "float16", shape: [], data: Uint16Array.of(0x3c00) }],
  ["brain", { dtype: "bfloat16", shape: [2], data: Uint16Array.of(0x3f80, 0xc000) }],
  ["single", { dtype: "float32", shape: [2, 1], data: Float32Array.of(1.5, -0) }],
  ["complex", { dtype: "complex64", shape: [1, 2], data: Float32Array.of(1.5, -0, Number.NaN, 2) }],
  ["double", { dtype: "float64", shape: [1], data: Float64Array.of(Math.PI) }],
  ["signed", { dtype: "int32", shape: [2], data: Int32Array.of(-1, 2 ** 31 - 1) }],
  ["unsigned", { dtype: "uint32", shape: [1], data: Uint32Array.of(2 ** 32 - 1) }],
  ["empty", { dtype: "float32", shape: [0, 5], data: new Float32Array(0) }],
];

describe("encodeSafetensors and parseSafetensors", () => {
  test("give back every type, shape and label", () => {
    const file = encodeSafetensors(everyType, [["step", "12"]]);
    const { tensors, metadata } = parseSafetensors(file);
    expect(Object.fromEntries(tensors)).toEqual(Object.fromEntries(everyType));
    expect([...metadata]).toEqual([["step", "12"]]);
  });

  test("align the data to 8 bytes and every array to its elements", () => {
    const bytes = encodeSafetensors(everyType);
    const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
    expect(length % 8).toBe(0);
    const header: Record<string, { data_offsets: [number, number] }> = JSON.parse(
      new TextDecoder().decode(bytes.subarray(8, 8 + length)),
    );
    for (const [name, { data }] of everyType) {
      expect((header[name]?.data_offsets[0] ?? -1) % data.BYTES_PER_ELEMENT).toBe(0);
    }
  });

  test("read arrays that are not aligned", () => {
    const header = `{"b":${entry("U8", "[1]", "[0,1]")},"x":${entry("F32", "[1]", "[1,5]")}}`;
    const file = fileWith(header, 5);
    file.set(new Uint8Array(Float32Array.of(3.25).buffer), file.length - 4);
    expect(parseSafetensors(file).tensors.get("x")?.data).toEqual(Float32Array.of(3.25));
  });

  test("copy the elements out of a larger buffer", () => {
    const file = encodeSafetensors([["x", one]]);
    const inside = Buffer.concat([Buffer.alloc(3), file]).subarray(3);
    const x = parseSafetensors(inside).tensors.get("x");
    inside.fill(0);
    expect(x?.data).toEqual(one.data);
    expect(x?.data.buffer.byteLength).toBe(8);
  });

  test("keep names that are no ordinary keys", () => {
    const names = ["__proto__", "constructor", "ключ", 'a"b\\c\n', "😀", ""];
    const { tensors } = parseSafetensors(encodeSafetensors(names.map((name) => [name, one])));
    expect(new Set(tensors.keys())).toEqual(new Set(names));
  });

  test("accept a file without tensors and a header with spaces", () => {
    expect(parseSafetensors(fileWith("{}")).tensors.size).toBe(0);
    expect(parseSafetensors(fileWith("{ \t\n\r }   ")).tensors.size).toBe(0);
    const spaced = '{ "x" : { "shape" : [ 1 ] , "data_offsets" : [ 0 , 4 ] , "dtype" : "F32" } } ';
    expect(parseSafetensors(fileWith(spaced, 4)).tensors.get("x")?.shape).toEqual([1]);
  });

  test("refuse to write what could not be read", () => {
    expect(() => encodeSafetensors([["__metadata__", one]])).toThrow("__metadata__");
    expect(() =>
      encodeSafetensors([
        ["x", one],
        ["x", one],
      ]),
    ).toThrow("different");
    expect(() => encodeSafetensors([["x", { ...one, shape: [3] }]])).toThrow("2 elements for the shape [3]");
    expect(() => encodeSafetensors([["x", { ...one, dtype: "float64" }]])).toThrow("elements have 4 bytes");
    expect(() => encodeSafetensors([["\ud800", one]])).toThrow("not valid text");
  });
});

interface Malformed {
  readonly why: string;
  readonly file: Uint8Array;
  /** A part of the message. */
  readonly says: string;
  readonly offset?: number;
}

const f32 = entry("F32", "[1]", "[0,4]");

const malformed: readonly Malformed[] = [
  { why: "is empty", file: new Uint8Array(0), says: "too few", offset: 0 },
  { why: "ends inside the length", file: new Uint8Array(7), says: "too few", offset: 0 },
  { why: "announces a longer header than it has", file: fileWith("{}", 0, 3n), says: "over the 2 bytes" },
  { why: "announces a header over the limit", file: fileWith("{}", 0, 100_000_001n), says: "over the limit" },
  {
    why: "announces a header of 2^64 - 1 bytes",
    file: fileWith("{}", 0, 2n ** 64n - 1n),
    says: "over the limit",
  },
  { why: "has an empty header", file: fileWith(""), says: "does not start with {", offset: 8 },
  { why: "has a header that is no object", file: fileWith("[]"), says: "does not start with {", offset: 8 },
  { why: "has a space before the header", file: fileWith(" {}"), says: "does not start with {", offset: 8 },
  { why: "has a byte order mark", file: fileWith("\ufeff{}"), says: "does not start with {" },
  { why: "has bytes that are no UTF-8", file: fileWith(Uint8Array.of(0x7b, 0xff, 0x7d)), says: "UTF-8" },
  { why: "has an unclosed header", file: fileWith('{"x":'), says: "end of the header", offset: 13 },
  { why: "has text after the header", file: fileWith("{}{}"), says: "text follows", offset: 10 },
  { why: "has a zero byte after the header", file: fileWith("{}\0"), says: "text follows", offset: 10 },
  { why: "has a comma too many", file: fileWith(`{"x":${f32},}`, 4), says: "expected a string" },
  { why: "has a comment", file: fileWith(`{/**/"x":${f32}}`, 4), says: "expected a string", offset: 9 },
  { why: "has single quotes", file: fileWith("{'x':{}}"), says: "expected a string", offset: 9 },
  { why: "has an unclosed string", file: fileWith('{"x'), says: "valid string", offset: 9 },
  { why: "has a bad escape", file: fileWith('{"\\x":{}}'), says: "valid string", offset: 9 },
  { why: "ends inside an escape", file: fileWith('{"\\'), says: "valid string", offset: 9 },
  {
    why: "has a raw newline in a name",
    file: fileWith(`{"a\nb":${f32}}`, 4),
    says: "valid string",
    offset: 9,
  },
  { why: "has half a surrogate pair", file: fileWith(`{"\\ud800":${f32}}`, 4), says: "valid string" },
  { why: "names a tensor twice", file: fileWith(`{"x":${f32},"x":${f32}}`, 4), says: '"x" comes twice' },
  {
    why: "names a tensor twice through an escape",
    file: fileWith(`{"x":${f32},"\\u0078":${f32}}`, 4),
    says: '"x" comes twice',
  },
  {
    why: "gives a field twice",
    file: fileWith('{"x":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4),
    says: '"dtype" comes twice',
  },
  { why: "has a tensor that is no object", file: fileWith('{"x":[]}'), says: "expected {" },
  { why: "has a tensor that is null", file: fileWith('{"x":null}'), says: "expected {" },
  { why: "has nested objects", file: fileWith(`{"x":${"{".repeat(100_000)}`), says: "expected a string" },
  {
    why: "misses the type",
    file: fileWith('{"x":{"shape":[1],"data_offsets":[0,4]}}', 4),
    says: "needs a dtype",
  },
  {
    why: "misses the shape",
    file: fileWith('{"x":{"dtype":"F32","data_offsets":[0,4]}}', 4),
    says: "needs a dtype",
  },
  {
    why: "misses the offsets",
    file: fileWith('{"x":{"dtype":"F32","shape":[1]}}', 4),
    says: "needs a dtype",
  },
  {
    why: "has one offset",
    file: fileWith(`{"x":${entry("F32", "[1]", "[4]")}}`, 4),
    says: "two data_offsets",
  },
  {
    why: "has three offsets",
    file: fileWith(`{"x":${entry("F32", "[1]", "[0,4,4]")}}`, 4),
    says: "two data_off",
  },
  {
    why: "has an unknown field",
    file: fileWith('{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"stride":[1]}}', 4),
    says: 'unknown field "stride"',
  },
  {
    why: "has an unknown type",
    file: fileWith(`{"x":${entry("C256", "[1]", "[0,32]")}}`, 32),
    says: '"C256"',
  },
  {
    why: "has a type of no tensor",
    file: fileWith(`{"x":${entry("I64", "[1]", "[0,8]")}}`, 8),
    says: "is I64",
  },
  {
    why: "has too few bytes for such a type",
    file: fileWith(`{"x":${entry("I64", "[2]", "[0,8]")}}`, 8),
    says: "I64[2], needs 16 bytes but is given 8",
  },
  {
    why: "has a type from Object",
    file: fileWith(`{"x":${entry("toString", "[1]", "[0,4]")}}`, 4),
    says: "known are",
  },
  {
    why: "has a negative size",
    file: fileWith(`{"x":${entry("F32", "[-1]", "[0,4]")}}`, 4),
    says: "integer",
  },
  { why: "has a fraction", file: fileWith(`{"x":${entry("F32", "[1.0]", "[0,4]")}}`, 4), says: "expected ]" },
  {
    why: "has an exponent",
    file: fileWith(`{"x":${entry("F32", "[1e0]", "[0,4]")}}`, 4),
    says: "expected ]",
  },
  {
    why: "has a leading zero",
    file: fileWith(`{"x":${entry("F32", "[01]", "[0,4]")}}`, 4),
    says: "integer",
  },
  {
    why: "has a size as text",
    file: fileWith(`{"x":${entry("F32", '["1"]', "[0,4]")}}`, 4),
    says: "integer",
  },
  {
    why: "has a number over 2^53",
    file: fileWith(`{"x":${entry("F32", "[9007199254740993]", "[0,4]")}}`, 4),
    says: "integer",
  },
  {
    why: "has a number of many digits",
    file: fileWith(`{"x":${entry("F32", `[${"9".repeat(10_000)}]`, "[0,4]")}}`, 4),
    says: "integer",
  },
  {
    why: "has a shape whose size overflows",
    file: fileWith(`{"x":${entry("F32", "[4294967296,4294967296]", "[0,4]")}}`, 4),
    says: "overflows",
  },
  {
    why: "has too many dims",
    file: fileWith(`{"x":${entry("F32", `[${"1,".repeat(64)}1]`, "[0,4]")}}`, 4),
    says: "65 dims",
  },
  {
    why: "has too few bytes for a shape",
    file: fileWith(`{"x":${entry("F32", "[2]", "[0,4]")}}`, 4),
    says: "needs 8",
  },
  {
    why: "has too many bytes for a shape",
    file: fileWith(`{"x":${entry("F32", "[]", "[0,8]")}}`, 8),
    says: "needs 4",
  },
  {
    why: "has offsets in the wrong order",
    file: fileWith(`{"x":${entry("F32", "[1]", "[4,0]")}}`, 4),
    says: "before its",
  },
  {
    why: "has offsets past the end",
    file: fileWith(`{"x":${entry("F32", "[2]", "[0,8]")}}`, 4),
    says: "but the file",
  },
  { why: "has data that belongs to none", file: fileWith(`{"x":${f32}}`, 5), says: "1 bytes follow" },
  { why: "has data and no tensor", file: fileWith("{}", 4), says: "4 bytes follow", offset: 10 },
  {
    why: "has a hole before the first tensor",
    file: fileWith(`{"x":${entry("F32", "[1]", "[4,8]")}}`, 8),
    says: "belong to no tensor",
  },
  {
    why: "has a hole between tensors",
    file: fileWith(`{"x":${f32},"y":${entry("F32", "[1]", "[8,12]")}}`, 12),
    says: "4 bytes before tensor",
  },
  {
    why: "has tensors that overlap",
    file: fileWith(`{"x":${f32},"y":${entry("U8", "[4]", "[2,6]")}}`, 6),
    says: "overlaps",
  },
  {
    why: "has tensors that share their data",
    file: fileWith(`{"x":${f32},"y":${f32}}`, 4),
    says: "overlaps",
  },
  {
    why: "has labels that are no text",
    file: fileWith('{"__metadata__":{"step":1}}'),
    says: "expected a string",
  },
  { why: "has labels that are no object", file: fileWith('{"__metadata__":"x"}'), says: "expected {" },
  { why: "has labels twice", file: fileWith('{"__metadata__":{},"__metadata__":{}}'), says: "comes twice" },
  { why: "has a label twice", file: fileWith('{"__metadata__":{"a":"","a":""}}'), says: "comes twice" },
  {
    why: "has a boolean that is neither 0 nor 1",
    file: (() => {
      const file = encodeSafetensors([["b", { dtype: "bool", shape: [8], data: new Uint8Array(8) }]]);
      file[file.length - 3] = 2;
      return file;
    })(),
    says: "is 2, neither 0 nor 1",
  },
];

describe("a file is refused with its name and the place when it", () => {
  test.each(malformed)("$why", ({ file, says, offset }) => {
    let error: unknown;
    try {
      parseSafetensors(file, "model.safetensors");
    } catch (caught) {
      error = caught;
    }
    expect(error).toBeInstanceOf(SafetensorsError);
    if (!(error instanceof SafetensorsError)) return;
    expect(error.code).toBe("file");
    expect(error.file).toBe("model.safetensors");
    expect(error.message).toContain("model.safetensors");
    expect(error.message).toContain(says);
    expect(error.message.length).toBeLessThan(400);
    expect(error.offset).toBeGreaterThanOrEqual(0);
    if (offset !== undefined) expect(error.offset).toBe(offset);
  });

  test("has any byte changed or cut off, or else it is read whole", () => {
    const file = encodeSafetensors(everyType, [["step", "12"]]);
    const edits = fc.array(fc.tuple(fc.nat(file.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(edits, fc.option(fc.nat(file.length)), (changes, cut) => {
        const damaged = file.slice(0, cut ?? file.length);
        for (const [position, byte] of changes) if (position < damaged.length) damaged[position] = byte;
        try {
          for (const { dtype, shape, data } of parseSafetensors(damaged).tensors.values()) {
            expect(data.byteLength).toBe(shape.reduce((n, m) => n * m, byteSize(dtype)));
          }
        } catch (error) {
          expect(error).toBeInstanceOf(SafetensorsError);
        }
      }),
      { numRuns: 2000 },
    );
  });
});

describe("files on disk", () => {
  let folder = "";
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "safetensors-"));
  });
  afterAll(() => rm(folder, { recursive: true }));

  test("hold what was written, read whole or in part", async () => {
    const path = join(folder, "all.safetensors");
    await writeSafetensors(path, everyType, [["step", "12"]]);
    expect(new Uint8Array(await readFile(path))).toEqual(encodeSafetensors(everyType, [["step", "12"]]));
    const whole = await readSafetensors(path);
    expect(Object.fromEntries(whole.tensors)).toEqual(Object.fromEntries(everyType));
    const part = await readSafetensors(path, ["double", "flags"]);
    expect([...part.tensors.keys()]).toEqual(["double", "flags"]);
    const header = await readSafetensorsHeader(path);
    expect(header.tensors.get("brain")).toMatchObject({ type: "BF16", shape: [2] });
    await expect(readSafetensors(path, ["missing"])).rejects.toThrow('holds no tensor "missing"');
  });

  test("are replaced at once, and nothing is left of a failed write", async () => {
    const path = join(folder, "replaced.safetensors");
    await writeSafetensors(path, [["x", one]]);
    await writeSafetensors(path, [["y", one]]);
    expect([...(await readSafetensors(path)).tensors.keys()]).toEqual(["y"]);
    await expect(writeSafetensors(join(folder, "no", "such", "folder"), [["x", one]])).rejects.toThrow(
      "ENOENT",
    );
    expect((await readdir(folder)).filter((name) => name.endsWith(".tmp"))).toEqual([]);
  });

  test("are refused like bytes in memory", async () => {
    const path = join(folder, "broken.safetensors");
    for (const { file, says } of malformed) {
      await writeFile(path, file);
      await expect(readSafetensors(path)).rejects.toThrow(says);
    }
    await writeSafetensors(path, [["x", one]]);
    await truncate(path, 70);
    await expect(readSafetensorsHeader(path)).rejects.toBeInstanceOf(SafetensorsError);
  });

  test("that do not exist are named", async () => {
    const path = join(folder, "missing.safetensors");
    await expect(readSafetensors(path)).rejects.toThrow(`${path}, byte 0: the file cannot be opened`);
  });
});
