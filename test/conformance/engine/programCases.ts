import { hostTensor } from "../../../src/engines/reference/hostTensor.js";
import { newLiteral, type Program, type Var } from "../../../src/ir/program.js";
import { at, range, tensorType } from "../../../src/ir/shape.js";
import { buildProgram, type Emit } from "../../support/interpreting.js";
import { type EngineCase, oneDevice, sample } from "./cases.js";

const f32 = (value: number) => newLiteral(value, "float32");

/** Emits an op of one result. */
function one(emit: Emit): (...args: Parameters<Emit>) => Var {
  return (...args) => at(emit(...args), 0);
}

function case1(name: string, program: Program, seed = 1): EngineCase {
  const inputs = program.inputs.map(({ type }, i) => [sample(type.dtype, type.shape, "unit", seed + i)]);
  return { name, program, mesh: oneDevice, inputs };
}

const matrix = tensorType("float32", [9, 17]);

const softmax = buildProgram([matrix], (emit, x) => {
  const e = one(emit);
  const wide = { shape: [9, 17], dims: [0] };
  const shifted = e("sub", [x, e("broadcastInDim", [e("reduceMax", [x], { dims: [1] })], wide)], {});
  const powers = e("exp", [shifted], {});
  const sums = e("broadcastInDim", [e("reduceSum", [powers], { dims: [1] })], wide);
  return [e("div", [powers, sums], {})];
});

const layerNorm = buildProgram([matrix, tensorType("float32", [17])], (emit, x, scale) => {
  const e = one(emit);
  const wide = { shape: [9, 17], dims: [0] };
  const mean = e("mul", [e("reduceSum", [x], { dims: [1] }), f32(1 / 17)], {});
  const centred = e("sub", [x, e("broadcastInDim", [mean], wide)], {});
  const variance = e(
    "mul",
    [e("reduceSum", [e("mul", [centred, centred], {})], { dims: [1] }), f32(1 / 17)],
    {},
  );
  const inverse = e("rsqrt", [e("add", [variance, f32(1e-5)], {})], {});
  const normal = e("mul", [centred, e("broadcastInDim", [inverse], wide)], {});
  return [e("mul", [normal, e("broadcastInDim", [scale], { shape: [9, 17], dims: [1] })], {})];
});

const causalMask = buildProgram([tensorType("float32", [6, 6])], (emit, x) => {
  const e = one(emit);
  const iota = (dim: number) => e("iota", [], { dtype: "int32", shape: [6, 6], dim });
  const keep = e("compare", [iota(0), iota(1)], { direction: "ge" });
  return [e("select", [keep, x, f32(Number.NEGATIVE_INFINITY)], {})];
});

const mlp = buildProgram(
  [matrix, tensorType("float32", [17, 33]), tensorType("float32", [33]), tensorType("float32", [33, 5])],
  (emit, x, w0, b0, w1) => {
    const e = one(emit);
    const contract = {
      lhsContract: [1],
      rhsContract: [0],
      lhsBatch: [],
      rhsBatch: [],
      dtype: "float32",
    } as const;
    const bias = e("broadcastInDim", [b0], { shape: [9, 33], dims: [1] });
    const hidden = e("tanh", [e("add", [e("dotGeneral", [x, w0], contract), bias], {})], {});
    return [e("dotGeneral", [hidden, w1], contract), hidden];
  },
);

const nestedScan = ((): Program => {
  const vector = tensorType("float32", [17]);
  const inner = buildProgram([vector, vector], (emit, carry, x) => {
    const e = one(emit);
    const next = e("tanh", [e("add", [carry, x], {})], {});
    return [next, next];
  });
  const outer = buildProgram([matrix, vector], (emit, xs, carry) => {
    const [last, ys] = emit("scan", [carry, xs], {
      body: inner,
      length: 9,
      reverse: true,
      numConsts: 0,
      numCarry: 1,
    });
    if (last === undefined || ys === undefined) throw new Error("a scan of two results");
    return [last, at(emit("reduceSum", [ys], { dims: [0] }), 0)];
  });
  return buildProgram([matrix, vector], (emit, xs, carry) =>
    emit("scan", [xs, carry], { body: outer, length: 5, reverse: false, numConsts: 1, numCarry: 1 }),
  );
})();

/** A loop that stacks values which it has just widened, one of which another loop reads. */
const widenedStacks = ((): Program => {
  const vector = tensorType("float32", [17]);
  const widening = buildProgram([vector, vector], (emit, carry, x) => {
    const e = one(emit);
    const next = e("tanh", [e("add", [carry, x], {})], {});
    const rounded = e("convert", [next], { dtype: "bfloat16" });
    const wide = (y: Var) => e("convert", [y], { dtype: "float32" });
    return [next, wide(rounded), wide(e("neg", [rounded], {})), rounded];
  });
  const summing = buildProgram([vector, vector], (emit, carry, x) => emit("add", [carry, x], {}));
  const loop = { length: 9, reverse: true, numConsts: 0, numCarry: 1 };
  return buildProgram([matrix, vector], (emit, xs, carry) => {
    const [last, read, ...others] = emit("scan", [carry, xs], { ...loop, body: widening });
    if (last === undefined || read === undefined) throw new Error("a scan of four results");
    return [...emit("scan", [last, read], { ...loop, body: summing }), ...others];
  });
})();

