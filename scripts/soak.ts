import { createThreadsEngine } from "../src/engines/threads/engine.js";
import type { DeviceBuffer } from "../src/ir/engine.js";
import { newLiteral, type Var } from "../src/ir/program.js";
import { at, range, tensorType } from "../src/ir/shape.js";
import { buildProgram } from "../test/support/interpreting.js";

/**
 * Trains a small network for `STEPS` (10 000) steps on two devices and fails when memory grows: the process's
 * resident memory, its heap, its handles, or the devices' memory.
 *
 * `node --expose-gc --import ./scripts/typescript.mjs scripts/soak.ts`
 */
const numSteps = Number(process.env.STEPS ?? 10_000);
const numDevices = 2;
const mesh = { axes: [{ name: "data", size: numDevices }] };
const weights = tensorType("float32", [64, 64]);
const batch = tensorType("float32", [32, 64]);
const contract = {
  lhsContract: [1],
  rhsContract: [0],
  lhsBatch: [],
  rhsBatch: [],
  dtype: "float32",
} as const;

/** One step of gradient descent on |tanh(x w) − y|², gradients summed over the devices. */
const step = buildProgram([weights, batch, batch], (emit, w, x, y) => {
  const one = (...args: Parameters<typeof emit>): Var => at(emit(...args), 0);
  const hidden = one("tanh", [one("dotGeneral", [x, w], contract)], {});
  const error = one("sub", [hidden, y], {});
  const slope = one("sub", [newLiteral(1, "float32"), one("mul", [hidden, hidden], {})], {});
  const delta = one("mul", [error, slope], {});
  const gradient = one("dotGeneral", [x, delta], { ...contract, lhsContract: [0] });
  const total = one("psum", [gradient], { axes: mesh.axes });
  const loss = one("psum", [one("reduceSum", [one("mul", [error, error], {})], { dims: [0, 1] })], {
    axes: mesh.axes,
  });
  const next = one("sub", [w, one("mul", [total, newLiteral(1e-3, "float32")], {})], {});
  return [next, loss];
});

const engine = createThreadsEngine({ numDevices });
const train = engine.compile(step, {
  mesh,
  devices: range(numDevices),
  donated: [true, false, false],
  name: "soak",
});
const random = (n: number, seed: number) =>
  Float32Array.from({ length: n }, (_, i) => Math.sin(i * 12.9898 + seed) * 0.5);

interface Sample {
  readonly rss: number;
  readonly heap: number;
  readonly handles: number;
  readonly device: number;
}

function measure(): Sample {
  globalThis.gc?.();
  const { rss, heapUsed } = process.memoryUsage();
  return {
    rss,
    heap: heapUsed,
    handles: process.getActiveResourcesInfo().length,
    device: engine.memoryUsage(0).used,
  };
}

let w: DeviceBuffer[] = range(numDevices).map((device) => engine.upload(weights, random(64 * 64, 1), device));
let baseline: Sample | undefined;
let loss = Number.NaN;
for (let i = 0; i < numSteps; i++) {
  const x = range(numDevices).map((device) => engine.upload(batch, random(32 * 64, i % 10), device));
  const y = range(numDevices).map((device) => engine.upload(batch, random(32 * 64, (i % 10) + 0.5), device));
  const [next = [], losses = []] = train.execute([w, x, y]);
  w = next;
  for (const buffer of [...x, ...y]) engine.release(buffer);
  if (i % 10 === 9) loss = at([...(await engine.download(at(losses, 0)))], 0);
  for (const buffer of losses) engine.release(buffer);
  if (i === Math.floor(numSteps / 5)) baseline = measure();
  if ((i + 1) % Math.ceil(numSteps / 5) === 0) {
    const { rss, heap, handles, device } = measure();
    process.stdout.write(
      `step ${i + 1}: loss ${loss.toFixed(3)}, rss ${(rss / 1e6).toFixed(1)} MB, heap ${(heap / 1e6).toFixed(1)} MB, ${handles} handles, device ${device} bytes\n`,
    );
  }
}
const end = measure();
await engine.close();
if (baseline === undefined) throw new Error("too few steps for a baseline");
const growth = {
  rss: end.rss - baseline.rss,
  heap: end.heap - baseline.heap,
  handles: end.handles - baseline.handles,
  device: end.device - baseline.device,
};
process.stdout.write(`growth since step ${Math.floor(numSteps / 5)}: ${JSON.stringify(growth)}\n`);
if (growth.rss > 8e6 || growth.heap > 2e6 || growth.handles > 2 || growth.device > 0) {
  process.stdout.write("memory grows\n");
  process.exitCode = 1;
}
