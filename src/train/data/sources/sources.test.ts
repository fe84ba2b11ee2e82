import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { parquetMetadata } from "hyparquet";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { encodeSafetensors } from "../../files/safetensors/safetensorsBytes.js";
import { type DataSource, type FileError, readExamples, readRecords } from "../../index.js";
import { parseFields } from "./examples.js";
import { checkDeltaStrings } from "./parquetDelta.js";
import { ThriftReader } from "./thriftReader.js";

const fixtures = "test/data/fixtures";
let folder: string;
let server: Server;
let address: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "shardwise-sources-"));
  server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "", "http://localhost");
    const bytes = await readFile(join(folder, pathname)).catch(() => undefined);
    if (!bytes) return response.writeHead(404).end();
    const [, start, end] = /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? "") ?? [];
    if (request.url?.includes("cut")) {
      response.writeHead(200, { "content-length": bytes.length });
      response.write(bytes.subarray(0, 10), () => response.destroy());
      return;
    }
    if (start === undefined || request.url?.includes("whole")) return response.end(bytes);
    const range = `bytes ${start}-${end}/${bytes.length}`;
    return response
      .writeHead(206, { "content-range": range })
      .end(bytes.subarray(Number(start), Number(end) + 1));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  server.close();
  await rm(folder, { recursive: true, force: true });
});

async function write(name: string, content: string | Uint8Array): Promise<string> {
  const path = join(folder, name);
  await mkdir(join(path, ".."), { recursive: true });
  await writeFile(path, content);
  return path;
}

async function textsOf(source: DataSource, fields = {}): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const example of readExamples(source, { fields }))
    found.push("text" in example ? example.text : example);
  return found;
}

const json = (...texts: readonly string[]) => texts.map((text) => `${JSON.stringify({ text })}\n`).join("");
const twelve = Array.from({ length: 12 }, (_, i) => `Text ${i} with naïve 🦈 signs.`);

describe("formats", () => {
  test("JSON lines, with blank ones, other line ends and a byte order mark", async () => {
    const path = await write("a.jsonl", `\uFEFF{"text": "a"}\r\n\n  \n{"text": "naïve 🦈"}`);
    expect(await textsOf(path)).toEqual(["a", "naïve 🦈"]);
  });

  test("JSON documents: an array of objects, or lines under the ending of documents", async () => {
    expect(await textsOf(await write("b.json", '[{"text": "a"},\n {"text": "b"}]'))).toEqual(["a", "b"]);
    expect(await textsOf(await write("c.json", json("a", "b")))).toEqual(["a", "b"]);
    expect(await textsOf(await write("c.data", json("a", "b")))).toEqual(["a", "b"]);
    expect(await textsOf(await write("c.txt", json("a", "b")))).toEqual([json("a", "b")]);
  });

  test("CSV with quotes, line ends in cells and empty cells; TSV", async () => {
    const csv = 'id,text\n1,plain\n2,"a ""quoted"", cell\nof two lines"\n\n3,\n4,""\n5,"""x"""\n';
    const path = await write("d.csv", csv);
    expect(await textsOf(path)).toEqual(["plain", 'a "quoted", cell\nof two lines', "", "", '"x"']);
    const lines: number[] = [];
    for await (const { line } of readRecords(path)) lines.push(line);
    expect(lines).toEqual([2, 3, 6, 7, 8]);
    expect(await textsOf(await write("d.tsv", 'text\tn\na,b\t1\n"c\td"\t2\n'))).toEqual(["a,b", "c\td"]);
  });

  test.each(["none", "snappy", "gzip", "zstd", "brotli", "lz4"])("Parquet of codec %s", async (codec) => {
    const path = join(fixtures, `${codec}.parquet`);
    expect(await textsOf(path, { text: "text" })).toEqual(twelve);
    const [first] = await textsOf(path);
    const content = [
      { role: "user", content: "0 + 1?" },
      { role: "assistant", content: "1" },
    ];
    expect(first).toEqual({ messages: content });
  });

  test.each(["deltaStrings", "deltaStringsV2"])(
    "Parquet of strings that share beginnings: %s",
    async (name) => {
      const found: unknown[] = [];
      for await (const { fields } of readRecords(join(fixtures, `${name}.parquet`))) found.push(fields.text);
      const expected = Array.from({ length: 300 }, (_, i) =>
        i % 11 === 0 ? null : `https://example.org/a/${Math.floor(i / 7)}/page-${(i * i) % 101}`,
      );
      expect(found.map((text) => text ?? null)).toEqual(expected);
    },
  );

  test("Parquet under another name, from a blob and behind a URL with ranges and without", async () => {
    const bytes = await readFile(join(fixtures, "snappy.parquet"));
    const path = await write("parquet.data", bytes);
    const fields = { text: "text" };
    expect(await textsOf(path, fields)).toEqual(twelve);
    expect(await textsOf(new Blob([bytes]), fields)).toEqual(twelve);
    for (const query of ["", "?whole"]) {
      expect(await textsOf(`${address}/parquet.data${query}`, fields)).toEqual(twelve);
    }
  });

  test("gzip, also of several members, and zstd", async () => {
    const members = Buffer.concat([gzipSync(json("a")), gzipSync(json("b"))]);
    expect(await textsOf(await write("e.jsonl.gz", members))).toEqual(["a", "b"]);
    expect(await textsOf(await write("e.txt.gz", gzipSync("whole\ntext")))).toEqual(["whole\ntext"]);
    expect(await textsOf(join(fixtures, "texts.jsonl.zst"))).toEqual(twelve);
    // What pzstd writes begins with the size of the first frame, which is passed over.
    const frame = await readFile(join(fixtures, "texts.jsonl.zst"));
    const size = Uint32Array.of(0x184d2a50, 4, frame.length);
    expect(
      await textsOf(await write("parts.jsonl.zst", Buffer.concat([new Uint8Array(size.buffer), frame]))),
    ).toEqual(twelve);
    const long = Array.from({ length: 20_000 }, (_, i) => `line ${i} ${"x".repeat(i % 50)}`);
    expect(await textsOf(await write("long.jsonl.gz", gzipSync(json(...long))))).toEqual(long);
  });

  test("URLs and iterables, which functions make anew", async () => {
    await write("f.jsonl.gz", gzipSync(json("a", "b")));
    expect(await textsOf(new URL(`${address}/f.jsonl.gz?v=1`))).toEqual(["a", "b"]);
    async function* items() {
      yield "a";
      yield { text: "b" };
    }
    expect(await textsOf([items(), () => ["c"], items])).toEqual(["a", "b", "c", "a", "b"]);
  });
});

