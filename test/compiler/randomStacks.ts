import { type Atom, newLiteral, type Program, type Var } from "../../src/ir/program.js";
import { at, range, tensorType } from "../../src/ir/shape.js";
import { buildProgram, type Emit } from "../support/interpreting.js";
import { Random } from "./randomProgram.js";

/** Types of a stack, of its slices, and of a slice's rows. All have the same bytes, so that any could take any place. */
const stack = tensorType("float32", [3, 4, 2]);
const slice = tensorType("float32", [4, 2]);
const row = tensorType("float32", [2]);
const indices = tensorType("int32", [2]);

/**
 * A random program of loops over stacks, which return stacks of the same size: some could replace their operands, and
 * others must not, because something reads the operand afterwards, or an iteration reads the slices of others.
 */
export function randomStacks(seed: number): Program {
  const random = new Random(seed);
  return buildProgram([stack, stack, stack, slice, indices], (emit, a, b, c, carry, places) => {
    const stacks = [a, b, c];
    const outputs: Var[] = [];
    for (let i = 0; i <= random.below(3); i++) {
      if (random.chance(0.3)) stacks.push(changed(emit, random.pick(stacks), random));
      const [, ...ys] = loop(emit, random, stacks, carry, places);
      stacks.push(...ys);
      outputs.push(...ys.filter(() => random.chance(0.8)));
    }
    return outputs.length > 0 ? outputs : stacks.slice(-1);
  });
}

/** A stack in memory of its own, or a view of one. */
function changed(emit: Emit, x: Var, random: Random): Var {
  const result =
    random.below(3) === 0
      ? emit("reverse", [x], { dims: random.chance(0.5) ? [0] : [1] })
      : emit("mul", [x, newLiteral(0.5, "float32")], {});
  return at(result, 0);
}

function loop(emit: Emit, random: Random, stacks: readonly Var[], carry: Var, places: Var): Var[] {
  const xs = range(1 + random.below(3)).map(() => random.pick(stacks));
  const consts = [places, random.pick(stacks)];
  const types = [...consts.map(({ type }) => type), slice, ...xs.map(() => slice)];
  const body = buildProgram(types, (inner, own, whole, current, ...slices) => {
    const values = [current, ...slices];
    for (let i = 0; i < 2 + random.below(5); i++)
      values.push(step(inner, random, values, own as Var, whole as Var));
    const ys = range(1 + random.below(2)).map(() => random.pick(values));
    return [random.pick(values), ...ys] as Var[];
  });
  const params = { body, length: 3, reverse: random.chance(0.4), numConsts: 2, numCarry: 1 };
  return emit("scan", [...consts, carry, ...xs], params);
}

function step(
  emit: Emit,
  random: Random,
  values: readonly (Var | undefined)[],
  places: Var,
  whole: Var,
): Var {
  const pick = () => random.pick(values) as Var;
  const index = (): Atom => newLiteral(random.below(4), "int32");
  const zero = newLiteral(0, "int32");
  switch (random.below(9)) {
    case 0: {
      const update = at(emit("dynamicSlice", [pick(), index(), zero], { sizes: [1, 2] }), 0);
      return at(emit("dynamicUpdateSlice", [pick(), update, index(), zero], {}), 0);
    }
    case 1: {
      const updates = at(emit("slice", [pick()], { starts: [0, 0], limits: [2, 2], strides: [1, 1] }), 0);
      const combine = random.chance(0.5) ? "set" : "add";
      return at(emit("scatter", [pick(), places, updates], { dim: 0, batchDims: 0, combine }), 0);
    }
    case 2: {
      const block = at(emit("dynamicSlice", [pick(), index(), zero], { sizes: [1, 2] }), 0);
      const everywhere = at(emit("broadcastInDim", [block], { shape: [4, 2], dims: [0, 1] }), 0);
      return at(emit("add", [pick(), everywhere], {}), 0);
    }
    case 3: {
      const block = emit("dynamicSlice", [whole, index(), zero, zero], { sizes: [1, 4, 2] });
      const other = at(emit("reshape", [at(block, 0)], { shape: [4, 2] }), 0);
      return at(emit("sub", [pick(), other], {}), 0);
    }
    case 4: {
      const square = {
        lhsContract: [1],
        rhsContract: [1],
        lhsBatch: [],
        rhsBatch: [],
        dtype: "float32",
      } as const;
      const product = at(emit("dotGeneral", [pick(), pick()], square), 0);
      const part = at(emit("slice", [product], { starts: [0, 1], limits: [4, 3], strides: [1, 1] }), 0);
      return at(
        emit(
          "max",
          [at(emit("min", [part, newLiteral(8, "float32")], {}), 0), newLiteral(-8, "float32")],
          {},
        ),
        0,
      );
    }
    case 5: {
      const turned = at(emit("reverse", [pick()], { dims: [0] }), 0);
      return at(emit("max", [pick(), turned], {}), 0);
    }
    case 6:
      return rows(emit, random, pick(), pick());
    case 7: {
      const branches = range(2).map(() =>
        buildProgram([slice, slice], (_, x, y) =>
          random.chance(0.5) ? [x as Var] : _("add", [x as Var, y as Var], {}),
        ),
      );
      return at(emit("cond", [newLiteral(random.below(2), "int32"), pick(), pick()], { branches }), 0);
    }
    default:
      return at(emit(random.pick(["add", "sub", "max"] as const), [pick(), pick()], {}), 0);
  }
}

/** A loop over the rows of a slice. */
function rows(emit: Emit, random: Random, x: Var, y: Var): Var {
  const body = buildProgram([row, row, row], (inner, carry, a, b) => {
    const values = [carry, a, b] as Var[];
    for (let i = 0; i < 2; i++) {
      values.push(
        at(inner(random.pick(["add", "min"] as const), [random.pick(values), random.pick(values)], {}), 0),
      );
    }
    return [random.pick(values), random.pick(values)];
  });
  const first = emit("slice", [x], { starts: [0, 0], limits: [1, 2], strides: [1, 1] });
  const carry = at(emit("reshape", [at(first, 0)], { shape: [2] }), 0);
  const params = { body, length: 4, reverse: random.chance(0.5), numConsts: 0, numCarry: 1 };
  return at(emit("scan", [carry, x, y], params), 1);
}
