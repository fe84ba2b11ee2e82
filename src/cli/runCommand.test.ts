import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { type Said, said, saidOnThreads } from "../../test/support/cliHere.js";
import { ended, startShardwise } from "../../test/support/cliProcess.js";
import { temporaryFolder, writeText } from "../../test/support/runs.js";
import { checkpointFolder } from "../train/config/setup.js";
import { openCheckpoints } from "../train/files/checkpoints/checkpoint.js";

const root = fileURLToPath(new URL("../../", import.meta.url));
const folder = temporaryFolder();
const text = writeText(folder.path);
afterAll(folder.remove);

const file = join(folder.path, "config.json");
writeFileSync(
  file,
  JSON.stringify({
    model: { width: 8, numLayers: 2, numHeads: 2, numKvHeads: 2, mlpWidth: 8 },
    mesh: { data: 2 },
    pipeline: { microbatches: 2 },
    data: { source: text, sequence: 8, batch: 4 },
    steps: 3,
    sample: 4,
  }),
);

const start = (...args: readonly string[]) => startShardwise(folder.path, args);
const shardwise = (...args: readonly string[]) => ended(start(...args));

/** What commands say, one after the other, that need no engine. */
async function allSaid(...commands: readonly (readonly string[])[]): Promise<Said[]> {
  const all: Said[] = [];
  for (const args of commands) all.push(await said(...args));
  return all;
}

