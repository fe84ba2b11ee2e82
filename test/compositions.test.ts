import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type HostTensor, hostTensor, numbersOf } from "../src/engines/reference/hostTensor.js";
import { interpret } from "../src/engines/reference/interpret.js";
import { makeProgram, simplify, Tensor, verify } from "../src/index.js";
import type { Program } from "../src/ir/program.js";
import { at } from "../src/ir/shape.js";
import { expectNumericGradients } from "./support/gradientChecks.js";
import { expectNear } from "./support/near.js";
import {
  around,
  bodyFunction,
  type Fn,
  layers,
  plainly,
  randomBody,
  randomLayers,
  shape,
} from "./support/randomFunctions.js";
import { randomNumbers } from "./support/vmapChecks.js";

/** Another seed tries other functions: `SEED=7 npx vitest run test/compositions.test.ts`. */
const seed = Number(process.env.SEED ?? 1);
const numRuns = Number(process.env.RUNS ?? 60);

const type = { dtype: "float64", shape } as const;

/** Two inputs that are the same for the same number. */
function inputs(number: number): [HostTensor, HostTensor] {
  const random = randomNumbers(number + 1);
  const draw = () =>
    hostTensor(
      "float64",
      shape,
      Array.from({ length: 4 }, () => random() * 2 - 1),
    );
  return [draw(), draw()];
}

/** The program of a function of two tensors, well formed. */
function programOf(fn: Fn): Program {
  const zeros = Tensor.fromHost(type, new Float64Array(4));
  return verify(makeProgram(fn)(zeros, zeros));
}

function valuesOf(program: Program, ins: readonly HostTensor[]): number[] {
  return numbersOf(at(interpret(program, ins), 0));
}

const expectClose = (actual: readonly number[], expected: readonly number[]): void =>
  expectNear(actual, expected, 1e-9);

describe(`random functions under random transforms (seed ${seed})`, () => {
  test.each(Object.keys(layers))("%s changes no values of a function", (name) => {
    const property = fc.property(randomBody, fc.nat(1000), (body, number) => {
      const f = bodyFunction(body);
      const ins = inputs(number);
      expectClose(valuesOf(programOf(around(f, [name])), ins), valuesOf(programOf(plainly(f, [name])), ins));
    });
    fc.assert(property, { seed, numRuns: 10 });
  });

  test("compositions of transforms have the values of plain functions", () => {
    const property = fc.property(randomBody, randomLayers, fc.nat(1000), (body, names, number) => {
      const f = bodyFunction(body);
      const ins = inputs(number);
      expectClose(valuesOf(programOf(around(f, names)), ins), valuesOf(programOf(plainly(f, names)), ins));
    });
    fc.assert(property, { seed, numRuns });
  });

  test("compositions of transforms have gradients that agree with central differences", () => {
    const property = fc.property(randomBody, randomLayers, fc.nat(1000), (body, names, number) => {
      const program = simplify(programOf(around(bodyFunction(body), names)));
      const ins = inputs(number).map((x) => [x]);
      expectNumericGradients(verify(program), { axes: [] }, ins, randomNumbers(number));
    });
    fc.assert(property, { seed, numRuns });
  });

  test("simplify keeps every result to the last bit", () => {
    const property = fc.property(randomBody, randomLayers, fc.nat(1000), (body, names, number) => {
      const program = programOf(around(bodyFunction(body), names));
      const simple = verify(simplify(program));
      const ins = inputs(number);
      expect(valuesOf(simple, ins)).toEqual(valuesOf(program, ins));
      expect(simple.eqns.length).toBeLessThanOrEqual(program.eqns.length);
    });
    fc.assert(property, { seed, numRuns });
  });
});
