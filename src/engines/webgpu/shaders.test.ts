import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { describeWith, webGpu } from "../../../test/support/optional.js";
import { compileForGpu } from "../../compiler/compileForGpu.js";
import { lax, np, type Tensor } from "../../index.js";
import { bytesOf, tensorType } from "../../ir/shape.js";
import { traceFlat } from "../../trace/builder.js";
import { DeviceFailedError } from "../errors.js";
import { limitLoops } from "../loopLimit.js";
import { type Gpu, openGpu } from "./gpu.js";
import { Machine } from "./gpuMachine.js";
import { MachineProgram } from "./gpuProgram.js";
import { Run } from "./run.js";

const side = tensorType("float32", [16, 16]);

/** A program of one input and one output, ready to run again and again. */
function load(machine: Machine, fn: (x: Tensor) => Tensor): () => Promise<void> | undefined {
  const { program } = traceFlat(([x = np.zeros([])]) => [fn(x)], [side]);
  const loaded = new MachineProgram(
    compileForGpu(program, { mesh: { axes: [] }, attentionSteps: false, name: "tried" }),
    machine,
    [0],
  );
  const inputs = [machine.memory.allocate(bytesOf(side))];
  const outputs = program.outputs.map(({ type }) => machine.memory.allocate(bytesOf(type)));
  return () => new Run([loaded], [{ inputs, outputs }], limitLoops(), 0).start();
}

/** A loop that swaps what it carries, branches, and products. */
const mixed = (x: Tensor): Tensor => {
  const turned = lax.foriLoop(0, 3, (_, y: Tensor) => np.tanh(np.matmul(y, y)), x);
  const isLarge = np.greater(np.sum(turned), 1);
  return lax.cond(
    isLarge,
    (y: Tensor) => np.exp(y),
    (y: Tensor) => np.matmul(y, y).add(1),
    turned,
  );
};

describeWith(webGpu, "shaders", () => {
  let gpu: Gpu;
  let machine: Machine;
  beforeAll(async () => {
    gpu = await openGpu();
    machine = new Machine(gpu, Number.POSITIVE_INFINITY);
  });
  afterEach(() => vi.restoreAllMocks());
  afterAll(() => gpu.device.destroy());

  test("of a program are compiled together before its first run, each once for all programs", async () => {
    const together = vi.spyOn(gpu.device, "createComputePipelineAsync");
    const alone = vi.spyOn(gpu.device, "createComputePipeline");
    const texts = vi.spyOn(gpu.device, "createShaderModule");
    const run = load(machine, mixed);
    const first = run();
    const numShaders = together.mock.calls.length;
    expect(numShaders).toBeGreaterThan(4);
    await first;
    await run();
    await load(machine, mixed)();
    expect(together).toHaveBeenCalledTimes(numShaders);
    expect(alone).not.toHaveBeenCalled();
    expect(new Set(texts.mock.calls.map(([{ code }]) => code)).size).toBe(numShaders);
    expect(machine.failure).toBeUndefined();
  });

  test("find the addresses of an earlier run, which are sent again only where something changes them", async () => {
    // Dawn makes a new object for the queue whenever it is asked for.
    const writes = vi.spyOn(Object.getPrototypeOf(gpu.device.queue), "writeBuffer");
    const numWrites = async (run: () => Promise<void> | undefined) => {
      await run();
      const before = writes.mock.calls.length;
      await run();
      return writes.mock.calls.length - before;
    };
    expect(await numWrites(load(machine, (x) => np.tanh(np.matmul(x, x))))).toBe(0);
    expect(await numWrites(load(machine, mixed))).toBe(1);
  });

  test("that the driver refuses name the ops that they compute and their program", async () => {
    const make = gpu.device.createShaderModule.bind(gpu.device);
    vi.spyOn(gpu.device, "createShaderModule").mockImplementation(({ code, ...rest }) =>
      make({ code: `${code}\nconst wrong: u32 = 1.5;`, ...rest }),
    );
    const spoilt = new Machine(gpu, Number.POSITIVE_INFINITY);
    const run = load(spoilt, (x) => np.cos(x));
    await expect(run()).rejects.toThrow(/shader of .*cos.* in program "tried" is refused: .*wrong/s);
    expect(spoilt.failure).toBeInstanceOf(DeviceFailedError);
  });
});
