import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { builtFile, nodeProgram } from "../../test/support/built.js";
import { ended, startShardwise } from "../../test/support/cliProcess.js";
import { withoutChoices } from "../../test/support/environment.js";
import { temporaryFolder } from "../../test/support/runs.js";
import { chooseEngine, engineInfo, sharedEngine } from "./default.js";
import { EngineLoadError } from "./errors.js";
import { importEngine, openEngine } from "./table.js";

const folder = temporaryFolder();
afterAll(folder.remove);
afterAll(() => chooseEngine(undefined));

/** An engine that only counts how often it was opened; it has four devices however many are wanted. */
const engineText = `
  let opened = 0;
  const nothing = () => {};
  export function createEngine({ numDevices }) {
    opened++;
    return {
      name: "counted", numDevices: 4, wanted: numDevices, opened, process: { index: 0, count: 1 },
      isAddressable: () => true, compile: nothing, upload: nothing, download: nothing, ready: nothing,
      peek: nothing, transfer: nothing, release: nothing, close: nothing,
    };
  }
`;
function write(name: string, text: string): string {
  const path = join(folder.path, name);
  writeFileSync(path, text);
  return path;
}
const counted = write("counted.mjs", engineText);

describe("an engine's name", () => {
  test("opens an engine of the package with the devices that are wanted", async () => {
    const engine = openEngine("reference", { numDevices: 3 });
    expect([engine.name, engine.numDevices]).toEqual(["reference", 3]);
    const threads = openEngine("threads", { numDevices: 1 });
    expect([threads.name, threads.numDevices]).toEqual(["threads", 1]);
    await threads.close();
  });

  test("opens a module by its path, at once or after it was imported", async () => {
    expect(openEngine(counted, { numDevices: 2 })).toMatchObject({ name: "counted", wanted: 2, opened: 1 });
    await importEngine(`file://${counted}`);
    expect(openEngine(`file://${counted}`, { numDevices: 3 })).toMatchObject({ wanted: 3 });
  });

  test("opens a module that awaits something while it loads after it was imported only", async () => {
    const path = write("late.mjs", `await 1;${engineText}`);
    expect(() => openEngine(path, { numDevices: 1 })).toThrow(
      /late.mjs" cannot be loaded: .*top-level await/,
    );
    await importEngine(path);
    expect(openEngine(path, { numDevices: 1 })).toMatchObject({ name: "counted" });
  });

  test.each([
    [
      "thread",
      /unknown engine "thread": use "threads", "oneThread", "reference", "mpi", "xla", "webgpu", or a package or path/,
    ],
    ["./no-engine.js", /unknown engine ".\/no-engine.js".*; there is no file \/.*no-engine.js/],
    [write("throws.mjs", 'throw new Error("no driver");'), /throws.mjs" cannot be loaded: no driver/],
    [
      write("other.mjs", "export const makeEngine = 1;"),
      /exports no function createEngine.*; it exports makeEngine/,
    ],
    [
      write("early.mjs", "export async function createEngine() { return {}; }"),
      /is not an engine: createEngine returned a promise/,
    ],
    [
      write("none.mjs", "export function createEngine() {}"),
      /none.mjs" is not an engine: createEngine returned undefined/,
    ],
    [
      write("half.mjs", 'export const createEngine = () => ({ name: 3, numDevices: 1, info: "x" });'),
      /its name is a number and not a string, its process is missing and not a object.*its info is a string/,
    ],
  ])("that is wrong is told: %s", async (name, message) => {
    expect(() => openEngine(name, { numDevices: 1 })).toThrow(EngineLoadError);
    expect(() => openEngine(name, { numDevices: 1 })).toThrow(message);
    const imported = importEngine(name).then(() => openEngine(name, { numDevices: 1 }));
    await expect(imported).rejects.toThrow(message);
  });
});

describe("the shared engine", () => {
  test("is the chosen one, opened once for all meshes that fit", async () => {
    await chooseEngine(counted);
    const engine = sharedEngine(1);
    expect(engine.name).toBe("counted");
    expect(sharedEngine(4)).toBe(engine);
    expect(sharedEngine(8)).not.toBe(engine);
    expect(engineInfo()).toEqual({ engine: "counted", numDevices: 4 });
    await chooseEngine("reference");
    expect(engineInfo()).toEqual({ engine: "reference", numDevices: Number.POSITIVE_INFINITY });
  });

  test("is found by the environment variable, in a package of the working directory, without a warning", () => {
    const own = join(folder.path, "node_modules", "my-engine");
    mkdirSync(own, { recursive: true });
    writeFileSync(
      join(own, "package.json"),
      '{ "name": "my-engine", "type": "module", "main": "./main.js" }',
    );
    writeFileSync(join(own, "main.js"), engineText);
    const library = pathToFileURL(builtFile("src/index.ts")).href;
    const script = `import { engineInfo } from "${library}"; console.log(engineInfo().engine);`;
    const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
      cwd: folder.path,
      env: { ...withoutChoices, SHARDWISE_ENGINE: "my-engine" },
      encoding: "utf8",
    });
    expect(stdout).toBe("counted\n");
    // Node 22.12 always warns that require() of ES modules is experimental.
    if (!process.version.startsWith("v22.12.")) expect(stderr).toBe("");
  });
});

describe("--engine", { timeout: 120_000 }, () => {
  test("chooses what a command runs on, and lists the engines when there is none of the name", async () => {
    const small = ["--model.width", "8", "--model.numLayers", "1", "--model.numHeads", "1"];
    const size = [...small, "--model.numKvHeads", "1", "--data.batch", "1", "--data.sequence", "8"];
    const [wrong, traced] = await Promise.all([
      ended(startShardwise(folder.path, ["trace", "--engine", "thread"])),
      ended(startShardwise(folder.path, ["trace", ...size, "--mesh", "data=1", "--engine", "reference"])),
    ]);
    expect(wrong).toMatchObject({ code: 2, out: "" });
    expect(wrong.err).toContain(
      'unknown engine "thread": use "threads", "oneThread", "reference", "mpi", "xla", "webgpu", or',
    );
    expect(traced.err).toContain('the engine "reference" records nothing: use --engine threads');
  });

  test("of the conformance takes an engine that imports only public entry points", async () => {
    const root = fileURLToPath(new URL("../../", import.meta.url));
    const run = (...args: string[]) =>
      execFileSync(
        process.execPath,
        [...nodeProgram("test/conformance/goldens/main.ts"), "test/goldens", ...args],
        { cwd: root, encoding: "utf8", stdio: "pipe", env: withoutChoices },
      );
    const lines = run("--engine", builtFile("test/fixtures/turnsEngine.ts"), "--area", "collectives").split(
      "\n",
    );
    expect(lines.at(-2)).toMatch(/^\d+ passed, 0 failed$/);
    expect(lines.at(-2)).not.toMatch(/^0 passed/);
    expect(() => run("--engine", "nothing")).toThrow(/unknown engine "nothing"/);
  });
});
