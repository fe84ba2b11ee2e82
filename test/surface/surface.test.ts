/**
 * Every exported function with malformed arguments: each call returns or throws an error that is promised, in bounded
 * time. `npm run fuzz:surface` makes many more calls; `SEED=7` makes others, `SURFACE=np.take` only those of functions
 * whose names it matches.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { ValueError } from "../../src/index.js";
import * as nn from "../../src/nn/index.js";
import * as parallel from "../../src/parallel/index.js";
import { surface } from "./functions.js";
import { type Complaint, callOnce } from "./fuzz.js";

const calls = Number(process.env.SURFACE_CALLS ?? 5);
/** The everyday part makes the same calls every time, so that it fails for who broke something. */
const seed = Number(process.env.SEED ?? (process.env.SURFACE_CALLS ? Date.now() % 1e6 : 14));
const only = new RegExp(process.env.SURFACE ?? "");

/** Opening these takes long, whatever the arguments. */
const slow = new Set(["engines.createXlaEngine", "train.bundledText"]);

const here = process.cwd();
let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "shardwise-surface-"));
  process.chdir(folder);
  for (const name of ["log", "info", "warn", "error"] as const)
    vi.spyOn(console, name).mockImplementation(() => {});
});
afterAll(() => {
  process.chdir(here);
  rmSync(folder, { recursive: true, force: true });
  vi.restoreAllMocks();
});

const tell = ({ name, call, what, stack }: Complaint) => `${name} #${call}: ${what}\n${stack}`;

describe(`every exported function (seed ${seed})`, () => {
  test("returns or throws a typed error, whatever it is called with", async () => {
    const complaints: string[] = [];
    for (const fn of surface().filter(({ name }) => only.test(name))) {
      const count = slow.has(fn.name) ? Math.ceil(calls / 30) : calls;
      for (let call = 0; call < count; call++) {
        const complaint = await callOnce(fn, seed, call);
        if (complaint) complaints.push(tell(complaint));
      }
    }
    expect(complaints).toEqual([]);
  }, 3_600_000);

  test("is found: there are some nine hundred", () => {
    const names = surface().map(({ name }) => name);
    expect(names.length).toBeGreaterThan(900);
    expect(names).toEqual(expect.arrayContaining(["np.sum", "lax.psum", "jit", "nn.Dense", "optim.adamw"]));
    expect(names).toEqual(expect.arrayContaining(["Tensor#reshape", "Mesh.create", "train.openBatches"]));
  });

  test("that is broken is noticed", async () => {
    const broken = (throws: Error) => ({ name: "broken", length: 1, call: () => Promise.reject(throws) });
    expect(await callOnce(broken(new TypeError("x is undefined")), seed, 0)).toMatchObject({
      what: "TypeError: x is undefined",
    });
    expect(await callOnce(broken(new ValueError("no")), seed, 0)).toBeUndefined();
  });
});

const modules = [...Object.entries(nn), ...Object.entries(parallel)].flatMap(([name, value]) =>
  typeof value === "function" && "moduleName" in value
    ? [{ name, make: value as (config: object) => unknown }]
    : [],
);

describe("every module", () => {
  test.each(modules)("$name refuses an option that it does not know", ({ make }) => {
    expect(() => make({ misspelt: 1 })).toThrow(/unknown option "misspelt": the options are/);
  });

  test("names the option that was meant", () => {
    expect(() => nn.Dense({ features: 2, use_bias: true } as never)).toThrow(/did you mean useBias\?/);
  });
});
