import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { hostTensor, numbersOf } from "../../engines/reference/hostTensor.js";
import { interpret } from "../../engines/reference/interpret.js";
import { type DType, isFloat } from "../../ir/dtype.js";
import type { Program } from "../../ir/program.js";
import { at, range, type Shape, type TensorType, tensorType } from "../../ir/shape.js";
import { printProgram } from "../../ir/text/print.js";
import { verify } from "../../ir/verify.js";
import { bind, bind1, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { scan } from "../control/scan.js";
import { checkpointName, remat } from "../derivatives/remat.js";
import { simplify } from "./simplify.js";

const seed = Number(process.env.SEED ?? 1);
const numRuns = Number(process.env.RUNS ?? 75);

function program(types: readonly TensorType[], fn: (...args: Tensor[]) => Tensor | Tensor[]): Program {
  return verify(
    traceFlat((args) => {
      const out = fn(...args);
      return Array.isArray(out) ? out : [out];
    }, types).program,
  );
}

const vector = tensorType("float32", [4]);
const opsOf = (simple: Program) => simple.eqns.map((eqn) => eqn.op);
const simplified = (types: readonly TensorType[], fn: (...args: Tensor[]) => Tensor | Tensor[]) =>
  verify(simplify(program(types, fn)));

describe("simplify", () => {
  test("removes what nobody reads", () => {
    const simple = simplified([vector], (x) => {
      ops.sin(x);
      return ops.cos(x);
    });
    expect(opsOf(simple)).toEqual(["cos"]);
  });

  test("computes the same expression once", () => {
    const simple = simplified([vector, vector], (x, y) => ops.sub(ops.mul(x, y), ops.sin(ops.mul(x, y))));
    expect(opsOf(simple)).toEqual(["mul", "sin", "sub"]);
  });

  test("removes multiplications by 1, subtractions of 0 and additions of -0", () => {
    const simple = simplified([vector], (x) => ops.add(ops.sub(ops.mul(ops.div(x, 1), 1), 0), -0));
    expect(printProgram(simple)).toContain("return %0");
  });

  test("keeps the addition of 0 to a float, which turns -0 into 0", () => {
    expect(opsOf(simplified([vector], (x) => ops.add(x, 0)))).toEqual(["add"]);
    expect(opsOf(simplified([tensorType("int32", [4])], (x) => ops.add(x, 0)))).toEqual([]);
  });

  test("keeps the multiplication by 0, which knows NaN and infinity", () => {
    expect(opsOf(simplified([vector], (x) => ops.mul(x, 0)))).toEqual(["mul"]);
  });

  test("folds arithmetic of constants", () => {
    const simple = simplified([vector], (x) => {
      const constant = ops.add(ops.mul(Tensor.scalar(2, "float32"), 3), 0.5);
      return ops.mul(x, ops.broadcastInDim(constant, [4], []));
    });
    expect(printProgram(simple)).toContain("mul %0 6.5");
  });

  test("makes two movements in a row one", () => {
    const matrix = tensorType("float32", [2, 3]);
    const moved = simplified([matrix], (x) => ops.reshape(ops.reshape(x, [6]), [3, 2]));
    expect(opsOf(moved)).toEqual(["reshape"]);
    const turned = simplified([matrix], (x) => ops.transpose(ops.transpose(x, [1, 0]), [1, 0]));
    expect(opsOf(turned)).toEqual([]);
    const spread = simplified([vector], (x) =>
      ops.broadcastInDim(ops.broadcastInDim(x, [1, 4], [1]), [3, 2, 4], [1, 2]),
    );
    expect(opsOf(spread)).toEqual(["broadcastInDim"]);
  });

  test("works inside the bodies of loops, and removes carries that nobody needs", () => {
    const simple = simplified([vector, vector], (x, y) => {
      const [[last]] = scan<[Tensor, Tensor], null, Tensor>(
        ([a, b]) => [[ops.mul(a, 1), ops.sin(b)], ops.cos(b)],
        [x, y],
        null,
        { length: 3 },
      );
      return last;
    });
    expect(printProgram(simple)).toContain("numCarry: 1");
    expect(printProgram(simple)).not.toMatch(/sin|cos|mul/);
  });

  test("merges nothing across a barrier or a name", () => {
    const simple = simplified([vector], (x) => {
      const again = ops.optimizationBarrier([x])[0] ?? x;
      return [ops.sin(x), ops.sin(again), checkpointName(x, "a"), checkpointName(x, "a")];
    });
    expect(opsOf(simple)).toEqual(["optimizationBarrier", "sin", "sin", "name", "name"]);
  });

  test("keeps the operands of remat regions that are read", () => {
    const simple = simplified(
      [vector, vector],
      (x, y) => remat((a: Tensor, b: Tensor) => [ops.sin(a), ops.cos(b)] as const)(x, y)[0],
    );
    expect(printProgram(simple)).toContain("remat %0 {");
  });

  test("keeps the shape of a choice between two equal constants", () => {
    const simple = simplified([tensorType("bool", [4])], (mask) => {
      const constant = Tensor.scalar(2, "float32");
      return ops.reduceSum(ops.select(mask, constant, constant), [0]);
    });
    expect(at(simple.outputs, 0).type.shape).toEqual([]);
  });

  test("of a simplified program changes nothing", () => {
    const once = simplified([vector, vector], (x, y) => ops.mul(ops.add(x, ops.mul(y, 1)), ops.sin(x)));
    expect(printProgram(simplify(once))).toBe(printProgram(once));
  });
});

const specials = [
  0,
  -0,
  1,
  -1,
  2,
  0.5,
  1e30,
  -1e-30,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  Number.NEGATIVE_INFINITY,
];
const whole = [0, 1, -1, 2, 3, 7, 2 ** 31 - 1, -(2 ** 31), 123456789];
const dtypes = ["float32", "float64", "bfloat16", "float16", "int32", "uint32"] as const satisfies DType[];

interface Node {
  readonly op: "add" | "sub" | "mul" | "div" | "pow" | "max" | "neg" | "select" | "convert" | "compare";
  readonly left: number;
  readonly right: number;
  readonly constant: number;
  readonly side: "left" | "right" | "none" | "broadcast";
}

const node: fc.Arbitrary<Node> = fc.record({
  op: fc.constantFrom("add", "sub", "mul", "div", "pow", "max", "neg", "select", "convert", "compare"),
  left: fc.nat(5),
  right: fc.nat(5),
  constant: fc.nat(1000),
  side: fc.constantFrom("left", "right", "none", "broadcast"),
});

const shapeOf: Shape = [3];

function build(nodes: readonly Node[], dtype: DType): Program {
  const type = tensorType(dtype, shapeOf);
  const numbers = isFloat(dtype) ? specials : whole;
  return program([type, type], (x, y) => {
    // Scalars made of constants alone stay among the values, so that there is something to fold.
    const values: Tensor[] = [x, y, Tensor.scalar(at(numbers, 2), dtype)];
    const shaped = (t: Tensor) => ops.broadcastInDim(t, shapeOf, []);
    for (const { op, left, right, constant, side } of nodes) {
      const literal = Tensor.scalar(at(numbers, constant % numbers.length), dtype);
      const [l, r] = [at(values, left % values.length), at(values, right % values.length)];
      const first = side === "left" ? literal : l;
      const second = side === "right" ? literal : side === "broadcast" ? shaped(literal) : r;
      const fits =
        first.node.kind === "literal" || second.node.kind === "literal" || first.ndim === second.ndim;
      const [a, b] = fits ? [first, second] : [shaped(first), shaped(second)];
      if (op === "neg") values.push(ops.neg(a));
      else if (op === "compare" || op === "select") {
        const mask = ops.compare("lt", a, b);
        values.push(ops.select(mask, a, op === "select" ? b : a));
      } else if (op === "convert") values.push(ops.convert(ops.convert(a, "float64"), dtype));
      else values.push(bind1(op, [a, b], {}));
    }
    return values.slice(2).map((value) => shaped(value));
  });
}

describe(`simplify of random arithmetic with constants (seed ${seed})`, () => {
  test.each(dtypes)("keeps %s results to the last bit, -0, NaN and infinities among them", (dtype) => {
    const numbers = isFloat(dtype) ? specials : whole;
    const property = fc.property(
      fc.array(node, { minLength: 1, maxLength: 6 }),
      fc.array(fc.constantFrom(...numbers), { minLength: 6, maxLength: 6 }),
      (nodes, values) => {
        const original = build(nodes, dtype);
        const simple = verify(simplify(original));
        const inputs = range(2).map((i) => hostTensor(dtype, shapeOf, values.slice(3 * i, 3 * i + 3)));
        const [want, got] = [interpret(original, inputs), interpret(simple, inputs)];
        got.forEach((tensor, i) => {
          expect(tensor.type).toEqual(at(want, i).type);
          expect(numbersOf(tensor)).toEqual(numbersOf(at(want, i)));
        });
      },
    );
    fc.assert(property, { seed, numRuns });
  });
});

test("an equation with several results is merged as a whole", () => {
  const simple = simplified([vector, vector], (x, y) => {
    const [a = x] = bind("sort", [x, y], { dim: 0, numKeys: 1 });
    const [, b = y] = bind("sort", [x, y], { dim: 0, numKeys: 1 });
    return ops.add(a, b);
  });
  expect(opsOf(simple)).toEqual(["sort", "add"]);
});