/** Ops of a value and itself, which compilers like to know the result of; the integers are 0, and so are the floats. */
const ofItself = buildProgram(
  [tensorType("int32", [9]), tensorType("uint16", [9])],
  (emit, signed, unsigned) => {
    const e = one(emit);
    const both = [signed, unsigned].flatMap((x) =>
      (["div", "rem", "pow", "sub"] as const).map((op) => e(op, [x, x], {})),
    );
    const floats = (["float32", "bfloat16"] as const).flatMap((dtype) => {
      const x = e("convert", [signed], { dtype });
      return (["atan2", "pow", "div", "sub"] as const).map((op) => e(op, [x, x], {}));
    });
    return [...both, ...floats];
  },
);

/** Slices of slices, and what becomes one, from starts out of bounds. */
const slicesOfSlices = ((): EngineCase => {
  const starts = [
    [9, 1],
    [2, 3],
    [-1, -2],
    [6, 0],
  ].flat();
  const scalar = tensorType("int32", []);
  const program = buildProgram(
    [tensorType("int32", [8]), tensorType("int32", [1]), ...starts.map(() => scalar)],
    (emit, x, added, ...given) => {
      const e = one(emit);
      return range(given.length / 2).flatMap((i) => {
        const [outer, inner] = [at(given, 2 * i), at(given, 2 * i + 1)];
        const slice = e("dynamicSlice", [x, outer], { sizes: [3] });
        const rows = e("reshape", [inner], { shape: [1] });
        return [
          e("dynamicSlice", [slice, inner], { sizes: [1] }),
          e("gather", [slice, rows], { dim: 0, batchDims: 0 }),
          e("scatter", [slice, rows, added], { dim: 0, batchDims: 0, combine: "add" }),
          e("scatter", [slice, rows, added], { dim: 0, batchDims: 0, combine: "set" }),
          e("dynamicUpdateSlice", [x, e("dynamicUpdateSlice", [slice, added, inner], {}), outer], {}),
        ];
      });
    },
  );
  const scalars = starts.map((start) => [hostTensor("int32", [], [start])]);
  const inputs = [[hostTensor("int32", [8], range(8))], [hostTensor("int32", [1], [100])], ...scalars];
  return { name: "slices of slices", program, mesh: oneDevice, inputs };
})();

/** A sum over devices inside a loop, between matrix products: what a sharded model does. */
const ringProgram = ((): EngineCase => {
  const mesh = { axes: [{ name: "x", size: 4 }] };
  const { axes } = mesh;
  const block = tensorType("float32", [8, 8]);
  const body = buildProgram([block, block, block], (emit, w, x, sum) => {
    const e = one(emit);
    const contract = {
      lhsContract: [1],
      rhsContract: [0],
      lhsBatch: [],
      rhsBatch: [],
      dtype: "float32",
    } as const;
    const permutation = range(4).map((i) => [i, (i + 1) % 4] as const);
    const sent = e("ppermute", [x], { axes, permutation });
    return [sent, e("add", [sum, e("dotGeneral", [x, w], contract)], {})];
  });
  const program = buildProgram([block, block, block], (emit, w, x, sum) => {
    const [sent, total] = emit("scan", [w, x, sum], {
      body,
      length: 11,
      reverse: false,
      numConsts: 1,
      numCarry: 2,
    });
    if (sent === undefined || total === undefined) throw new Error("a scan of two results");
    return [at(emit("psum", [total], { axes }), 0), sent];
  });
  const inputs = program.inputs.map(({ type }, i) =>
    range(4).map((device) => sample(type.dtype, type.shape, "unit", 10 * i + device + 1)),
  );
  return { name: "a ring of matrix products in a loop", program, mesh, inputs };
})();

/** Exchanges that only one of two stages makes, as often as its number says: what a pipeline of rings does. */
const stagesProgram = ((): EngineCase => {
  const [stage, member] = [
    { name: "stage", size: 2 },
    { name: "member", size: 2 },
  ];
  const block = tensorType("float32", [3, 5]);
  const exchange = (length: number, permutation: readonly (readonly [number, number])[]) => {
    const body = buildProgram([block], (emit, x) => {
      const e = one(emit);
      return [e("add", [x, e("ppermute", [x], { axes: [member], permutation })], {})];
    });
    const loop = { body, length, reverse: false, numConsts: 0, numCarry: 1 };
    return buildProgram([block], (emit, x) => emit("scan", [x], loop));
  };
  const around = [
    [0, 1],
    [1, 0],
  ] as const;
  const still = buildProgram([block], (emit, x) => emit("mul", [x, f32(2)], {}));
  const program = buildProgram([block], (emit, x) => {
    const e = one(emit);
    const place = e("axisIndex", [], { axes: [stage] });
    const first = e("cond", [place, x], { branches: [exchange(3, around), still] });
    const last = e("cond", [place, first], { branches: [still, exchange(5, [[1, 0]])] });
    return [e("psum", [last], { axes: [stage] }), last];
  });
  const inputs = [range(4).map((device) => sample("float32", block.shape, "unit", device + 1))];
  return { name: "exchanges in branches", program, mesh: { axes: [stage, member] }, inputs };
})();

/** Whole programs: patterns that compilers fuse, loops in loops, collectives in loops. */
export const programCases: readonly EngineCase[] = [
  case1("softmax", softmax),
  case1("layer norm", layerNorm),
  case1("a causal mask", causalMask),
  case1("an MLP", mlp),
  case1("a scan inside a scan", nestedScan),
  case1("stacks of widened values", widenedStacks),
  case1("ops of a value and itself", ofItself),
  slicesOfSlices,
  ringProgram,
  stagesProgram,
];
