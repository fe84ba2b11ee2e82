/** What goes wrong on a GPU, each with the error that a user sees, and how exactly it multiplies. */
import { OutOfMemoryError } from "../../src/engines/errors.js";
import { XlaError } from "../../src/engines/xla/errors.js";
import { createXlaEngine, type XlaEngineOptions } from "../../src/engines/xla/openXla.js";
import { devicePut, jit, Mesh, NamedSharding, np, P, type Tensor } from "../../src/index.js";

/** Runs a function of one tensor of ones on a new engine and gives its first element. */
async function first(fn: (x: Tensor) => Tensor, options: XlaEngineOptions = {}, value = 1): Promise<number> {
  const engine = createXlaEngine({ cache: false, ...options });
  const mesh = Mesh.create({ data: 1 }, { engine });
  const x = await devicePut(np.full([64, 64], value), new NamedSharding(mesh, P()));
  const data = await jit(fn, { mesh })(x).data();
  await engine.close();
  return Number(data[0]);
}

/** More than any GPU has: 1.2 TiB, in a form that XLA cannot leave out. */
const huge = (x: Tensor) => np.broadcastTo(x.reshape([4096, 1]), [4096, 2 ** 26]).sort(1);

const fails = async (work: Promise<unknown>, kind: abstract new (...args: never[]) => Error) => {
  const error = await work.then(
    () => new Error("nothing went wrong"),
    (reason: unknown) => reason,
  );
  if (!(error instanceof kind)) throw error;
  return error.message.slice(0, 160);
};

const exact = 64 * (1 + 2 ** -12) ** 2;
const product = async (options: np.ProductOptions, engine: XlaEngineOptions = {}) => {
  const got = await first((x) => np.matmul(x, x, options), engine, 1 + 2 ** -12);
  return Math.abs(got - exact) / exact;
};

const checks: Readonly<Record<string, () => Promise<string>>> = {
  "no memory for a run": () => fails(first(huge), OutOfMemoryError),
  "goes on after it": async () => String(await first((x) => x.add(1))),
  "a setting that XLA does not have": () =>
    fails(
      first((x) => x.add(1), { flags: { xla_no_such_flag: 1 } }),
      XlaError,
    ),
  "float32 is float32": async () => {
    const error = await product({});
    if (error > 1e-6) throw new Error(`relative error ${error}`);
    return `relative error ${error}`;
  },
  "TF32 where it is asked for": async () => {
    const errors = [await product({ precision: "default" }), await product({}, { products: "tf32" })];
    if (errors.some((error) => error < 1e-6)) throw new Error(`no rounding: ${errors}`);
    return `relative errors ${errors}`;
  },
};

/** Tries everything. */
export async function runFaults(print: (line: string) => void): Promise<{ passed: number; failed: number }> {
  const count = { passed: 0, failed: 0 };
  for (const [name, check] of Object.entries(checks)) {
    try {
      print(`ok   ${name}: ${await check()}`);
      count.passed++;
    } catch (error) {
      print(
        `FAIL ${name}: ${error instanceof Error ? `${error.name}: ${error.message.slice(0, 300)}` : error}`,
      );
      count.failed++;
    }
  }
  return count;
}
