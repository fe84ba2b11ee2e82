/** Runs on data of several kinds: tokenised once, packed, mixed, and resumed on another mesh. */
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { temporaryFolder, tinyConfig } from "../../../test/support/runs.js";
import type { RowSource } from "../data/batches/rows.js";
import { byteTokenizer } from "../data/tokenizers/tokenizer.js";
import { trainRun } from "../index.js";
import type { StepRecord } from "../report/reportPage.js";
import { openRunData } from "./runData.js";

let folder: ReturnType<typeof temporaryFolder>;
beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(() => folder.remove());

const silent = { write: () => true };

function write(name: string, content: string | Uint8Array): string {
  const path = join(folder.path, name);
  writeFileSync(path, content);
  return path;
}

const lines = (...records: readonly object[]) =>
  records.map((record) => `${JSON.stringify(record)}\n`).join("");
const template =
  "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}|{% endfor %}{% if add_generation_prompt %}<a>{% endif %}";
const chat = (question: string, answer: string) => ({
  messages: [
    { role: "user", content: question },
    { role: "assistant", content: answer },
  ],
});
const rowsOf = (sources: readonly unknown[]) => sources as readonly RowSource[];
const open = (changes: Readonly<Record<string, unknown>>, begun = false) =>
  openRunData(
    tinyConfig(folder.path, { "data.sequence": 32, "data.validation": 0, ...changes }),
    join(folder.path, "run"),
    { begun },
  );

describe("the data of a run", () => {
  test("of chats is whole, and scores what the assistant writes", async () => {
    const source = write("chats.jsonl.gz", gzipSync(lines(chat("1?", "one"), chat("22?", "2"))));
    const file = write("chat.jinja", template);
    const { training, close } = await open({ "data.source": source, "data.template": file });
    const [rows] = rowsOf(training.sources);
    expect(rows?.numRows).toBe(1);
    const { tokens, documents } = (await rows?.read(0)) ?? {};
    const text = "<u>1?|<a>one|<u>22?|<a>2|";
    expect(byteTokenizer().decode(tokens?.subarray(0, text.length) ?? [])).toBe(text);
    const scored = Array.from(documents?.lossMask ?? [], (isCounted, i) =>
      isCounted ? text[i + 1] : "",
    ).join("");
    expect(scored).toBe("one|2|");
    expect(documents?.segmentIds.slice(0, text.length)).toEqual(
      Int32Array.from(text, (_, i) => (i < 13 ? 1 : 2)),
    );
    await close();
    await expect(open({ "data.source": source })).rejects.toThrow("messages need a chat template");
  });

  test("of prompts with completions scores the completions and their ends", async () => {
    const source = write("pairs.csv", "q,a\n2+2=,4\n");
    const { training, close } = await open({ "data.source": source, "data.fields": "prompt=q,completion=a" });
    const { tokens, documents } = (await rowsOf(training.sources)[0]?.read(0)) ?? {};
    expect(tokens?.slice(0, 6)).toEqual(Int32Array.of(...Buffer.from("2+2=4"), 256));
    expect(documents?.lossMask.slice(0, 7)).toEqual(Uint8Array.of(0, 0, 0, 1, 1, 0, 0));
    await close();
  });

  test("is turned into tokens once, and anew when the file changes", async () => {
    const source = write("texts.jsonl", lines({ text: "a".repeat(50) }, { text: "b".repeat(50) }));
    const changes = { "data.source": source };
    const tokens = join(folder.path, "run", "tokens", "0", "00000.tokens");
    const first = await open(changes);
    expect(first.numTokens).toBe(102);
    const made = statSync(tokens).mtimeMs;
    const again = await open(changes);
    expect(statSync(tokens).mtimeMs).toBe(made);
    writeFileSync(source, lines({ text: "c".repeat(70) }));
    const changed = await open(changes);
    expect(changed.numTokens).toBe(71);
    rmSync(source);
    // A run that has begun needs only its tokens.
    const resumed = await open(changes, true);
    expect(resumed.numTokens).toBe(71);
    const shared = await open({ "data.source": join(folder.path, "run", "tokens", "0") });
    expect(shared.numTokens).toBe(71);
    await Promise.all([first, again, changed, resumed, shared].map(({ close }) => close()));
  });

  test("without records that cannot be read, if so asked", async () => {
    const source = write("some.jsonl", `${lines({ text: "a".repeat(40) })}{"text"\n${lines({ text: "b" })}`);
    await expect(open({ "data.source": source })).rejects.toThrow(
      `[data] ${source}, line 2: the line is not JSON`,
    );
    expect(existsSync(join(folder.path, "run", "tokens"))).toBe(false);
    const { notes, numTokens, close } = await open({ "data.source": source, "data.onError": "skip" });
    expect(numTokens).toBe(43);
    expect(notes).toEqual([
      "1 records could not be read and were left out",
      expect.stringContaining("some.jsonl, line 2: the line is not JSON"),
    ]);
    await close();
  });

  test("that cannot be read leaves nothing in the folder of its run", async () => {
    const good = write("good.jsonl", lines({ text: "a".repeat(40) }));
    const bad = write("bad.jsonl", `${lines({ text: "a".repeat(40) })}{"text"\n`);
    const own = join(folder.path, "run");
    const left = () => (existsSync(own) ? readdirSync(own, { recursive: true }).sort() : []);
    const tokenizer = "test/pretrained/fixtures/tokenizers/llama3.tokenizer.json";
    const refused = (source: string) =>
      expect(open({ "data.source": source, "data.tokenizer": tokenizer })).rejects.toThrow("line 2");
    await refused(bad);
    expect(left()).toEqual([]);
    // Tokens of a source that is complete are kept.
    await refused(`${good},${bad}`);
    expect(left()).toEqual(["tokens", "tokens/0", "tokens/0/00000.tokens", "tokens/0/index.json"]);
  });

  test.each([
    ["an empty file", "empty.jsonl", "", {}, "empty.jsonl has no examples: there is nothing to train on"],
    ["only blank lines", "blank.csv", "\n\n", {}, "blank.csv has no examples"],
    [
      "another field",
      "other.jsonl",
      lines({ body: "x" }),
      { "data.fields": "text" },
      'has no field "text": its fields are body',
    ],
    ["too few tokens", "few.jsonl", lines({ text: "x" }), {}, "has 2 tokens to train on, fewer than one row"],
    [
      "weights for fewer sources",
      "w.jsonl",
      lines({ text: "x" }),
      { "data.weights": "1,2" },
      "use 1 positive numbers",
    ],
  ])("%s is refused", async (_, name, content, changes, message) => {
    const source = write(name, content);
    await expect(open({ "data.source": source, ...changes })).rejects.toThrow(message);
  });

  test("of many examples comes out in order from several threads", async () => {
    const texts = Array.from({ length: 3000 }, (_, i) => `${i}:${"x".repeat(i % 700)}`);
    const source = write("many.jsonl", lines(...texts.map((text) => ({ text }))));
    const { training, numTokens, close } = await open({
      "data.source": source,
      "data.sequence": 10_000,
      "data.packing": "whole",
    });
    expect(numTokens).toBe(texts.reduce((sum, text) => sum + text.length + 1, 0));
    const first = (await rowsOf(training.sources)[0]?.read(0))?.tokens ?? new Int32Array();
    const wanted = texts.slice(0, 20).flatMap((text) => [...Buffer.from(text), 256]);
    expect(Array.from(first.subarray(0, wanted.length))).toEqual(wanted);
    await close();
  });
});

