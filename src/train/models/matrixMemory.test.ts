/** The matrix memory in chunks, and along mesh axis `context`, is that of the recurrence. */
import { describe, expect, test } from "vitest";
import { expectClose, expectTreeClose } from "../../../test/support/goldens.js";
import { tinyModel } from "../../../test/support/runs.js";
import { jit, Mesh, np, random, type Tensor, valueAndGrad, withMesh } from "../../index.js";
import { type MemoryInputs, memoryFor } from "./matrixMemory.js";

type Tensors = Omit<MemoryInputs, "startExponent">;

/** Sums of weights near 0 make results sensitive to rounding, so they are compared in float64. */
const tolerance = { rtol: 1e-9, atol: 1e-9 };

/** Inputs whose gates open and close. */
function inputsOf(batch: number, heads: number, length: number, keySize = 3, valueSize = 2): Tensors {
  const draw = (seed: number, ...rest: number[]) =>
    random.normal(random.key(seed), [batch, heads, length, ...rest]).astype("float64");
  return {
    query: draw(1, keySize),
    key: draw(2, keySize),
    value: draw(3, valueSize),
    inputGate: draw(4).mul(3),
    forgetGate: draw(5).mul(2).add(1),
  };
}

/** One position after the other, as numbers. */
async function recurrence(inputs: Tensors, startExponent = -1e30): Promise<number[][][][]> {
  const read = async (x: Tensor) => (await x.js()) as number[][][][];
  const [query, key, value] = await Promise.all([inputs.query, inputs.key, inputs.value].map(read));
  const gates = await Promise.all([inputs.inputGate, inputs.forgetGate].map((x) => x.js()));
  const [inputGate, forgetGate] = gates as number[][][][];
  return (query ?? []).map((ofRow, row) =>
    ofRow.map((ofHead, head) => {
      const size = ofHead[0]?.length ?? 1;
      const values = value?.[row]?.[head] ?? [];
      let exponent = startExponent;
      let matrix = Array.from({ length: size }, () => (values[0] ?? []).map(() => 0));
      let total = Array.from({ length: size }, () => 0);
      return ofHead.map((q, t) => {
        const gate = inputGate?.[row]?.[head]?.[t] ?? 0;
        const faded = exponent - Math.log1p(Math.exp(-(forgetGate?.[row]?.[head]?.[t] ?? 0)));
        const next = Math.max(faded, gate);
        const k = (key?.[row]?.[head]?.[t] ?? []).map((x) => (x * Math.exp(gate - next)) / Math.sqrt(size));
        const fade = Math.exp(faded - next);
        matrix = matrix.map((r, i) => r.map((x, j) => x * fade + (k[i] ?? 0) * (values[t]?.[j] ?? 0)));
        total = total.map((x, i) => x * fade + (k[i] ?? 0));
        exponent = next;
        const seen = Math.abs(q.reduce((sum, x, i) => sum + x * (total[i] ?? 0), 0));
        const divisor = Math.max(seen, Math.exp(-next)) + 1e-6;
        return (values[t] ?? []).map(
          (_, j) => q.reduce((sum, x, i) => sum + x * (matrix[i]?.[j] ?? 0), 0) / divisor,
        );
      });
    }),
  );
}

const whole = memoryFor(tinyModel);
const split = memoryFor({ ...tinyModel, context: { exchange: "ring", placement: "contiguous" } });

test.each([
  [7, undefined],
  [512, undefined],
  [520, 0],
  [521, 0],
])("%i positions, with a start of %s, are those of the recurrence", async (length, startExponent) => {
  const inputs = inputsOf(1, 2, length);
  const given = whole({ ...inputs, ...(startExponent !== undefined && { startExponent }) });
  await expectClose(given, np.array(await recurrence(inputs, startExponent), "float64"), tolerance);
});

test.each([undefined, 0])(
  "documents, with a start of %s, have a memory of their own, also across chunks",
  async (startExponent) => {
    const length = 520;
    const inputs = inputsOf(1, 2, length);
    const starts = [0, 3, 200, 259, 260, 261, 500];
    const isStart = np.array([[0, 1].map(() => Array.from({ length }, (_, i) => starts.includes(i)))]);
    const given = whole({ ...inputs, isStart, ...(startExponent !== undefined && { startExponent }) });
    const cut = (from: number, to: number) =>
      Object.fromEntries(Object.entries(inputs).map(([name, x]) => [name, x.get(":", ":", np.s(from, to))]));
    const alone = await Promise.all(
      starts.map((from, i) => recurrence(cut(from, starts[i + 1] ?? length) as never, startExponent)),
    );
    const wanted = np.concatenate(
      alone.map((one) => np.array(one, "float64")),
      2,
    );
    await expectClose(given, wanted, tolerance);
  },
);

describe("along context", () => {
  const meshes = [{ context: 2 }, { context: 4 }, { context: 8 }, { data: 2, context: 2, model: 2 }];
  const starts = [undefined, 0];
  const cases = meshes.flatMap((mesh) => starts.map((start) => [mesh, start] as const));

  test.for(cases)("%j, with a start of %s, as on one device, with all gradients", async ([axes, start]) => {
    const mesh = Mesh.create(axes);
    const inputs = inputsOf(2, 2, 24);
    const loss = (memory: typeof whole) => (own: Tensors) =>
      np.sum(np.sin(memory({ ...own, ...(start !== undefined && { startExponent: start }) })));
    const given = withMesh(mesh, () =>
      jit((own: Tensors) => valueAndGrad(loss(split))(own), { mesh })(inputs),
    );
    await expectTreeClose(given, valueAndGrad(loss(whole))(inputs), tolerance);
  });

  test("several chunks on every device", async () => {
    const mesh = Mesh.create({ context: 2 });
    const inputs = inputsOf(1, 1, 1024);
    const given = withMesh(mesh, () => jit((own: Tensors) => split(own), { mesh })(inputs));
    await expectClose(given, np.array(await recurrence(inputs), "float64"), tolerance);
  });

  test("a length that does not divide is named", () => {
    const mesh = Mesh.create({ context: 4 });
    expect(() => withMesh(mesh, () => split(inputsOf(1, 1, 6)))).toThrow(
      '[matrixMemory] 6 tokens do not split over axis "context" (6 / 4 = 1.5): use a multiple of 4',
    );
  });
});
