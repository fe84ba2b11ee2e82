/**
 * Compares with Hugging Face's libraries, which TORCH_PYTHON names a Python with (transformers, peft, tokenizers):
 *
 *   npm run test:transformers
 *   npm run test:transformers -- mixtral gpt2 --texts 1000
 *
 * Random models of every family give the same logits, loss and gradients, on one device and on meshes; what is exported
 * is read there bit for bit; adapters are read by PEFT; tokenisers agree on 10,000 texts. Ends with 0 when all is equal,
 * with 1 when something is not, and with 3 without such a Python.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jit, Mesh, np, random, type Tensor, tree, valueAndGrad } from "../../src/index.js";
import * as nn from "../../src/nn/index.js";
import {
  JsonTokenizer,
  loadPretrained,
  parseTokenizer,
  saveAdapters,
  savePretrained,
} from "../../src/train/index.js";
import { crossEntropy } from "../../src/train/models/loss.js";

const python = process.env.TORCH_PYTHON;
if (!python) {
  console.error("TORCH_PYTHON must name a Python with transformers, peft and tokenizers");
  process.exit(3);
}
const words = process.argv.slice(2);
const place = words.indexOf("--texts");
const numTexts = place < 0 ? "10000" : (words[place + 1] ?? "10000");
const chosen = words.filter((_, i) => place < 0 || (i !== place && i !== place + 1));
const here = new URL("./", import.meta.url).pathname;
const root = mkdtempSync(join(tmpdir(), "shardwise-transformers-"));
let numWrong = 0;

function runPython(script: string, ...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(python ?? "", [join(here, script), ...args], {
    encoding: "utf8",
    maxBuffer: 2 ** 28,
  });
  if (status !== 0) throw new Error(`${script} failed: ${stderr.slice(-2000)}`);
  return stdout;
}

function report(what: string, difference: number, allowed: number): void {
  const isRight = difference <= allowed;
  if (!isRight) numWrong++;
  console.log(`${isRight ? "equal" : "WRONG"}  ${what.padEnd(48)} ${difference.toExponential(1)}`);
}

/** The largest difference of two trees, relative to the largest element of each leaf or 1. */
async function differenceOf(a: unknown, b: unknown): Promise<number> {
  const [left, right] = [tree.leaves(nn.unbox(a)) as Tensor[], tree.leaves(nn.unbox(b)) as Tensor[]];
  let worst = left.length === right.length ? 0 : Number.POSITIVE_INFINITY;
  for (const [i, x] of left.entries()) {
    const [p, q] = [await x.data(), (await right[i]?.data()) ?? []];
    for (let j = 0; j < p.length; j++) worst = Math.max(worst, Math.abs(Number(p[j]) - Number(q[j])));
  }
  return worst;
}

interface Expected {
  readonly tokens: number[][];
  readonly logits: readonly number[];
  readonly loss: number;
}

async function compareFamily(name: string): Promise<void> {
  const folder = join(root, name);
  const want: Expected = JSON.parse(readFileSync(join(folder, "expected.json"), "utf8"));
  const tokens = np.array(want.tokens, "int32");
  const length = tokens.shape[1] ?? 0;
  const axes = name === "mixtral" ? { data: 2, expert: 2 } : { data: 2, model: 2 };
  for (const mesh of [undefined, Mesh.create({ fsdp: 2, model: 2 }), Mesh.create(axes)]) {
    const onMesh = mesh ? { mesh } : {};
    const { model, params } = await loadPretrained(folder, { ...onMesh, dtype: "float32" });
    const where = mesh ? Object.entries(mesh.shape).flat().join(" ") : "one device";
    const apply = jit((p: typeof params, t: Tensor) => model.apply(p, t), onMesh);
    const logits = np.array([...want.logits]).reshape([...tokens.shape, -1]);
    report(`${name} on ${where}: logits`, await differenceOf(apply(params, tokens), logits), 1e-4);
    const loss = (p: typeof params, t: Tensor) =>
      crossEntropy(model.apply(p, t.get("...", np.s(0, length - 1))), t.get("...", np.s(1, length))).loss;
    const [value, gradients] = jit(valueAndGrad(loss), onMesh)(params, tokens);
    report(`${name} on ${where}: loss`, Math.abs((await value.item()) - want.loss), 1e-5);
    const theirs = await loadPretrained(join(folder, "gradients"), { dtype: "float32" });
    report(`${name} on ${where}: gradients`, await differenceOf(gradients, theirs.params), 1e-4);
    if (mesh)
      await savePretrained(join(folder, `exported`), await loadPretrained(folder, { mesh })).catch(
        ignoreUsed,
      );
  }
}