test("a run on a mixture is interrupted, resumed on another mesh, and has the losses of one that was not", {
  timeout: 120_000,
}, async () => {
  const texts = Array.from({ length: 30 }, (_, i) => ({
    text: `the ${i} whales of the sea ${"and a ship ".repeat(i % 4)}`,
  }));
  const chats = Array.from({ length: 30 }, (_, i) => chat(`${i}?`, `it is ${i}`));
  const sources = [write("texts.jsonl", lines(...texts)), write("chats.jsonl", lines(...chats))].join(",");
  const changes = {
    "data.source": sources,
    "data.weights": "1,3",
    "data.packing": "whole",
    "data.template": write("chat.jinja", template),
    "data.sequence": 64,
    "data.batch": 4,
    "model.numLayers": 2,
    steps: 6,
  };
  const train = async (out: string, mesh: Readonly<Record<string, number>>, more: object, stopAfter = 99) => {
    const stop = new AbortController();
    const losses: number[] = [];
    const onStep = ({ step, loss }: StepRecord) => {
      losses.push(loss);
      if (step >= stopAfter) stop.abort();
    };
    const config = tinyConfig(folder.path, { ...changes, ...mesh, out: join(folder.path, out) });
    await trainRun({ config, stream: silent, signal: stop.signal, onStep, finish: false, ...more });
    return losses;
  };
  const whole = await train("whole", { "mesh.data": 1 }, {});
  const first = await train("parts", { "mesh.data": 1 }, {}, 2);
  expect(first.length).toBeLessThan(6);
  const second = await train("parts", { "mesh.data": 2 }, { resume: true });
  const both = [...first, ...second];
  expect(both).toHaveLength(whole.length);
  both.forEach((loss, i) => {
    expect(loss).toBeCloseTo(whole[i] ?? 0, 4);
  });
  const index = JSON.parse(readFileSync(join(folder.path, "whole", "tokens", "1", "index.json"), "utf8"));
  expect(index).toMatchObject({ kind: "chat", numExamples: 30, numDocuments: 30, numSkipped: 0 });
});
