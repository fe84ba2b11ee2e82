import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ended, startShardwise } from "../../test/support/cliProcess.js";
import { temporaryFolder, tinyModel } from "../../test/support/runs.js";
import { np, random } from "../index.js";
import { trainBpe } from "../train/data/tokenizers/bpeTrainer.js";
import { formatTokenizer } from "../train/data/tokenizers/tokenizerJson.js";
import type { ModelConfig } from "../train/models/config.js";
import { LanguageModel } from "../train/models/languageModel.js";
import { readTextFormat } from "../train/pretrained/chatFiles.js";
import { loadPretrained } from "../train/pretrained/loadPretrained.js";
import { savePretrained } from "../train/pretrained/savePretrained.js";

const folder = temporaryFolder();
afterAll(folder.remove);

const config: ModelConfig = { ...tinyModel, vocabSize: 272, width: 16, numHeads: 4, mlpWidth: 32 };

const out = join(folder.path, "tiny");

/** Writes a folder as Hugging Face publishes models, with a template for chats. */
async function writeModel(): Promise<void> {
  const params = LanguageModel(config).init(random.key(3), np.zeros([1, 2], "int32"));
  await savePretrained(out, { params, config });
  const write = (name: string, text: string) => writeFile(join(out, name), text);
  await write("tokenizer.json", formatTokenizer(trainBpe(["the sea, the ship"], { vocabSize: 262 })));
  const template = "{% for m in messages %}{{ bos_token }}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  await write(
    "tokenizer_config.json",
    JSON.stringify({ chat_template: [{ name: "default", template }], bos_token: { content: "^" } }),
  );
  await write("generation_config.json", JSON.stringify({ eos_token_id: [270, 271] }));
}
beforeAll(writeModel);

test("serves a folder of Hugging Face's until it is told to end", { timeout: 120_000 }, async () => {
  const { tokenizer } = await loadPretrained(out);
  if (!tokenizer) throw new Error("the folder has a tokenizer");
  const { chatPrompt, stopTokens } = await readTextFormat(out, tokenizer, "test");
  const messages = [{ role: "user", content: "the sea" }];
  expect(tokenizer.decode(chatPrompt?.(messages) ?? [])).toBe("^user: the sea\n");
  expect([...stopTokens]).toEqual(expect.arrayContaining([270, 271]));

  const args = ["serve", out, "--port", "0", "--max-length", "2000", "--max-tokens", "1900", "--slots", "3"];
  const child = startShardwise(folder.path, args);
  const end = ended(child);
  const [line] = await Promise.race([
    once(child.stdout ?? child, "data"),
    end.then((early) => Promise.reject(new Error(early.err))),
  ]);
  const [, address = ""] =
    /^serving tiny at (http:\/\/127\.0\.0\.1:\d+\/v1) with 3 slots of 2000 tokens/.exec(String(line)) ?? [];
  const ask = (max_tokens: number, stream: boolean) =>
    fetch(`${address}/chat/completions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ messages, max_tokens, stream, seed: 4 }),
    });
  expect(await (await ask(5, false)).text()).toContain('"finish_reason":"length"');
  // A stream begins when the server is at work on it.
  const running = await ask(50, true);
  child.kill("SIGTERM");
  expect(await running.text()).toContain('"finish_reason":"length"');
  expect(await end).toMatchObject({ code: 0, signal: null });
});

test("names what a model lacks and what needs a key", { timeout: 120_000 }, async () => {
  const said = async (...args: readonly string[]) => (await ended(startShardwise(folder.path, args))).err;
  expect(await said("serve", out, "--host", "0.0.0.0")).toContain(
    "0.0.0.0 can be reached from other machines",
  );
  expect(await said("serve", out, "--max-length", "9999999")).toContain("--max-length is 9999999");
  expect(await said("serve", join(folder.path, "nothing"))).toContain("there is no folder");
});
