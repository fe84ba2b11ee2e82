import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { devicePut, jit, Mesh, NamedSharding, np, P, type Tensor, tree, valueAndGrad } from "shardwise";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { nodeProgram } from "../../../test/support/built.js";
import { withoutChoices } from "../../../test/support/environment.js";
import { silent, tinyConfig, writeText } from "../../../test/support/runs.js";
import { createReferenceEngine, createThreadsEngine } from "../../engines/index.js";
import { adamw, applyUpdates, chain, clipByGlobalNorm, warmupCosine } from "../../optim/index.js";
import { type Batch, openBatches } from "../data/batches/batches.js";
import { tokensInMemory } from "../data/tokens/tokens.js";
import { openCheckpoint, openCheckpoints } from "../files/checkpoints/checkpoint.js";
import { trainRun } from "./trainRun.js";

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "shardwise-resume-"));
});
afterEach(() => rm(root, { recursive: true, force: true }));

const source = tokensInMemory(
  Int32Array.from({ length: 400 }, (_, i) => (i * i + 3 * i) % 16),
  16,
);
const options = { sequenceLength: 8, batchSize: 4, seed: 1 };

interface Params {
  readonly embedding: Tensor;
  readonly head: Tensor;
}

const schedule = warmupCosine({ peak: 0.05, warmupSteps: 3, steps: 12 });
const optimizer = chain(clipByGlobalNorm(1), adamw({ learningRate: schedule }));

function loss({ embedding, head }: Params, inputs: Tensor, targets: Tensor): Tensor {
  const logits = embedding.take(inputs, 0).tanh().matmul(head);
  const peak = logits.max(-1, { keepdims: true });
  const all = logits.sub(peak).exp().sum(-1).log().add(peak.squeeze(-1));
  return all.sub(np.takeAlongAxis(logits, targets.expandDims(-1), -1).squeeze(-1)).mean();
}

const initial = () => {
  const params: Params = {
    embedding: np.sin(np.arange(128)).reshape(16, 8),
    head: np.cos(np.arange(128)).reshape(8, 16),
  };
  return { params, optimizer: optimizer.init(params) };
};
type State = ReturnType<typeof initial>;

const train = jit(
  (state: State, inputs: Tensor, targets: Tensor) => {
    const [value, grads] = valueAndGrad(loss)(state.params, inputs, targets);
    const [updates, next] = optimizer.update(grads, state.optimizer, state.params);
    return [{ params: applyUpdates(state.params, updates), optimizer: next }, value] as const;
  },
  { donate: 0 },
);

const bitsOf = (values: unknown) =>
  Promise.all(tree.leaves(values).map((leaf) => (leaf as Tensor).storage("test").download("test")));

const step = async (state: State, { inputs, targets, shape }: Batch, mesh: Mesh) => {
  const rows = new NamedSharding(mesh, P("data"));
  const [x, y] = await devicePut([np.array(inputs).reshape(shape), np.array(targets).reshape(shape)], rows);
  if (!x || !y) throw new Error("no batch");
  const [next, value] = train(state, x, y);
  return { state: next, loss: await value.item() };
};

describe.each(["reference", "threads"])("a run on the %s engine", (kind) => {
  test("that is taken up from a checkpoint goes on bit for bit as the one that was not stopped", async () => {
    const engine = kind === "threads" ? createThreadsEngine({ numDevices: 2 }) : createReferenceEngine();
    try {
      const mesh = Mesh.create({ data: 2 }, { engine });
      const everywhere = new NamedSharding(mesh, P());
      const checkpoints = openCheckpoints(root, { keep: 20 });
      const batches = openBatches(source, options);
      let state = await devicePut(initial(), everywhere);
      const losses: number[] = [];
      for (let i = 1; i <= 10; i++) {
        const done = await step(state, await batches.next(), mesh);
        state = done.state;
        losses.push(done.loss);
        await checkpoints.save(i, state, { data: batches.position() });
      }
      await checkpoints.finished();
      const expected = await bitsOf(state);
      expect(losses[9]).toBeLessThan((losses[0] ?? 0) * 0.98);
      for (const stopped of [1, 4, 9]) {
        const checkpoint = await checkpoints.load(stopped);
        let resumed = await checkpoint.restore(initial(), { shardings: everywhere });
        const rest = openBatches(source, { ...options, position: checkpoint.manifest.data });
        const again: number[] = [];
        for (let i = stopped; i < 10; i++) {
          const done = await step(resumed, await rest.next(), mesh);
          resumed = done.state;
          again.push(done.loss);
        }
        expect(again).toEqual(losses.slice(stopped));
        expect(await bitsOf(resumed)).toEqual(expected);
      }
    } finally {
      await engine.close();
    }
  });
});

test("a run on worker threads goes on with the same bits, whatever is split", async () => {
  writeText(root);
  const hashes = async (checkpoint: string) =>
    (await openCheckpoint(checkpoint)).manifest.files.map(({ sha256 }) => sha256);
  const engine = createThreadsEngine({ numDevices: 2, memoryBytes: 2 ** 26 });
  try {
    // Interrupted processes (src/cli/reliability.test.ts) split parameters.
    for (const axis of process.env.CASES === "all" ? ["fsdp", "pipe"] : ["pipe"]) {
      const name = (part: string) => join(root, `${part}-${axis}`);
      const settings = { [`mesh.${axis}`]: 2, steps: 4 };
      const options = { engine, stream: silent, finish: false };
      const whole = tinyConfig(root, { ...settings, out: name("whole") });
      const expected = await trainRun({ ...options, config: whole });
      const config = tinyConfig(root, { ...settings, out: name("parts") });
      const stop = new AbortController();
      const onStep = () => stop.abort();
      const first = await trainRun({ ...options, config, signal: stop.signal, onStep });
      expect(first).toMatchObject({ status: "stopped", step: 2 });
      const second = await trainRun({ ...options, config, resume: true });
      expect(await hashes(second.checkpoint)).toEqual(await hashes(expected.checkpoint));
    }
  } finally {
    await engine.close();
  }
}, 120_000);

describe("a process that is killed while it saves", () => {
  const killedAt = (change: number, folder: string) =>
    new Promise<string | null>((resolve) => {
      const program = nodeProgram("test/fixtures/checkpointProcess.ts");
      const child = spawn(process.execPath, [...program, folder, String(change)], {
        env: withoutChoices,
        stdio: "ignore",
      });
      child.on("close", (_code, signal) => resolve(signal));
    });

  test.each([8, 9, 11])(
    "leaves a whole checkpoint (change %i)",
    async (change) => {
      expect(await killedAt(change, root)).toBe("SIGKILL");
      const found = await openCheckpoints(root).latest();
      if (!found) throw new Error("no checkpoint is left");
      const { x } = await (await openCheckpoint(found.folder)).restoreTree<{ x: Tensor }>();
      expect([...(await x.data())]).toEqual(Array.from({ length: 1000 }, () => found.step));
    },
    60_000,
  );
});