describe("places", () => {
  test("a folder gives the data files below it in order, a pattern what it matches", async () => {
    const root = "tree";
    for (const name of [
      "b.jsonl",
      "a/2.jsonl",
      "a/1.jsonl",
      "a/c/3.jsonl",
      ".hidden.jsonl",
      "a/.git/x.jsonl",
    ]) {
      await write(`${root}/${name}`, json(name));
    }
    await write(`${root}/README.md`, "not data");
    const at = (pattern: string) => textsOf(join(folder, root, pattern));
    expect(await at("")).toEqual(["a/1.jsonl", "a/2.jsonl", "a/c/3.jsonl", "b.jsonl"]);
    expect(await at("*.jsonl")).toEqual(["b.jsonl"]);
    expect(await at("**/*.jsonl")).toEqual(["a/1.jsonl", "a/2.jsonl", "a/c/3.jsonl", "b.jsonl"]);
    expect(await at("a/{1,x}.jsonl")).toEqual(["a/1.jsonl"]);
    expect(await at("a/?.js*")).toEqual(["a/1.jsonl", "a/2.jsonl"]);
    expect(await at("*.md")).toEqual(["not data"]);
  });

  test("what is not there is named", async () => {
    const none = join(folder, "none.jsonl");
    await expect(textsOf(none)).rejects.toThrow(`[data] ${none}, byte 0: there is no such file or folder`);
    await expect(textsOf(join(folder, "*.none"))).rejects.toThrow("no file matches this pattern");
    await mkdir(join(folder, "empty"));
    await expect(textsOf(join(folder, "empty"))).rejects.toThrow(
      "the folder has no files that end with .txt",
    );
    await expect(textsOf(`${address}/none.jsonl`)).rejects.toThrow("the server answers 404");
    await write("g.jsonl", json("a".repeat(99)));
    await expect(textsOf(`${address}/g.jsonl?cut`)).rejects.toThrow("it cannot be fetched");
    await expect(textsOf("http://127.0.0.1:1/x.jsonl")).rejects.toThrow("it cannot be fetched");
    await expect(textsOf(7 as never)).rejects.toThrow("a source must be a path");
  });
});