const ignoreUsed = (error: Error) => {
  if (!error.message.includes("is not empty")) throw error;
};

async function writeAdapters(): Promise<void> {
  const folder = join(root, "llama2");
  const pretrained = await loadPretrained(folder, { dtype: "float32" });
  const options = { rank: 2, alpha: 6, targets: ["query", "down"] };
  const model = nn.lora(pretrained.model, options);
  const ids = [[3, 5, 9, 7, 4]];
  const tokens = np.array(ids, "int32");
  const init = model.init(random.key(0), pretrained.params, tokens);
  const adapters = tree.map((x: Tensor) => x.add(random.normal(random.key(1), x.shape).mul(0.2)), init);
  await saveAdapters(join(folder, "adapters"), { ...pretrained, adapters, options });
  const logits = Array.from(await model.apply(pretrained.params, adapters, tokens).data(), Number);
  writeFileSync(join(folder, "adapters.json"), JSON.stringify({ tokens: ids, logits }));
}

interface Sample {
  readonly text: string;
  readonly ids: readonly number[];
  readonly special: readonly number[];
  readonly decoded: string;
  readonly noise: readonly number[];
  readonly noiseDecoded: string;
}

function compareTokenizers(): void {
  const docs = join(here, "../../docs");
  const pages = readdirSync(docs).filter((file) => file.endsWith(".md"));
  const corpus = join(root, "corpus.txt");
  writeFileSync(corpus, pages.map((page) => readFileSync(join(docs, page), "utf8")).join("\n"));
  const folder = join(root, "tokenizers");
  runPython("tokenizer_samples.py", folder, corpus, numTexts);
  for (const file of readdirSync(folder).filter((one) => one.endsWith(".tokenizer.json"))) {
    const kind = file.replace(".tokenizer.json", "");
    const tokenizer = parseTokenizer(readFileSync(join(folder, file), "utf8"), kind);
    const samples: Sample[] = JSON.parse(readFileSync(join(folder, `${kind}.samples.json`), "utf8"));
    const isSame = ({ text, ids, special, decoded, noise, noiseDecoded }: Sample) =>
      `${tokenizer.encode(text)}` === `${ids}` &&
      tokenizer.decode(noise) === noiseDecoded &&
      (!(tokenizer instanceof JsonTokenizer) ||
        (`${tokenizer.encode(text, { addSpecialTokens: true })}` === `${special}` &&
          tokenizer.decode(ids, { skipSpecialTokens: true }) === decoded));
    report(`tokenizer ${kind}: of ${samples.length} texts`, samples.filter((one) => !isSame(one)).length, 0);
  }
}

try {
  console.error("making models …");
  runPython(
    "models.py",
    root,
    ...chosen,
    ...(chosen.length > 0 && !chosen.includes("llama2") ? ["llama2"] : []),
  );
  for (const name of readdirSync(root)) await compareFamily(name);
  await writeAdapters();
  console.error("reading exported models …");
  for (const line of runPython("exported.py", root).trim().split("\n")) {
    const { name, same, difference } = JSON.parse(line);
    report(`${name} read by Hugging Face: logits`, difference, 1e-4);
    report(`${name} read by Hugging Face: bits`, same ? 0 : 1, 0);
  }
  console.error("making tokenisers …");
  compareTokenizers();
} finally {
  rmSync(root, { recursive: true, force: true });
}
console.log(numWrong === 0 ? "all is equal" : `${numWrong} comparisons failed`);
process.exit(numWrong === 0 ? 0 : 1);
