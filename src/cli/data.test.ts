/** `shardwise data`, and the commands of docs/data.md on real files. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, describe, expect, test } from "vitest";
import { said } from "../../test/support/cliHere.js";
import { ended, startShardwise } from "../../test/support/cliProcess.js";
import { temporaryFolder } from "../../test/support/runs.js";
import { signatureOf, similarity } from "../train/data/tokens/nearDuplicates.js";
import { dataStatistics } from "../train/index.js";

const folder = temporaryFolder();
afterAll(folder.remove);

function write(name: string, content: string | Uint8Array): string {
  const path = join(folder.path, name);
  writeFileSync(path, content);
  return path;
}

const lines = (...records: readonly object[]) =>
  records.map((record) => `${JSON.stringify(record)}\n`).join("");
const long =
  "Some years ago, never mind how long precisely, having little or no money in my purse and nothing particular to interest me on shore, I thought I would sail about a little and see the watery part of the world. It is a way I have of driving off the spleen and regulating the circulation.";

describe("shardwise data", () => {
  const source = write(
    "texts.jsonl",
    `${lines({ text: long }, { text: "short" }, { text: long.replace("purse", "pocket") }, { text: "short" })}{broken\n${lines({ text: "" }, { text: "<b>&" })}`,
  );

  test("counts, compares and draws, as text and as a page that needs nothing else", async () => {
    const page = join(folder.path, "out.html");
    const { code, out, err } = await said("data", source, "--tokenizer", "bytes", "--write", page);
    expect([code, err]).toEqual([0, ""]);
    expect(out).toMatch(/^examples +6$/m);
    expect(out).toMatch(/^tokens +\d+ in all/m);
    expect(out).toMatch(/^exact duplicates +1 \(17 %\)$/m);
    expect(out).toMatch(/^near duplicates +1 \(17 % of 6 compared\)$/m);
    expect(out).toMatch(/^ +4 – 7 {2}█+ 3$/m);
    expect(out).toContain("texts.jsonl, line 5: the line is not JSON");
    const html = readFileSync(page, "utf8");
    expect(html).toContain("<svg");
    expect(html).not.toMatch(/<script|https?:\/\//);
    expect(html).toContain("&#60;b&#62;&#38;");
    expect(html).toContain("texts.jsonl, line 3");
  });

  test("prints JSON, of several sources and chosen fields", async () => {
    const csv = write("more.csv.gz", gzipSync("text,n\none,1\ntwo,2\n"));
    const { code, out } = await said(
      "data",
      source,
      csv,
      "--fields",
      "text=text",
      "--samples",
      "2",
      "--json",
    );
    const read = JSON.parse(out);
    expect(code).toBe(0);
    expect(read).toMatchObject({
      numExamples: 8,
      kinds: { text: 8 },
      numUnreadable: 1,
      duplicates: { exact: 1, near: 1 },
    });
    expect(read.files.map(({ numExamples }: { numExamples: number }) => numExamples)).toEqual([6, 2]);
    expect(read.samples).toHaveLength(2);
    expect(read.characters.histogram[0]).toEqual({ from: 0, to: 0, count: 1 });
    const pairs = read.duplicates.pairs.map((pair: { first: { line: number }; second: { line: number } }) => [
      pair.first.line,
      pair.second.line,
    ]);
    expect(pairs).toEqual([
      [1, 3],
      [2, 4],
    ]);
  });

  test("says what is wrong with its arguments", async () => {
    const wrong = async (...args: readonly string[]) => {
      const { code, err } = await said("data", ...args);
      expect(code).toBeGreaterThan(0);
      return err;
    };
    expect(await wrong()).toContain("data needs a file, a folder, a pattern or a URL");
    expect(await wrong(join(folder.path, "none.jsonl"))).toContain("there is no such file or folder");
    expect(await wrong(join(folder.path, "*.none"))).toContain("no file matches this pattern");
    expect(await wrong(source, "--fields", "text=body")).toContain(
      'has no field "body": its fields are text',
    );
    expect(await wrong(source, "--tokenizer", join(folder.path, "none.json"))).toContain(
      "the file cannot be read",
    );
  });
});

test("signatures agree as often as texts have runs of words in common", async () => {
  const words = (from: number, to: number) =>
    Array.from({ length: to - from }, (_, i) => `w${from + i}`).join(" ");
  const share = (a: string, b: string) => {
    const [first, second] = [signatureOf(a), signatureOf(b)];
    return first && second ? similarity(first, second) : Number.NaN;
  };
  expect(share(words(0, 400), words(0, 400))).toBe(1);
  expect(share(words(0, 400), words(1000, 1400))).toBeLessThan(0.05);
  // 296 of 496 runs of five words.
  expect(share(words(0, 400), words(100, 500))).toBeCloseTo(296 / 496, 0.6);
  const empty = await dataStatistics(() => []);
  expect(empty).toMatchObject({ numExamples: 0, characters: { total: 0, histogram: [] } });
});

test("the commands of the page train on mixtures, chats and tables", { timeout: 180_000 }, async () => {
  write("web.jsonl.gz", gzipSync(lines(...Array.from({ length: 20 }, (_, i) => ({ text: `${i} ${long}` })))));
  write("code.csv", `text\n${Array.from({ length: 20 }, (_, i) => `let x = ${i};`).join("\n")}\n`);
  write(
    "faq.csv",
    `question,answer\n${Array.from({ length: 8 }, (_, i) => `${i}+1?,${i + 1}`).join("\n")}\n`,
  );
  const chat = (i: number) => ({
    messages: [
      { role: "user", content: `${i}?` },
      { role: "assistant", content: "yes" },
    ],
  });
  write("chats.jsonl", lines(...Array.from({ length: 8 }, (_, i) => chat(i))));
  write(
    "chat.jinja",
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
  );
  const small =
    "--model.width 8 --model.numLayers 2 --model.numHeads 2 --model.numKvHeads 2 --model.mlpWidth 8 --mesh data=1 --data.sequence 32 --data.batch 2 --steps 2 --sample 0 --data.validation 0".split(
      " ",
    );
  const train = async (out: string, ...args: readonly string[]) => {
    const run = await ended(startShardwise(folder.path, ["train", ...args, ...small, "--out", out]));
    expect(run.err).toContain("writing to");
    expect(run.code).toBe(0);
    return run;
  };
  await train("mixed", "--data.source", "web*.jsonl.gz,code.csv", "--data.weights", "3,1");
  await train("chats", "--data.source", "chats.jsonl", "--data.template", "chat.jinja");
  await train("faq", "--data.source", "faq.csv", "--data.fields", "prompt=question,completion=answer");
  expect(existsSync(join(folder.path, "mixed", "tokens", "1", "index.json"))).toBe(true);
  await train("again", "--data.source", join("mixed", "tokens", "0"));
  // The loss of preferences is relative to the model before training, here the same: log 2 per pair.
  const pair = (i: number) => ({ prompt: `${i}?`, chosen: "yes", rejected: "no" });
  write("pairs.jsonl", lines(...Array.from({ length: 8 }, (_, i) => pair(i))));
  const still = ["--optimizer.learningRate", "0"];
  await train("pairs", "--data.source", "pairs.jsonl", "--dpo.beta", "0.1", ...still);
  const measured = await said("eval", join(folder.path, "pairs"));
  expect([measured.err, measured.out]).toEqual(["", "step 2: loss 0.6931 per pair on the training text\n"]);
  const other = await said("eval", join(folder.path, "pairs"), "--data.source", "faq.csv");
  expect(other.err).toContain("those of faq.csv are not known: leave out --data.source");
});
