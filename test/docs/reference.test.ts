import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { transformSync } from "esbuild";
import * as shardwise from "shardwise";
import * as engines from "shardwise/engines";
import * as nn from "shardwise/nn";
import * as optim from "shardwise/optim";
import * as parallel from "shardwise/parallel";
import * as random from "shardwise/random";
import * as train from "shardwise/train";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ReferenceFunction, referenceFunctions } from "../../scripts/site/reference.js";

/** The names that examples use without importing them. */
const scope: Readonly<Record<string, unknown>> = {
  ...shardwise,
  engines,
  fs,
  nn,
  optim,
  parallel,
  random,
  train,
};

const functions = referenceFunctions();

/** Functions without an example, by reason. */
const withoutExample: Readonly<Record<string, string>> = {
  "needs several processes, which the pages on clusters start": "engines.createMpiEngine",
  "needs an XLA plug-in; the page on GPUs shows it": "engines.createXlaEngine",
  "measures the machine for minutes, or takes what was measured; the page on planning shows them":
    "train.calibrate train.calibratedPrices train.writeCalibration",
  "trains for longer than an example may take; the guide runs them": "train.trainRun train.createTraining",
  "needs a browser; its page runs them": "train.downloadBytes train.openOriginFiles",
};

/** What functions lack, by kind. */
function gapsOf(all: readonly ReferenceFunction[]) {
  return {
    descriptions: all.filter(({ description }) => description === "").map(({ name }) => name),
    options: [...new Set(all.flatMap(({ unexplained }) => unexplained))].sort(),
    examples: all.filter(({ examples }) => examples.length === 0).map(({ name }) => name),
  };
}

/** Runs an example: `value; // 3` says what a value is, to as many digits as are written. */
async function run(code: string): Promise<void> {
  const checked = code.replace(
    /^(?!const |let |\/\/)(\S.*?);? \/\/ (.*)$/gm,
    (_, expression, text) => `await check(${expression}, ${JSON.stringify(text)});`,
  );
  await functionWith(checked)(...Object.values(scope), check);
}

type Run = (...args: readonly unknown[]) => Promise<unknown>;

/** Code as a function of the scope and of `check`. Most of it has no types, and need not be compiled. */
function functionWith(code: string): Run {
  const AsyncFunction: new (...args: readonly string[]) => Run = Object.getPrototypeOf(run).constructor;
  const names = [...Object.keys(scope), "check"];
  try {
    if (!code.includes("<")) return new AsyncFunction(...names, code);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  return new AsyncFunction(...names, transformSync(code, { loader: "ts", target: "node20" }).code);
}

async function check(value: unknown, said: string): Promise<void> {
  const found = await hosted(value);
  let wanted: unknown;
  try {
    wanted = JSON.parse(said.replace(/\bNaN\b|-?\bInfinity\b/g, '"$&"'));
  } catch {
    const text =
      typeof found === "string" ? found : inspect(found, { breakLength: Number.POSITIVE_INFINITY });
    expect(text.replace(/([[{(]) | ([\]})])/g, "$1$2")).toBe(said.replace(/([[{(]) | ([\]})])/g, "$1$2"));
    return;
  }
  expect(rounded(found), said).toEqual(rounded(wanted));
}

/** Tensors of a value as numbers. */
async function hosted(value: unknown): Promise<unknown> {
  if (value instanceof shardwise.Tensor) return value.js();
  if (value instanceof Promise) return hosted(await value);
  if (Array.isArray(value)) return Promise.all(value.map(hosted));
  if (value !== null && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype) {
    const entries = Object.entries(value).map(async ([key, part]) => [key, await hosted(part)] as const);
    return Object.fromEntries(await Promise.all(entries));
  }
  return value;
}

/** Numbers to the four digits that examples write; others as they are. */
function rounded(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(rounded);
  if (value !== null && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, rounded(part)]));
  if (typeof value !== "number") return value;
  // Zero has no sign in JSON.
  if (!Number.isFinite(value)) return String(value);
  return Number.isInteger(value) ? value + 0 : Number(value.toPrecision(4)) + 0;
}

describe("the reference", () => {
  // Examples write files where they run.
  const [folder, before] = [fs.mkdtempSync(join(tmpdir(), "shardwise-examples-")), process.cwd()];
  beforeAll(() => process.chdir(folder));
  afterAll(() => {
    process.chdir(before);
    fs.rmSync(folder, { recursive: true });
  });

  test("has a description, meanings of options and an example, except for what has a reason", () => {
    const exempt = Object.values(withoutExample).flatMap((names) => names.split(" "));
    expect(gapsOf(functions)).toEqual({ descriptions: [], options: [], examples: exempt });
  });

  const examples = functions.flatMap(({ name, examples: own }) => own.map((code) => [name, code] as const));
  test.each(examples)("shows an example of %s that runs", async (_, code) => run(code));
});
