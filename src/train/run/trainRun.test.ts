import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test, vi } from "vitest";
import "../../index.js";
import { silent, temporaryFolder, tinyConfig, writeText } from "../../../test/support/runs.js";
import { createReferenceEngine } from "../../engines/reference/engine.js";
import { checkpointFolder } from "../config/setup.js";
import { openCheckpoint, openCheckpoints } from "../files/checkpoints/checkpoint.js";
import { readMetrics } from "../report/metrics.js";
import { DivergedError } from "../step/health.js";
import { trainRun } from "./trainRun.js";

const folder = temporaryFolder();
writeText(folder.path);
afterAll(folder.remove);

async function hashes(checkpoint: string): Promise<readonly string[]> {
  return (await openCheckpoint(checkpoint)).manifest.files.map(({ sha256 }) => sha256);
}

describe("a run", () => {
  test("that is stopped and taken up again ends with the same bits as one that was not", async () => {
    const whole = tinyConfig(folder.path, { out: join(folder.path, "whole"), "mesh.data": 2 });
    const expected = await trainRun({ config: whole, stream: silent, finish: false });
    expect(expected.status).toBe("finished");
    for (const stop of process.env.CASES === "all" ? [2, 5] : [3]) {
      const config = tinyConfig(folder.path, { out: join(folder.path, `stop${stop}`), "mesh.data": 2 });
      const controller = new AbortController();
      const first = await trainRun({
        config,
        stream: silent,
        signal: controller.signal,
        // The numbers of a step come while the next one runs, which is finished too.
        onStep: ({ step }) => step === stop - 1 && controller.abort(),
        finish: false,
      });
      expect(first).toMatchObject({ status: "stopped", step: stop });
      const second = await trainRun({ config, resume: true, stream: silent, finish: false });
      expect(second.steps.map(({ loss }) => loss)).toEqual(expected.steps.map(({ loss }) => loss));
      expect(await hashes(second.checkpoint)).toEqual(await hashes(expected.checkpoint));
    }
  }, 120_000);

  test("writes checkpoints, metrics, events, a report, and a sample", async () => {
    const out = join(folder.path, "complete");
    const config = tinyConfig(folder.path, { out, steps: 3, checkpointEvery: 2, evalEvery: 2, sample: 4 });
    const outcome = await trainRun({ config, stream: silent });
    expect(readMetrics(join(out, "metrics.jsonl")).map(({ step }) => step)).toEqual([1, 2, 2, 3, 3]);
    expect(outcome.evaluations.map(({ step }) => step)).toEqual([2, 3]);
    expect((await openCheckpoints(checkpointFolder(out)).list()).map(({ step }) => step)).toEqual([3, 2]);
    expect(readFileSync(join(out, "report.html"), "utf8")).toContain("Communication of a step");
    expect(outcome.files).toMatchObject({ report: join(out, "report.html") });
  });

  test("that is watched takes the same steps, and shows all that its report shows", async () => {
    const changes = { steps: 5, evalEvery: 2, sample: 3, checkpointEvery: 3, "mesh.data": 2 };
    const plain = await trainRun({
      config: tinyConfig(folder.path, { ...changes, out: join(folder.path, "unwatched") }),
      stream: silent,
    });
    const out = join(folder.path, "watched");
    const written: string[] = [];
    const ids = new Set<string>();
    let last = "";
    const watched = await trainRun({
      config: tinyConfig(folder.path, { ...changes, out, sampleEvery: 2 }),
      stream: { write: (text) => written.push(text) },
      onChange: (view) => {
        const sections = view.sections();
        for (const { id } of sections) ids.add(id);
        last = sections.map(({ html }) => html).join("");
      },
    });
    expect(watched.steps.map(({ loss }) => loss)).toEqual(plain.steps.map(({ loss }) => loss));
    expect(await hashes(watched.checkpoint)).toEqual(await hashes(plain.checkpoint));
    const recorded = ["step", "parameters", "memory", "communication"];
    expect([...ids]).toEqual(
      expect.arrayContaining(["status", "facts", "loss", "metrics", "samples", "checkpoints", ...recorded]),
    );
    for (const text of [
      "5 of 5",
      "checkpoints/step-00000005",
      "After step 4",
      "What the model writes after step 5",
    ])
      expect(last).toContain(text);
    const waits = written.filter((line) => line.endsWith(" …\n")).map((line) => line.slice(0, -3));
    expect(waits).toEqual([
      `reading ${join(folder.path, "text.txt")}`,
      "planning the memory of a step",
      "measuring the peak of the devices",
      "initialising the model",
      "compiling the training step",
      "writing the checkpoint",
      "writing a sample",
      "recording a step for the report",
    ]);
  }, 120_000);

  test("compiles what a save needs while signals still end it at once, and the evaluation after its first step", async () => {
    const config = tinyConfig(folder.path, {
      out: join(folder.path, "compiled"),
      steps: 4,
      checkpointEvery: 2,
      evalEvery: 2,
    });
    const engine = createReferenceEngine();
    const compile = vi.spyOn(engine, "compile");
    const names = (from: number) => compile.mock.calls.slice(from).map(([, { name }]) => name);
    let numDeaf = Number.NaN;
    const listen = () => {
      numDeaf = compile.mock.calls.length;
    };
    let numAfterFirst = Number.NaN;
    const onStep = () => {
      numAfterFirst ||= compile.mock.calls.length;
    };
    await trainRun({ config, stream: silent, finish: false, engine, onStep, onBegin: () => ({ listen }) });
    expect(names(0)).toEqual(expect.arrayContaining(["trainStep", "evaluate", "isFinite"]));
    expect(names(numDeaf).filter((name) => /trainStep|isFinite/.test(name ?? ""))).toEqual([]);
    expect(names(0).slice(0, numAfterFirst)).not.toContain("evaluate");
    expect(names(numAfterFirst)[0]).toBe("evaluate");
  });

  test("gives the step to engines that compile on threads of their own before the state is made or read, once", async () => {
    const config = tinyConfig(folder.path, {
      out: join(folder.path, "beside"),
      steps: 2,
      checkpointEvery: 1,
    });
    for (const [given, before] of [
      [{ config: { ...config, steps: 1 } }, "init"],
      [{ config, resume: true }, "isFinite"],
    ] as const) {
      const engine = createReferenceEngine();
      const compile = vi.spyOn(engine, "compile");
      await trainRun({ ...given, stream: silent, finish: false, engine });
      const names = compile.mock.calls.map(([, { name }]) => name);
      expect(names.filter((name) => name === "trainStep")).toHaveLength(1);
      expect(names.indexOf("trainStep")).toBeLessThan(names.indexOf(before));
    }
  });

  test("runs what another of its process compiled for the same model, optimiser and mesh, and nothing else", async () => {
    const engine = createReferenceEngine();
    const compile = vi.spyOn(engine, "compile");
    const compiledSteps = async (out: string, changes: Readonly<Record<string, unknown>>) => {
      compile.mockClear();
      const config = tinyConfig(folder.path, { out: join(folder.path, out), steps: 1, ...changes });
      await trainRun({ config, stream: silent, finish: false, engine });
      return compile.mock.calls.filter(([, { name }]) => name === "trainStep").length;
    };
    expect(await compiledSteps("first", {})).toBe(1);
    expect(await compiledSteps("second", { seed: 1 })).toBe(0);
    expect(await compiledSteps("slower", { "optimizer.learningRate": 0.001 })).toBe(1);
    expect(await compiledSteps("longer", { steps: 2 })).toBe(1);
    expect(await compiledSteps("split", { "mesh.data": 2 })).toBe(1);
    expect(await compiledSteps("first again", {})).toBe(0);
  });

  test("does not start over another one, and does not resume from nothing", async () => {
    const config = tinyConfig(folder.path, { out: join(folder.path, "taken"), steps: 1 });
    await expect(trainRun({ config, resume: true, stream: silent })).rejects.toThrow(
      /there is no checkpoint/,
    );
    await trainRun({ config, stream: silent, finish: false });
    await expect(trainRun({ config, stream: silent })).rejects.toThrow(/holds a run already, at step 1/);
    // No device was in use, so that there is nothing to record beside the other run's files.
    expect(readdirSync(config.out)).not.toContain("flight");
    expect(readdirSync(config.out)).not.toContain("run.lock");
  });

  test("does not resume with another configuration, and lists every field that differs", async () => {
    const out = join(folder.path, "other");
    await trainRun({ config: tinyConfig(folder.path, { out, steps: 1 }), stream: silent, finish: false });
    const changed = tinyConfig(folder.path, { out, "model.width": 16, seed: 3, steps: 9 });
    await expect(trainRun({ config: changed, resume: true, stream: silent })).rejects.toThrow(
      /model\.width was 8 and is 16\n {2}seed was 0 and is 3\n/,
    );
  });

  test("goes on with another learning rate and another deadline, but not with gradients that are clipped anew", async () => {
    const out = join(folder.path, "calmer");
    const begun = { out, steps: 2, "optimizer.clip": 0 };
    await trainRun({ config: tinyConfig(folder.path, begun), stream: silent, finish: false });
    const clipped = tinyConfig(folder.path, { ...begun, steps: 4, "optimizer.clip": 1 });
    await expect(trainRun({ config: clipped, resume: true, stream: silent })).rejects.toThrow(
      /optimizer\.clip was 0 and is 1\n/,
    );
    const calmer = tinyConfig(folder.path, {
      ...begun,
      steps: 4,
      "optimizer.learningRate": 0.001,
      "optimizer.schedule": "constant",
      "engine.deadline": "300",
    });
    const outcome = await trainRun({ config: calmer, resume: true, stream: silent, finish: false });
    expect(outcome).toMatchObject({ status: "finished", resumedFrom: 2, step: 4 });
    const rates = readMetrics(join(out, "metrics.jsonl")).flatMap(({ learningRate }) => learningRate ?? []);
    expect(rates.map((rate) => Number(rate).toFixed(3))).toEqual(["0.000", "0.010", "0.001", "0.001"]);
  });

  test("whose loss is not a number stops, names step and tensor, and keeps the last good checkpoint", async () => {
    const out = join(folder.path, "diverged");
    const config = tinyConfig(folder.path, {
      out,
      steps: 40,
      checkpointEvery: 1,
      "optimizer.kind": "sgd",
      "optimizer.learningRate": 1e30,
      "optimizer.warmup": 2,
      "optimizer.clip": 0,
    });
    const failure = await trainRun({ config, stream: silent }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(DivergedError);
    const { message, step } = failure as DivergedError;
    expect(message).toMatch(/\[train\] step \d+: the (loss|norm)/);
    expect(message).toContain("the last good checkpoint is");
    const kept = await openCheckpoints(checkpointFolder(out)).latest();
    expect(kept?.step).toBeLessThan(step);
  });
});
