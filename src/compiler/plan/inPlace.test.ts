import { describe, expect, test } from "vitest";
import { findDifference, randomInputs } from "../../../test/compiler/differential.js";
import { randomStacks } from "../../../test/compiler/randomStacks.js";
import { buildProgram, type Emit } from "../../../test/support/interpreting.js";
import { newLiteral, type Program, type Var } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { compileProgram } from "../compile.js";
import { forEachStep } from "../stepTree.js";

const mesh = { axes: [] };
const [stack, slice] = [tensorType("float32", [3, 4, 2]), tensorType("float32", [4, 2])];
const row = tensorType("float32", [1, 2]);
const zero = newLiteral(0, "int32");

/** A loop over stacks; `body` returns the slices of its results. */
function scan(
  emit: Emit,
  xs: readonly Var[],
  body: (inner: Emit, ...slices: Var[]) => readonly Var[],
  { consts = [], reverse = false }: { readonly consts?: readonly Var[]; readonly reverse?: boolean } = {},
): Var[] {
  const types = [
    ...consts.map(({ type }) => type),
    ...xs.map(({ type }) => tensorType("float32", type.shape.slice(1))),
  ];
  const length = at(at(xs, 0).type.shape, 0);
  const params = { body: buildProgram(types, body), length, reverse, numConsts: consts.length, numCarry: 0 };
  return emit("scan", [...consts, ...xs], params);
}

/** The slice with its first row replaced by its last. */
function update(inner: Emit, x: Var): Var {
  const last = at(inner("dynamicSlice", [x, newLiteral(3, "int32"), zero], { sizes: [1, 2] }), 0);
  const copied = at(inner("mul", [last, newLiteral(2, "float32")], {}), 0);
  return at(inner("dynamicUpdateSlice", [x, copied, zero, zero], {}), 0);
}

/** Which output takes the memory of which input, and how many copies of slices there are; all values are right. */
function compiled(program: Program, donated = program.inputs.map(() => true)) {
  const difference = findDifference(program, randomInputs(program, mesh, 1), { mesh, donated });
  expect(difference).toBeUndefined();
  const { outputs, steps } = compileProgram(program, { mesh, donated });
  let copies = 0;
  forEachStep(steps, (step) => {
    if (step.op === "copy" && step.bytes === 32) copies++;
  });
  return { donors: outputs.map(({ inputIndex }) => inputIndex), copies };
}

const nowhere = [undefined];

describe("a loop over a stack that is not needed afterwards", () => {
  test.each([false, true])("updates its slices in place, reverse: %s", (reverse) => {
    const program = buildProgram([stack], (emit, x) =>
      scan(emit, [x], (inner, own) => [update(inner, own)], { reverse }),
    );
    expect(compiled(program)).toEqual({ donors: [0], copies: 0 });
    expect(compiled(program, [false])).toEqual({ donors: nowhere, copies: 1 });
  });

  test("works in place on what another loop has computed", () => {
    const program = buildProgram([stack], (emit, x) => {
      const doubled = scan(emit, [x], (inner, own) => inner("add", [own, own], {}));
      return scan(emit, doubled, (inner, own) => [update(inner, own)]);
    });
    expect(compiled(program, [false])).toEqual({ donors: nowhere, copies: 0 });
  });

  test("replaces each of several stacks by a different one", () => {
    const program = buildProgram([stack, stack], (emit, x, y) =>
      scan(emit, [x, y], (inner, a, b) => [update(inner, b), update(inner, a)]),
    );
    expect(compiled(program)).toEqual({ donors: [1, 0], copies: 0 });
  });

  test("is not copied by loops inside it, which replace rows", () => {
    const program = buildProgram([stack], (emit, x) =>
      scan(emit, [x], (inner, own) => scan(inner, [own], (deep, one) => deep("add", [one, one], {}))),
    );
    expect(compiled(program)).toEqual({ donors: [0], copies: 0 });
  });

  test("is carried on in place where a loop around it does nothing else with it", () => {
    const body = buildProgram([stack], (inner, x) => scan(inner, [x], (deep, own) => [update(deep, own)]));
    const program = buildProgram([stack], (emit, x) =>
      emit("scan", [x], { body, length: 2, reverse: false, numConsts: 0, numCarry: 1 }),
    );
    expect(compiled(program).copies).toBe(0);
  });
});

