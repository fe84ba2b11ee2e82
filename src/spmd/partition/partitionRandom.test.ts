import fc from "fast-check";
import { describe, test } from "vitest";
import {
  expectSharded,
  meshes,
  randomInputs,
  randomSpec,
  randomSteps,
  type Step,
  stepNames,
  stepsFunction,
} from "../../../test/support/shardedPrograms.js";
import { randomNumbers } from "../../../test/support/vmapChecks.js";
import { grad } from "../../index.js";
import type { Program } from "../../ir/program.js";
import { at, range, sizeOf } from "../../ir/shape.js";
import { traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";

/** Another seed tries other programs: `SEED=7 RUNS=1000 npx vitest run src/spmd/partition/partitionRandom.test.ts`. */
const seed = Number(process.env.SEED ?? 1);
const numRuns = Number(process.env.RUNS ?? 40);

const shapes = [[4, 6], [8], [2, 4, 6], [12, 2]] as const;

interface Setting {
  readonly meshIndex: number;
  readonly shapeIndex: number;
  readonly number: number;
}

const setting = fc.record({
  meshIndex: fc.nat(meshes.length - 1),
  shapeIndex: fc.nat(shapes.length - 1),
  number: fc.nat(10_000),
});

/** Partitions the program of some steps under random fixed specs and compares it with the whole one. */
function check(
  { meshIndex, shapeIndex, number }: Setting,
  fn: (mesh: (typeof meshes)[number]) => (x: Tensor, y: Tensor) => readonly Tensor[],
): Program {
  const mesh = at(meshes, meshIndex);
  const shape = at(shapes, shapeIndex);
  const types = range(2).map(() => ({ dtype: "float64", shape }) as const);
  const { program } = traceFlat(([x, y]) => (x && y ? fn(mesh)(x, y) : []), types);
  const random = randomNumbers(number + 3);
  const maybe = (list: readonly { readonly type: { readonly shape: readonly number[] } }[]) =>
    list.map(({ type }) => (random() < 0.6 ? randomSpec(type.shape, mesh, random) : undefined));
  const fixed = {
    inSpecs: maybe(program.inputs),
    outSpecs: maybe(program.outputs),
    overlap: random() < 0.5 ? mesh.axes.map(({ name }) => name) : [],
  };
  return expectSharded(program, mesh, fixed, randomInputs(types, number)).program;
}

const gradientOf = (list: readonly Step[]) => (mesh: (typeof meshes)[number]) => (x: Tensor, y: Tensor) =>
  grad(
    (a: Tensor, b: Tensor) => {
      const outs = stepsFunction(list, mesh)(a, b).map((out) => ops.sin(out));
      return outs
        .map((out) => ops.mul(ops.reduceSum(out, range(out.ndim)), 1 / sizeOf(out.shape)))
        .reduce(ops.add);
    },
    { argnums: [0, 1] },
  )(x, y);

describe(`random programs on random meshes with random annotations (seed ${seed})`, () => {
  test.each(stepNames)("%s gives the same sharded as whole", (name) => {
    const property = fc.property(
      setting,
      fc.nat(10_000),
      fc.boolean(),
      fc.constantFrom(1, 0),
      (where, own, constrained, right) => {
        const list = [{ name, left: 0, right, seed: own, constrained }];
        check(where, (mesh) => stepsFunction(list, mesh));
      },
    );
    fc.assert(property, { seed, numRuns: Math.ceil(numRuns / 4) });
  });

  test("programs of several steps give the same sharded as whole", () => {
    const property = fc.property(setting, randomSteps, (where, list) => {
      check(where, (mesh) => stepsFunction(list, mesh));
    });
    fc.assert(property, { seed, numRuns });
  });

  test("gradients of programs of several steps are the same sharded as whole", () => {
    const property = fc.property(setting, randomSteps, (where, list) => {
      check(where, gradientOf(list));
    });
    fc.assert(property, { seed, numRuns });
  });
});
