import { describe, expect, test } from "vitest";
import { tinyModel } from "../../../test/support/runs.js";
import { devicePut, Mesh, np, random, type Tensor, tree } from "../../index.js";
import { chain, clipByGlobalNorm, momentum } from "../../optim/index.js";
import { ShapeDtypeStruct } from "../../spmd/mesh/shapeDtypeStruct.js";
import { numParameters } from "../config/setup.js";
import { onHost } from "../folder/savedRun.js";
import { toCanonical } from "../models/layerOrder.js";
import { abstractTree } from "../step/abstractTensor.js";
import { createTraining } from "../step/training.js";

const [batch, length] = [8, 8];

const trainings = new Map<string, ReturnType<typeof makeTraining>>();

/** The functions of a mesh, compiled once. */
function trainingOn(axes: Readonly<Record<string, number>>, accumulate?: number) {
  const key = JSON.stringify([axes, accumulate]);
  const known = trainings.get(key) ?? makeTraining(axes, accumulate);
  trainings.set(key, known);
  return known;
}

function makeTraining(axes: Readonly<Record<string, number>>, accumulate?: number) {
  const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...axes });
  return createTraining({
    model: tinyModel,
    // Steps are in proportion to gradients, so that rounding is not magnified.
    optimizer: chain(clipByGlobalNorm(1), momentum({ learningRate: 0.5 })),
    mesh,
    zLoss: 1e-4,
    pipeline: { microbatches: 2, repeats: 1 },
    ...(accumulate === undefined ? {} : { accumulate }),
  });
}

/** Loss, norm and parameters after two steps, layers in their order. */
async function twoSteps(axes: Readonly<Record<string, number>>, accumulate?: number) {
  const training = trainingOn(axes, accumulate);
  let state = training.init(0);
  const numbers: number[] = [];
  for (let i = 0; i < 2; i++) {
    const tokens = random.randint(random.key(i), [batch, length + 1], 0, tinyModel.vocabSize);
    const [next, metrics] = training.step(state, await devicePut(tokens, training.batchSharding));
    state = next;
    numbers.push(await metrics.loss.item(), await metrics.gradientNorm.item());
  }
  const tokens = await devicePut(np.ones([batch, length + 1], "int32"), training.batchSharding);
  numbers.push(await training.evaluate(state, tokens).item());
  const params = tree.leaves(toCanonical(await onHost(state.params), training.layout));
  return { numbers, params: await Promise.all(params.map((leaf) => (leaf as Tensor).data())) };
}

function expectSame(got: ArrayLike<number>, want: ArrayLike<number>, what: string): void {
  expect(got.length).toBe(want.length);
  const largest = Math.max(...Array.from(want, Math.abs));
  const error = Math.max(...Array.from(got, (x, i) => Math.abs(x - (want[i] ?? Number.NaN))));
  expect(error / largest, what).toBeLessThan(3e-6);
}

describe("a batch in parts", () => {
  const whole = twoSteps({});
  test.each([
    [{}, 4],
    [{ data: 2 }, 4],
    [{ fsdp: 2 }, 2],
    [{ model: 2 }, 2],
    [{ pipe: 2 }, 2],
  ])("gives the loss and the updates of the whole one: %o, %i parts", async (axes, accumulate) => {
    const [want, got] = [await whole, await twoSteps(axes, accumulate)];
    got.numbers.forEach((value, i) => {
      expectSame([value], [want.numbers[i] ?? Number.NaN], `number ${i}`);
    });
    got.params.forEach((values, i) => {
      expectSame(Array.from(values, Number), Array.from(want.params[i] ?? [], Number), `parameter ${i}`);
    });
  });

  const costs = (axes: Readonly<Record<string, number>>, accumulate: number) => {
    const training = trainingOn(axes, accumulate);
    const { types } = training;
    return training.cost(abstractTree(types), ShapeDtypeStruct([batch, length + 1], "int32"));
  };

  test("is summed over devices once, and needs less memory", () => {
    const [one, four] = [costs({ data: 2 }, 1), costs({ data: 2 }, 4)];
    const sums = four.bytesMoved({ op: "psum", axis: "data" });
    const bytes = 4 * numParameters(trainingOn({}).types);
    expect(four.bytesMoved()).toBe(sums);
    expect(sums).toBeGreaterThanOrEqual(bytes);
    expect(sums).toBeLessThan(bytes + 64);
    expect(four.peakBytes).toBeLessThan(0.8 * one.peakBytes);
  });

  test("gathers the weights of layers and scatters gradients in every part, so that nobody keeps all of them", () => {
    const [one, two] = [costs({ fsdp: 2 }, 1), costs({ fsdp: 2 }, 2)];
    const bytes = (op: "allGather" | "psumScatter") =>
      [one, two].map((cost) => cost.bytesMoved({ op, axis: "fsdp" }));
    // The table of embeddings is the same for all layers and fits beside what the loop over parts holds anyway, so
    // it is gathered once before that loop; of it each device sends its half.
    const table = (4 * tinyModel.vocabSize * tinyModel.width) / 2;
    const [gathered = 0, gatheredTwice] = bytes("allGather");
    expect(gatheredTwice).toBe(2 * gathered - table);
    const [scattered = 0, scatteredTwice] = bytes("psumScatter");
    expect(scatteredTwice).toBe(2 * scattered);
    expect(two.peakBytes).toBeLessThan(0.8 * one.peakBytes);
    const both = costs({ data: 2, fsdp: 2 }, 2);
    // The shares of gradients are summed over data once: half of the bytes of all.
    expect(both.bytesMoved({ op: "psum", axis: "data" })).toBeLessThan(
      two.bytesMoved({ op: "psumScatter", axis: "fsdp" }) / 2 + 512,
    );
  });
});