describe("damage", () => {
  const damaged: readonly (readonly [string, () => Promise<string>, string, readonly string[]])[] = [
    [
      "a line that is not JSON",
      () => write("h.jsonl", `${json("a")}{"text": \n${json("b")}`),
      "h.jsonl, line 2: the line is not JSON",
      ["a", "b"],
    ],
    [
      "a line that is no object",
      () => write("i.jsonl", `${json("a")}7\n${json("b")}`),
      "i.jsonl, line 2: the line is not a JSON object: 7",
      ["a", "b"],
    ],
    [
      "a line that is not UTF-8",
      () =>
        write(
          "j.jsonl",
          Buffer.concat([
            Buffer.from(json("a")),
            Buffer.from([0x22, 0xe9, 0x22, 10]),
            Buffer.from(json("b")),
          ]),
        ),
      "j.jsonl, line 2: the line is not UTF-8",
      ["a", "b"],
    ],
    [
      "a record without the field",
      () => write("k.jsonl", `${json("a")}{"other": 1}\n${json("b")}`),
      "k.jsonl, line 2: the field text is missing",
      ["a", "b"],
    ],
    [
      "a field of another kind",
      () => write("l.jsonl", `${json("a")}{"text": 1}\n${json("b")}`),
      "l.jsonl, line 2: the field text is not a string",
      ["a", "b"],
    ],
    [
      "a row with too few cells",
      () => write("m.csv", "text,n\na,1\nb\nc,2\n"),
      "m.csv, line 3: the row has 1 cells, but the first line names 2 columns",
      ["a", "c"],
    ],
    [
      "a quote that does not end",
      () => write("n.csv", 'text\na\n"b\nc\n'),
      "n.csv, line 3: a quoted cell does not end",
      ["a"],
    ],
    [
      "a gzip file that is cut off",
      () => write("o.txt.gz", gzipSync("text ".repeat(999)).subarray(0, 30)),
      "o.txt.gz, byte 0: it is compressed by gzip and damaged or cut off",
      [],
    ],
    [
      "a gzip file with a wrong checksum",
      async () => {
        const bytes = gzipSync("text ".repeat(999));
        bytes[bytes.length - 6] = 7 ^ (bytes[bytes.length - 6] ?? 0);
        return write("p.txt.gz", bytes);
      },
      "p.txt.gz, byte 0: it is compressed by gzip and damaged",
      [],
    ],
    [
      "a zstd file that is cut off",
      async () => write("q.jsonl.zst", (await readFile(join(fixtures, "texts.jsonl.zst"))).subarray(0, 60)),
      "q.jsonl.zst, byte 0: it is compressed by zstd and damaged or cut off",
      [],
    ],
    [
      "a Parquet file that is cut off",
      async () => write("r.parquet", (await readFile(join(fixtures, "snappy.parquet"))).subarray(0, 400)),
      "r.parquet, byte 0: the Parquet file is damaged",
      [],
    ],
    [
      "an empty Parquet file",
      () => write("s.parquet", ""),
      "s.parquet, byte 0: the Parquet file is damaged",
      [],
    ],
    [
      "text in Latin-1",
      () => write("t.txt", Buffer.from("caf\xe9 ", "latin1")),
      "t.txt, byte 3: the text is not UTF-8 here",
      [],
    ],
    [
      "a binary file",
      () =>
        write(
          "u.data",
          encodeSafetensors([["w", { dtype: "float32", shape: [1], data: new Float32Array([1]) }]]),
        ),
      "this is a binary file, not text",
      [],
    ],
  ];

  test.each(damaged)("%s is named, and ends the reading or is skipped", async (_, make, message, rest) => {
    const path = await make();
    await expect(textsOf(path)).rejects.toThrow(message);
    const errors: FileError[] = [];
    const good = await write("z/good.jsonl", json("good"));
    const found: unknown[] = [];
    for await (const example of readExamples([path, good], { onError: (error) => errors.push(error) })) {
      found.push("text" in example && example.text);
    }
    expect(found).toEqual([...rest, "good"]);
    expect(errors.map((error) => error.message)).toEqual([expect.stringContaining(message)]);
    let count = 0;
    for await (const _example of readExamples([path, good], { onError: "skip" })) count++;
    expect(count).toBe(rest.length + 1);
  });

  test("rows of a Parquet file before a damaged row group are read", async () => {
    const bytes = Buffer.from(await readFile(join(fixtures, "snappy.parquet")));
    const { row_groups: groups } = parquetMetadata(
      bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length),
    );
    const column = groups[1]?.columns[1]?.meta_data;
    const start = Number(column?.dictionary_page_offset);
    bytes.fill(0xff, start, start + 30);
    const found: unknown[] = [];
    const errors: string[] = [];
    const options = { fields: { text: "text" }, onError: (error: FileError) => errors.push(error.message) };
    for await (const example of readExamples(await write("v.parquet", bytes), options)) found.push(example);
    expect(found.length).toBe(5);
    expect(errors.join()).toContain("v.parquet, line 6: the Parquet file is damaged");
  });
});