describe("a loop over a stack copies slices", () => {
  const alone = { donors: nowhere, copies: 1 };

  test("if the stack is read afterwards, or is a result itself", () => {
    const later = buildProgram([stack], (emit, x) => {
      const [y] = scan(emit, [x], (inner, own) => [update(inner, own)]);
      return emit("sub", [x, y as Var], {});
    });
    expect(compiled(later).copies).toBe(1);
    const both = buildProgram([stack], (emit, x) => [
      ...scan(emit, [x], (inner, own) => [update(inner, own)]),
      x,
    ]);
    expect(compiled(both)).toEqual({ donors: [undefined, 0], copies: 1 });
  });

  test("if iterations see the stack twice, or as a whole", () => {
    const twice = buildProgram([stack], (emit, x) =>
      scan(emit, [x, x], (inner, a, b) => inner("add", [update(inner, a), b], {})),
    );
    expect(compiled(twice).donors).toEqual(nowhere);
    const whole = buildProgram([stack], (emit, x) =>
      scan(
        emit,
        [x],
        (inner, all, own) => {
          const first = inner("dynamicSlice", [all, zero, zero, zero], { sizes: [1, 4, 2] });
          const other = at(inner("reshape", [at(first, 0)], { shape: [4, 2] }), 0);
          return inner("add", [own, other], {});
        },
        { consts: [x] },
      ),
    );
    expect(compiled(whole).donors).toEqual(nowhere);
  });

  test("if an iteration reads its slice after it has begun to write the result", () => {
    const program = buildProgram([stack], (emit, x) => {
      const [y, z] = scan(emit, [x], (inner, own) => [update(inner, own), own]);
      return [y as Var, z as Var];
    });
    // The slice that stays is the one that takes the place.
    expect(compiled(program)).toEqual({ donors: [undefined, 0], copies: 1 });
  });

  test("if the order of the slices differs", () => {
    const program = buildProgram([stack], (emit, x) => {
      const turned = at(emit("reverse", [x], { dims: [0] }), 0);
      return scan(emit, [turned], (inner, own) => [update(inner, own)]);
    });
    expect(compiled(program)).toEqual(alone);
  });

  test("if a loop around it needs the stack again", () => {
    const body = buildProgram([stack, slice], (inner, all, sum) => {
      const [y] = scan(inner, [all], (deep, own) => [update(deep, own)]);
      const added = at(inner("reduceSum", [y as Var], { dims: [0] }), 0);
      return inner("add", [sum, added], {});
    });
    const program = buildProgram([stack, slice], (emit, x, sum) =>
      emit("scan", [x, sum], { body, length: 2, reverse: false, numConsts: 1, numCarry: 1 }),
    );
    expect(compiled(program).copies).toBe(1);
  });
});

test("a kernel does not overwrite a value of which it also reads a block", () => {
  const program = buildProgram([slice, slice], (emit, x, y) => {
    const sum = at(emit("concatenate", [x, y], { dim: 0 }), 0);
    const block = at(emit("dynamicSlice", [sum, newLiteral(1, "int32"), zero], { sizes: row.shape }), 0);
    const everywhere = at(emit("broadcastInDim", [block], { shape: [8, 2], dims: [0, 1] }), 0);
    return emit("add", [sum, everywhere], {});
  });
  compiled(program);
});

test("random loops over stacks compute what the reference engine does, and many work in place", () => {
  const count = Number(process.env.FUZZ_PROGRAMS ?? 150);
  let inPlace = 0;
  for (const seed of range(count)) {
    const program = randomStacks(seed);
    const donated = program.inputs.map((_, i) => (seed + i) % 4 !== 0);
    const difference = findDifference(program, randomInputs(program, mesh, seed), { mesh, donated });
    expect(difference, `seed ${seed}`).toBeUndefined();
    const { outputs } = compileProgram(program, { mesh, donated });
    if (outputs.some(({ inputIndex }) => inputIndex !== undefined)) inPlace++;
  }
  expect(inPlace).toBeGreaterThan(count / 3);
}, 600_000);
