import { afterAll, describe, expect, test } from "vitest";
import { collectiveSpec, handProgram, place } from "../../../test/support/threadsPrograms.js";
import type { GemmStep, Step } from "../../compiler/steps.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { createThreadsEngine } from "./engine.js";

const engine = createThreadsEngine({ numDevices: 2 });
afterAll(() => engine.close());

const n = 256;
const block = tensorType("float32", [n, n]);
const flag = tensorType("int32", [1]);

/** Slot 4 = slot 1 · slot 1. */
const multiply: GemmStep = {
  op: "gemm",
  dtype: "float32",
  a: place(1),
  b: place(1),
  c: place(4),
  m: n,
  n,
  k: n,
  transposeA: false,
  transposeB: false,
  lda: n,
  ldb: n,
  ldc: n,
  alpha: 1,
  beta: 0,
  batch: [],
  info: 0,
};

describe("a collective under way", () => {
  test("does not keep a device from computing while its peers are late", async () => {
    const mesh = { axes: [{ name: "x", size: 2 }] };
    const swap = {
      kind: "permute",
      dtype: "float32",
      axes: ["x"],
      outer: 1,
      inner: n * n,
      permutation: [
        [0, 1],
        [1, 0],
      ],
    } as const;
    // Long enough for the other device to wake up and multiply once, also where products are quick.
    const numLate = 400;
    const late: Step[] = range(numLate).map(() => multiply);
    const program = handProgram("ring", [flag, block], [block, flag], {
      arenaBytes: 4 * n * n,
      slots: [{ kind: "arena", offset: 0 }],
      collectives: [collectiveSpec(mesh, swap, 1, 2)],
      steps: [
        { op: "cond", index: place(0), branches: [[], late], info: 0 },
        { op: "start", collective: 0, info: 0 },
        multiply,
        { op: "done", collective: 0, info: 0 },
      ],
    });
    const run = engine.load(program, { mesh, devices: [0, 1] });
    const isLate = [1, 0].map((value, device) => engine.upload(flag, new Int32Array([value]), device));
    const blocks = range(2).map((device) =>
      engine.upload(block, new Float32Array(n * n).fill(device), device),
    );
    // The first run also loads BLAS and touches memory for the first time.
    run.execute([isLate, blocks]);
    engine.tracer.start();
    const [swapped = []] = run.execute([isLate, blocks]);
    const events = await engine.tracer.stop();
    const find = (device: number, step: number) => {
      const event = events.find((one) => one.device === device && one.step === step);
      if (event === undefined) throw new Error(`device ${device} did not run step ${step}`);
      return event;
    };
    const [start, product, done] = range(3).map((i) => numLate + 1 + i) as [number, number, number];
    expect([start, product, done].map((step) => find(1, step).kind)).toEqual(["start", "gemm", "done"]);
    expect(find(1, product).end).toBeLessThan(find(0, start).begin);
    expect(find(1, done).end).toBeGreaterThan(find(0, start).begin);
    // The punctual device records that it waits until the late one has started.
    const { begin, end, waits } = find(1, done);
    expect(waits.length).toBeGreaterThanOrEqual(1);
    expect(waits[0]?.begin).toBeGreaterThanOrEqual(begin);
    expect(waits[0]?.end).toBeGreaterThanOrEqual(find(0, start).begin);
    expect(waits.at(-1)?.end).toBeLessThanOrEqual(end);
    expect(find(1, product).waits).toEqual([]);
    const results = await Promise.all(swapped.map((buffer) => engine.download(buffer)));
    expect(results.map((result) => at([...result.subarray(0, 1)], 0))).toEqual([1, 0]);
  });
});