describe("Parquet files that state more than they hold", () => {
  /** Refused is a file whose first page of texts is changed. */
  async function withPage(change: (bytes: Buffer, header: number, page: number) => void, message: string) {
    const bytes = Buffer.from(await readFile(join(fixtures, "none.parquet")));
    const { row_groups: groups } = parquetMetadata(new Uint8Array(bytes));
    const names = groups[0]?.columns.map(({ meta_data: meta }) => meta?.path_in_schema.join("."));
    const meta = groups[0]?.columns[names?.indexOf("text") ?? 0]?.meta_data;
    const header = Number(meta?.data_page_offset);
    const reader = new ThriftReader(bytes.subarray(header));
    reader.struct();
    change(bytes, header, header + reader.offset);
    await expect(textsOf(await write("stated.parquet", bytes), { text: "text" })).rejects.toThrow(message);
  }

  test("are refused for a run of equal values that is longer than the page", () =>
    withPage(
      (bytes, _, page) => bytes.set([0xfe, 0xff, 0xff, 0xff, 0x0f, 1], page + 4),
      "line 1: the Parquet file is damaged or cut off (a run states 2147483647 values where",
    ));

  test("are refused for a page that is too large when it is expanded", () =>
    // Field 1 of the header is the kind of the page, field 2 the size.
    withPage(
      (bytes, header) =>
        bytes.set([0x15, 0, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15, 0, 0x2c, 0x15, 2, 0, 0], header),
      "a page of 2147483647 bytes is over the limit 268435456",
    ));

  test("are refused for more values than the file has bits", () =>
    withPage(
      (bytes, header) =>
        bytes.set([0x15, 0, 0x15, 0, 0x15, 0, 0x2c, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0], header),
      "its pages state 2147483652 values, but the file can hold 4194304",
    ));

  test("are refused for strings that grow without end, each sharing all of the one before", () => {
    /** Eight lengths, each larger by a number than the one before. */
    const lengths = (first: number, more: number) => [
      ...[8, 1, 8, 2 * first],
      more < 0 ? -2 * more - 1 : 2 * more,
      0,
    ];
    const check = (more: number, maxBytes: number) => {
      const bytes = Uint8Array.from([
        ...lengths(0, more),
        ...lengths(8, 0),
        ...new Array<number>(64).fill(0x61),
      ]);
      checkDeltaStrings(new ThriftReader(bytes), 8, maxBytes);
    };
    expect(() => check(8, 288)).not.toThrow();
    expect(() => check(8, 287)).toThrow("the strings of a page take 288 bytes, over the limit 287");
    expect(() => check(9, 2 ** 28)).toThrow(
      "a string of a page shares 9 bytes with one of 8, and has 8 more",
    );
    expect(() => check(-1, 2 ** 28)).toThrow("shares -1 bytes with one of 8");
  });

  test("are refused for a list in their description that is longer than it", async () => {
    const list = [0x19, 0xf9, 0x80, 0x80, 0x80, 0x10];
    const footer = [...list, ...list.slice(1), 0];
    const bytes = Buffer.from([
      ...Buffer.from("PAR1"),
      ...footer,
      footer.length,
      0,
      0,
      0,
      ...Buffer.from("PAR1"),
    ]);
    await expect(textsOf(await write("list.parquet", bytes))).rejects.toThrow(
      "a list states 33554432 elements where 6 bytes are left",
    );
  });
});

describe("fields", () => {
  test("are those that the first record has, or those that are named", async () => {
    const chat = { messages: [{ role: "user", content: "Hi" }] };
    const lines = (value: object) => `${JSON.stringify(value)}\n`;
    expect(await textsOf(await write("chat.jsonl", lines({ ...chat, text: "x" })))).toEqual([chat]);
    const pair = { prompt: "2+2", completion: "4" };
    expect(await textsOf(await write("pair.jsonl", lines({ ...pair, id: 1 })))).toEqual([pair]);
    const preference = { prompt: "p", chosen: "c", rejected: "r" };
    expect(await textsOf(await write("dpo.jsonl", lines(preference)))).toEqual([preference]);
    const renamed = await write("renamed.jsonl", lines({ q: "2+2", a: "4" }));
    expect(await textsOf(renamed, parseFields("prompt=q, completion=a"))).toEqual([pair]);
    expect(await textsOf(renamed, parseFields("q"))).toEqual(["2+2"]);
  });

  test("that are not there are named, with those that are", async () => {
    const path = await write("content.jsonl", '{"content": "a", "id": 1}\n');
    await expect(textsOf(path)).rejects.toThrow(
      "its fields are content, id; name those to train on, as in text=content",
    );
    await expect(textsOf(path, { text: "contents" })).rejects.toThrow(
      'has no field "contents": its fields are content, id; did you mean content?',
    );
    await expect(textsOf(path, { texts: "content" })).rejects.toThrow("did you mean text?");
    await expect(textsOf(path, { prompt: "content" })).rejects.toThrow("do not make an example");
  });

  test("of one example are all texts or all messages", async () => {
    const mixed = { prompt: "p", chosen: [{ role: "assistant", content: "c" }], rejected: "r" };
    const path = await write("mixed.jsonl", `${JSON.stringify(mixed)}\n`);
    await expect(textsOf(path)).rejects.toThrow("prompt, chosen, rejected mix strings and messages");
  });
});