describe("the command line", { timeout: 120_000 }, () => {
  test("trains, samples, evaluates and inspects", async () => {
    const out = join(folder.path, "run");
    const trained = await shardwise("train", file, "--out", out);
    expect(trained.err).toContain("writing to");
    expect(trained.out).toMatch(/finished 3 steps in .*: loss [\d.]+ → [\d.]+, validation/);
    expect(trained.code).toBe(0);
    expect(existsSync(join(out, "report.html"))).toBe(true);
    const generated = await shardwise(
      "generate",
      out,
      "--prompt",
      "the ",
      "--length",
      "3",
      "--temperature",
      "0",
    );
    const prompts = join(folder.path, "prompts.txt");
    writeFileSync(prompts, "the \n\nand\r\n");
    const several = await saidOnThreads(
      ...["generate", out, "--prompts", prompts, "--slots", "1", "--length", "3", "--temperature", "0"],
    );
    const checkpoint = join(out, "checkpoints", "step-00000003");
    const evaluated = await saidOnThreads("eval", checkpoint, "--mesh", "model=2");
    const load = { step: 3, routerImbalance: 1.5, routerDeviceImbalance: 1.25, routerDropped: 0.125 };
    appendFileSync(join(out, "metrics.jsonl"), `${JSON.stringify(load)}\n`);
    const inspected = await said("inspect", out);
    expect(generated).toMatchObject({ code: 0, err: "" });
    expect(generated.out.startsWith("the ")).toBe(true);
    const lines = several.out.trimEnd().split("\n");
    const [first, second] = lines.map((line) => JSON.parse(line) as { prompt: string; text: string });
    expect([lines.length, first?.prompt, second?.prompt]).toEqual([2, "the ", "and"]);
    expect(`${first?.prompt}${first?.text}\n`).toBe(generated.out);
    expect(evaluated.out).toMatch(/step 3: loss [\d.]+ nats per token, perplexity .* on the validation part/);
    expect(evaluated.code).toBe(0);
    expect(inspected.out).toContain("step 3, ");
    expect(inspected.out).toContain(
      "experts at step 3: the fullest has 1.5 times the mean load, the fullest device 1.25 times the mean load; 12.5 % dropped",
    );
    expect(inspected.out).toContain("params/params/layers/block/attention/key/kernel");
    expect(inspected.code).toBe(0);
  });

  test("plans for another machine, and writes what train takes", async () => {
    const target = join(folder.path, "plan.json");
    const machine = [
      "--memory",
      "1GiB",
      "--network",
      "100Gbit",
      "--intra",
      "300GB/s",
      "--flops",
      "100TFLOP/s",
    ];
    const options = ["--devices", "2", ...machine, "--tries", "2", "--write", target];
    const planned = await said("plan", file, "--steps", "1", ...options);
    expect(planned.err).toBe("");
    expect(planned.out).toMatch(/\d+ configurations, 2 of them compiled and priced, 2 fit\n/);
    expect(planned.out).toMatch(/\n1 +(\w+=2)+.* (ms|µs) +[\d.]+ % +[\d.]+ \wiB +\w+/);
    const written: unknown = JSON.parse(readFileSync(target, "utf8"));
    expect(written).toMatchObject({ model: { width: 8, numLayers: 2 }, steps: 1 });
    const trained = await saidOnThreads("train", target, "--out", join(folder.path, "planned"));
    expect(trained.out).toContain("finished 1 steps");
  });

  test("measures a machine that it does not know, and refuses rates without units", async () => {
    const nowhere = join(folder.path, "none.json");
    const wrong = await said("plan", file, "--network", "quick");
    expect(wrong).toMatchObject({ code: 2, out: "" });
    expect(wrong.err).toContain('--network is "quick": use a rate such as 400Gbit or 900GB/s');
    const options = ["--devices", "1", "--tries", "1", "--write", join(folder.path, "measured.json")];
    const unknown = await said("plan", file, "--calibration", nowhere, ...options);
    expect(unknown.err).toContain("this machine is not calibrated: measuring it for a few seconds");
    expect(unknown.out).toMatch(/GFLOP\/s each, measured roughly now\n/);
  });

  test("tells what a configuration would need before anything is run", async () => {
    const network = ["--network", "100Mbit", "--latency", "1ms", "--flops", "50GFLOP/s"];
    const hosts = ["--processes", "2", "--hosts", "2", ...network];
    const { code, out } = await said("inspect", file, "--mesh", "pipe=2", ...hosts);
    expect(out).toMatch(/links between 2 processes on 2 hosts.*\n {2}pipe +between hosts +[\d.]+ \w+\n/);
    expect(out).toMatch(
      /\na step on this network: [\d.]+ ms, [\d.]+ ms of it for what crosses pipe.* \(50.0 GFLOP\/s/,
    );
    expect(code).toBe(0);
    expect(out).toContain('P("pipe")');
    expect(out).toMatch(/ppermute +over pipe/);
    expect(out).toContain("stage 1");
  });

  test("has help for everything, with the exit codes", async () => {
    const [general, ofTrain, ofInspect, ...versions] = await allSaid(
      ["--help"],
      ["help", "train"],
      ["inspect", "--help"],
      ["--version"],
    );
    expect(general?.out).toContain("Exit codes:");
    expect(general?.out).toContain("generate");
    expect(ofTrain?.out).toContain("--optimizer.learningRate");
    expect(ofTrain?.out).toContain("of matrix products");
    expect(ofTrain?.out).toMatch(
      /--engine\s+the engine: threads, oneThread, reference, mpi, xla,\s+webgpu, or/,
    );
    expect(ofTrain?.out.split("\n").filter((line) => line.length > 80)).toEqual([]);
    expect(ofInspect?.out).toContain("Usage: shardwise inspect");
    const { version: own } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
      version: string;
    };
    const [version, nothing] = await Promise.all([shardwise("--version"), shardwise()]);
    for (const { code, out } of [...versions, version]) expect([code, out]).toEqual([0, `${own}\n`]);
    expect([general, ofTrain, ofInspect].map((one) => one?.code)).toEqual([0, 0, 0]);
    expect(nothing.code).toBe(2);
    expect(nothing.err).toBe(general?.out);
  });

  test("says what was probably meant, and ends with code 2", async () => {
    const problems = await allSaid(
      ["trian"],
      ["train", "--modle.width", "64", "--mesh", "dta=2"],
      ["train", file, "--data.batch", "5", "--model.numHeads", "3"],
      ["train", "nothing.json"],
      ["generate", "nowhere"],
      ["--versoin"],
      ["generate", "nowhere", "--prompt", "a", "--prompts", text],
      ["generate", "nowhere", "--prompts", "nothing.jsonl"],
    );
    const [command, option, values, missing, folderless, flag, both, unread] = problems;
    expect(both?.err).toContain("options --prompt and --prompts both say what to continue");
    expect(unread?.err).toContain("nothing.jsonl");
    expect(flag?.err).toContain('unknown option "--versoin"; did you mean --version?');
    expect(command?.err).toContain('unknown command "trian"; did you mean train?');
    expect(option?.err).toContain("did you mean --model.width?");
    expect(option?.err).toContain("did you mean data?");
    expect(values?.err).toContain("the configuration has 3 problems");
    expect(values?.err).toContain("data.batch is 5");
    expect(missing?.err).toContain("nothing.json cannot be read");
    expect(folderless?.err).toContain("there is no folder nowhere");
    expect(problems.map(({ code }) => code)).toEqual([2, 2, 2, 2, 2, 2, 2, 1]);
  });

  test("finishes the step, saves and ends with code 130 on an interrupt, also one that comes twice as under npm; at once on the second", async () => {
    // Two signals this many milliseconds apart are one keypress, or two.
    for (const [apart, times] of [
      [20, 1],
      [150, 2],
    ] as const) {
      const out = join(folder.path, `interrupted${times}`);
      const child = start("train", file, "--out", out, "--steps", "100000", "--checkpointEvery", "7");
      let sent = false;
      const {
        code,
        out: said,
        err,
      } = await ended(child, (so_far) => {
        if (sent || !so_far.includes("step 1/")) return;
        sent = true;
        child.kill("SIGINT");
        setTimeout(() => child.kill("SIGINT"), apart);
      });
      expect(code, err).toBe(130);
      expect(err).toContain("stopping after this step");
      const list = await openCheckpoints(checkpointFolder(out)).list();
      expect(list.every(({ problem }) => problem === undefined)).toBe(true);
      if (times === 1) {
        expect(said).toContain("stopped after step");
        const [newest] = list;
        expect(newest).toBeDefined();
        const more = String((newest?.step ?? 0) + 2);
        const resumed = await saidOnThreads("train", "--resume", "--out", out, "--steps", more);
        expect(resumed.err).toContain(`from step ${newest?.step}`);
        expect(resumed.out).toContain(`finished 2 more steps, ${more} in all, in`);
        expect(resumed.code).toBe(0);
      }
    }
  });

  test("serves a page about a run while it trains, on a port of its choice", async () => {
    const out = join(folder.path, "watched");
    const child = start("train", file, "--out", out, "--steps", "40", "--evalEvery", "5", "--watch");
    let page: Promise<string> | undefined;
    const { code, err } = await ended(child, (text) => {
      const [, address] = /watch this run at (http:\/\/localhost:\d+\/)\n/.exec(text) ?? [];
      if (address) page ??= fetch(`${address}events`).then((response) => response.text());
    });
    expect(code, err).toBe(0);
    const stream = (await page) ?? "";
    expect(stream).toMatch(/^retry: 1000\n\ndata: \{"order":\["status"/);
    expect(stream).toContain("tokens / s by step");
    expect(stream).toContain("One step, device by device");
    expect(stream).toContain("40 of 40");
    expect(stream).toMatch(/event: end\ndata: "The run has finished\."\n\n$/);
  });

  test("compares runs on a page, and refuses folders that are none", async () => {
    const runs = ["first", "second"].map((name) => join(folder.path, name));
    const page = join(folder.path, "both.html");
    const [first = "", second = ""] = runs;
    expect((await saidOnThreads("train", file, "--out", first, "--sample", "0")).code).toBe(0);
    const other = ["--out", second, "--sample", "0", "--seed", "7"];
    expect((await saidOnThreads("train", file, ...other)).code).toBe(0);
    const [compared, one, none] = await allSaid(
      ["compare", ...runs, "--write", page],
      ["compare", first],
      ["compare", first, join(first, "checkpoints")],
    );
    expect(compared?.code).toBe(0);
    expect(compared?.out).toMatch(/\nseed +0 +7\n\nthe curves are in .*both\.html\n$/);
    expect(readFileSync(page, "utf8")).toContain("Loss by tokens");
    expect([one?.code, none?.code]).toEqual([2, 2]);
    expect(one?.err).toContain("compare needs the folders of two runs or more");
    expect(none?.err).toContain("is not a run");
  });

  test("says that a run which has just begun has no checkpoint yet", async () => {
    const young = join(folder.path, "young");
    mkdirSync(young);
    writeFileSync(join(young, "config.json"), "{}");
    writeFileSync(join(young, "metrics.jsonl"), "");
    const all = await allSaid(["serve", young], ["generate", young], ["inspect", young]);
    for (const { code, err } of all) {
      expect(code).toBe(2);
      expect(err).toContain(`${young} holds no checkpoint that can be loaded: wait for the first`);
    }
  });

  test("checks the options of ports", async () => {
    const all = await allSaid(
      ["train", file, "--watch-port", "8080"],
      ["train", file, "--watch", "--watch-port", "70000"],
      ["train", file, "--watch=8080"],
      ["serve", "nowhere", "--port", "70000"],
    );
    expect(all.map(({ code }) => code)).toEqual([2, 2, 2, 2]);
    expect(all.map(({ err }) => err)).toEqual([
      expect.stringContaining("--watch-port is for --watch"),
      expect.stringContaining(
        '--watch-port is "70000": use an integer from 0 to 65535; the nearest is 65535',
      ),
      expect.stringContaining("option --watch takes no value"),
      expect.stringContaining('--port is "70000": use an integer from 0 to 65535'),
    ]);
  });
});
