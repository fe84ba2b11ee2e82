import { describe, expect, test } from "vitest";
import {
  caseProgram,
  deviceAxis,
  type OpCase,
  opCases,
  type TensorOperand,
  tripled,
} from "../../test/support/opCases.js";
import { interpretSpmd } from "../engines/reference/interpret.js";
import { type HostTensor, hostTensor, numbersOf } from "../engines/reference/tensor.js";
import { makeProgram, Tensor } from "../index.js";
import { AxisError, DimError, ShapeError, ShardingError, TreeError, ValueError } from "../ir/errors.js";
import { axesCoordinates, axesSize, type MeshAxis } from "../ir/mesh.js";
import type { OpName, OpParams } from "../ir/ops.js";
import { printProgram } from "../ir/print.js";
import { forEachEqn, type Program } from "../ir/program.js";
import { at, range, sizeOf, type TensorType, tensorType } from "../ir/shape.js";
import { verify } from "../ir/verify.js";
import { lookUpAxes } from "../trace/axes.js";
import { bind, bind1, traceFlat } from "../trace/builder.js";
import * as ops from "../trace/ops.js";
import { grad } from "./grad.js";
import { vmap, vmapProgram } from "./vmap.js";
import { vmapRules } from "./vmapRules.js";

/** Numbers from 0 to 1 that are the same in every run. */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

function randomTensor({ type, low, high }: TensorOperand, random: () => number): HostTensor {
  const draw = () => {
    const value = low + random() * (high - low);
    return type.dtype === "float32" ? value : Math.floor(value);
  };
  return hostTensor(type.dtype, type.shape, range(sizeOf(type.shape)).map(draw));
}

function stack(tensors: readonly HostTensor[]): HostTensor {
  const { dtype, shape } = at(tensors, 0).type;
  return hostTensor(dtype, [tensors.length, ...shape], tensors.flatMap(numbersOf));
}

function expectSame(actual: HostTensor, expected: HostTensor): void {
  expect(actual.type).toEqual(expected.type);
  const wanted = numbersOf(expected);
  numbersOf(actual).forEach((value, i) => {
    const want = at(wanted, i);
    if (Object.is(value, want) || value === want) return;
    expect(Math.abs(value - want)).toBeLessThanOrEqual(1e-5 * Math.max(1, Math.abs(want)));
  });
}

/** Every way to choose some of n things. */
function subsets(n: number): boolean[][] {
  return range(2 ** n).map((bits) => range(n).map((i) => ((bits >> i) & 1) === 1));
}

const batchSize = 3;

/** Runs a batched program, and the single one on each element, over the devices of a mesh. */
function expectLikeLoop(
  program: Program,
  operands: readonly TensorOperand[],
  batchedInputs: readonly boolean[],
  random: () => number,
  options: { spmdAxisName?: string; size?: number } = {},
): Program {
  const { size = batchSize, spmdAxisName } = options;
  const mesh = { axes: [deviceAxis] };
  const result = vmapProgram(program, { size, batchedInputs, spmdAxisName });
  verify(result.program);
  // For every operand, device and element of the batch a value; shared operands have one for all elements.
  const values = operands.map((operand, i) =>
    range(deviceAxis.size).map(() => {
      const own = range(size).map(() => randomTensor(operand, random));
      return batchedInputs[i] ? own : own.map(() => at(own, 0));
    }),
  );
  const whole = values.map((devices, i) =>
    devices.map((own) => (batchedInputs[i] ? stack(own) : at(own, 0))),
  );
  const actual = interpretSpmd(result.program, mesh, whole);
  const single = range(size).map((b) =>
    interpretSpmd(
      program,
      mesh,
      values.map((devices) => devices.map((own) => at(own, b))),
    ),
  );
  actual.forEach((devices, out) => {
    devices.forEach((value, device) => {
      const each = single.map((outs) => at(at(outs, out), device));
      if (result.batchedOutputs[out]) expectSame(value, stack(each));
      else for (const expected of each) expectSame(value, expected);
    });
  });
  return result.program;
}

function checkOp<K extends OpName>(op: K, cases: readonly OpCase<K>[]): void {
  const random = randomNumbers(op.length * 7919 + 1);
  for (const opCase of cases) {
    const program = verify(caseProgram(op, opCase));
    const operands = opCase.ins.filter((operand) => operand.kind === "tensor");
    for (const flags of subsets(operands.length)) expectLikeLoop(program, operands, flags, random);
  }
}

const opNames = Object.keys(vmapRules) as OpName[];

describe("every op", () => {
  test("has a case", () => {
    expect(Object.keys(opCases).sort()).toEqual([...opNames].sort());
    for (const op of opNames) expect(opCases[op].length, op).toBeGreaterThan(0);
  });

  test.each(opNames)("%s over a batch equals a loop over its elements", (op) => {
    checkOp(op, opCases[op]);
  });
});

describe("nested programs", () => {
  test.each(["scan", "while", "cond", "remat", "customVjp", "dynamicUpdateSlice", "gather"] as const)(
    "%s can be mapped twice",
    (op) => {
      const random = randomNumbers(5);
      const checkTwice = <K extends OpName>(name: K, cases: readonly OpCase<K>[]) => {
        const opCase = at(cases, 0);
        const operands = opCase.ins.filter((operand) => operand.kind === "tensor");
        for (const flags of subsets(operands.length)) {
          const once = vmapProgram(caseProgram(name, opCase), { size: 2, batchedInputs: flags }).program;
          const grown = operands.map((operand, i) => ({ ...operand, type: at(once.inputs, i).type }));
          expectLikeLoop(once, grown, [...flags].reverse(), random);
        }
      };
      checkTwice(op, opCases[op]);
    },
  );

  test("a scan whose carry becomes batched only through another carry", () => {
    const scalar: TensorOperand = { kind: "tensor", type: tensorType("float32", []), low: -1, high: 1 };
    const xs: TensorOperand = { ...scalar, type: tensorType("float32", [5]) };
    // Every step hands the values on to the left: x → third → second → first → y.
    const body = traceFlat(
      ([first, ...others]) => [...others, asTensor(first)],
      range(4).map(() => scalar.type),
    ).program;
    const program = traceFlat(
      (args) => bind("scan", args, { body, length: 5, reverse: false, numConsts: 0, numCarry: 3 }),
      [scalar.type, scalar.type, scalar.type, xs.type],
    ).program;
    expectLikeLoop(program, [scalar, scalar, scalar, xs], [false, false, false, true], randomNumbers(3));
  });
});

function asTensor(value: Tensor | undefined): Tensor {
  if (!value) throw new Error("a tensor is missing");
  return value;
}

/** Runs a program that talks over the axes on all devices of their mesh, and by mapping over one of the axes. */
function expectLikeDevices(
  axes: readonly MeshAxis[],
  mapped: string,
  shape: readonly number[],
  fn: (x: Tensor) => Tensor,
  sharedInput = false,
): Program {
  const random = randomNumbers(11);
  const type = tensorType("float32", shape);
  const program = traceFlat(([x]) => [fn(asTensor(x))], [type]).program;
  const place = axes.findIndex(({ name }) => name === mapped);
  const { size } = at(axes, place);
  const others = axes.filter(({ name }) => name !== mapped);
  const coordinates = (device: number) => axesCoordinates(axes, device);
  const devices = range(axesSize(axes));
  const rest = (device: number) =>
    coordinates(device)
      .filter((_, i) => i !== place)
      .join();
  const shared = new Map<string, HostTensor>();
  const blocks = devices.map((device) => {
    const block = randomTensor({ kind: "tensor", type, low: -2, high: 2 }, random);
    if (!sharedInput) return block;
    const known = shared.get(rest(device)) ?? block;
    shared.set(rest(device), known);
    return known;
  });
  const expected = at(interpretSpmd(verify(program), { axes }, [blocks]), 0);

  const result = vmapProgram(program, { size, axisName: mapped, batchedInputs: [!sharedInput] });
  verify(result.program);
  const groups = range(axesSize(others)).map((other) =>
    devices.filter((device) => rest(device) === axesCoordinates(others, other).join()),
  );
  const whole = groups.map((group) => {
    const own = group.map((device) => at(blocks, device));
    return sharedInput ? at(own, 0) : stack(own);
  });
  const actual = at(interpretSpmd(result.program, { axes: others }, [whole]), 0);
  groups.forEach((group, other) => {
    const each = group.map((device) => at(expected, device));
    if (result.batchedOutputs[0]) expectSame(at(actual, other), stack(each));
    else for (const block of each) expectSame(at(actual, other), block);
  });
  return result.program;
}

describe("collectives over the mapped axis", () => {
  const v = { name: "v", size: 3 };
  const [a, b] = [
    { name: "a", size: 2 },
    { name: "b", size: 2 },
  ];
  const meshes: [string, MeshAxis[]][] = [
    ["alone", [v]],
    ["as the outermost axis", [v, b]],
    ["as the innermost axis", [a, v]],
    ["between two axes", [a, v, b]],
  ];
  const rotate = (axes: readonly MeshAxis[]) => {
    const n = axesSize(axes);
    return range(n - 1).map((i) => [i, (i * 5 + 2) % n] as const);
  };
  const cases: [string, (axes: readonly MeshAxis[]) => (x: Tensor) => Tensor][] = [
    ["psum", (axes) => (x) => ops.psum(x, axes)],
    ["pmax", (axes) => (x) => ops.pmax(x, axes)],
    ["pmin", (axes) => (x) => ops.pmin(x, axes)],
    ["allGather", (axes) => (x) => ops.allGather(x, axes, 1)],
    ["psumScatter", (axes) => (x) => ops.psumScatter(x, axes, 0)],
    ["ppermute", (axes) => (x) => ops.ppermute(x, axes, rotate(axes))],
    ["allToAll", (axes) => (x) => ops.allToAll(x, axes, 0, 1)],
    ["allToAll along one dim", (axes) => (x) => ops.allToAll(x, axes, 0, 0)],
    ["allToAll backwards", (axes) => (x) => ops.allToAll(ops.moveDim(x, 0, 1), axes, 1, 0)],
    [
      "axisIndex",
      (axes) => (x) =>
        ops.mul(x, ops.broadcastInDim(ops.convert(ops.axisIndex(axes), "float32"), x.shape, [])),
    ],
  ];
  for (const [where, axes] of meshes) {
    test.each(cases)(`%s over it ${where} is what devices do`, (_name, make) => {
      expectLikeDevices(axes, "v", [24, 2], make(axes));
      expectLikeDevices(axes, "v", [24, 2], make(axes), true);
    });
  }

  test("a shift sends neighbouring rows in one piece", () => {
    const ring = { name: "v", size: 6 };
    const shift = range(5).map((i) => [i, i + 1] as const);
    const program = expectLikeDevices([ring], "v", [2], (x) => ops.ppermute(x, [ring], shift));
    expect(program.eqns.map(({ op }) => op)).toEqual(["broadcastInDim", "slice", "concatenate"]);
  });

  test("talk inside the body of a scan", () => {
    const body = traceFlat(
      ([carry]) => [ops.add(ops.psum(asTensor(carry), [v]), ops.convert(ops.axisIndex([v]), "float32"))],
      [tensorType("float32", [])],
    ).program;
    const params = { body, length: 3, reverse: false, numConsts: 0, numCarry: 1 };
    expectLikeDevices([v], "v", [], (x) => bind1("scan", [x], params));
    expectLikeDevices([v], "v", [], (x) => bind1("scan", [x], params), true);
  });

  test("a result that psum makes equal for all needs no dim", async () => {
    const x = numbers([3], [1, 2, 3]);
    const total = vmap((e: Tensor) => ops.psum(e, lookUpAxes("rows", "test")), {
      axisName: "rows",
      outAxes: null,
    })(x);
    expect(await total.js()).toBe(6);
  });

  test("sums of many equal bfloat16 values stay exact", () => {
    const program = traceFlat(
      ([x]) => [ops.psum(asTensor(x), [{ name: "v", size: 257 }])],
      [tensorType("bfloat16", [])],
    ).program;
    const result = vmapProgram(program, { size: 257, axisName: "v", batchedInputs: [false] });
    const [out] = interpretSpmd(verify(result.program), { axes: [] }, [[hostTensor("bfloat16", [], [3])]]);
    expect(numbersOf(at(at([out], 0) ?? [], 0))).toEqual([772]);
  });
});

describe("shardings", () => {
  const mesh = {
    axes: [
      { name: "m", size: 2 },
      { name: "n", size: 2 },
    ],
  };
  const operand: TensorOperand = { kind: "tensor", type: tensorType("float32", [4, 3]), low: -1, high: 1 };
  const sumOver = (names: readonly string[], manual: readonly string[]) =>
    traceFlat(
      ([x]) =>
        bind("shardMap", [asTensor(x)], {
          mesh,
          manual,
          inSpecs: [[["m"], []]],
          outSpecs: [[[]], [["m"], []]],
          body: traceFlat(
            ([block]) => {
              const axes = mesh.axes.filter(({ name }) => names.includes(name));
              return [ops.psum(ops.reduceSum(asTensor(block), [0]), axes), ops.sin(asTensor(block))];
            },
            [tensorType("float32", [2, 3])],
          ).program,
        }),
      [operand.type],
    ).program;
  const shardMapOf = (program: Program): OpParams["shardMap"] => {
    const found = program.eqns.flatMap((eqn) => (eqn.op === "shardMap" ? [eqn.params] : []));
    return at(found, 0);
  };

  test("a shard map keeps the batch whole on every device", () => {
    const program = expectLikeLoop(sumOver(["m"], ["m"]), [operand], [true], randomNumbers(2));
    expect(shardMapOf(program).inSpecs).toEqual([[[], ["m"], []]]);
  });

  test("a shard map splits the batch over spmdAxisName", () => {
    const options = { spmdAxisName: "n", size: 6 };
    const program = expectLikeLoop(sumOver(["m"], ["m"]), [operand], [true], randomNumbers(2), options);
    const { inSpecs, outSpecs, manual, body } = shardMapOf(program);
    expect(inSpecs).toEqual([[["n"], ["m"], []]]);
    expect(outSpecs).toEqual([
      [["n"], []],
      [["n"], ["m"], []],
    ]);
    expect(manual).toEqual(["m", "n"]);
    expect(body.inputs.map(({ type }) => type.shape)).toEqual([[3, 2, 3]]);
  });

  test("collectives over a mapped axis that is split talk over its mesh axis too", () => {
    const rows = { name: "rows", size: 6 };
    const steps = range(5).map((i) => [i, i + 1] as const);
    const body = (block: Tensor) => {
      const index = ops.broadcastInDim(ops.convert(ops.axisIndex([rows]), "float32"), [2], []);
      const weighted = ops.psum(ops.mul(block, index), [rows]);
      const all = ops.allGather(block, [...mesh.axes.slice(0, 1), rows], 0);
      return [weighted, ops.ppermute(block, [rows], steps), all];
    };
    const program = traceFlat(
      ([x]) =>
        bind("shardMap", [asTensor(x)], {
          mesh,
          manual: ["m"],
          inSpecs: [[["m"]]],
          outSpecs: [[["m"]], [["m"]], [[]]],
          body: traceFlat(([block]) => body(asTensor(block)), [tensorType("float32", [2])]).program,
        }),
      [tensorType("float32", [4])],
    ).program;
    const x = randomTensor({ ...operand, type: tensorType("float32", [6, 4]) }, randomNumbers(9));
    const options = { size: 6, batchedInputs: [true], axisName: "rows" };
    const run = (result: ReturnType<typeof vmapProgram>) =>
      interpretSpmd(verify(result.program), { axes: [] }, [[x]]).map((lanes) => at(lanes, 0));
    const whole = vmapProgram(program, options);
    const split = vmapProgram(program, { ...options, spmdAxisName: "n" });
    expect(split.batchedOutputs).toEqual([false, true, false]);
    run(split).forEach((value, i) => {
      expectSame(value, at(run(whole), i));
    });
  });

  test("a sharding constraint leaves the batch free, or splits it over spmdAxisName", () => {
    const program = traceFlat(
      ([x]) => bind("shardingConstraint", [asTensor(x)], { mesh, spec: [["m"], []] }),
      [operand.type],
    ).program;
    const specOf = (spmdAxisName?: string | string[]) => {
      const result = vmapProgram(program, { size: 4, batchedInputs: [true], spmdAxisName });
      return verify(result.program).eqns.flatMap((eqn) =>
        eqn.op === "shardingConstraint" ? [eqn.params.spec] : [],
      );
    };
    expect(specOf()).toEqual([["unconstrained", ["m"], []]]);
    expect(specOf("n")).toEqual([[["n"], ["m"], []]]);
    expect(() => specOf("m")).toThrow(ShardingError);
    expect(() => specOf("q")).toThrow(AxisError);
  });

  test("spmdAxisName must be free and divide the batch", () => {
    const map = (program: Program, spmdAxisName: string, size: number) => () =>
      vmapProgram(program, { size, batchedInputs: [true], spmdAxisName });
    expect(map(sumOver(["m"], ["m"]), "m", 4)).toThrow(/uses that axis already in P\("m", null\)/);
    expect(map(sumOver(["m", "n"], ["m", "n"]), "n", 4)).toThrow(/talks over that axis/);
    expect(map(sumOver(["m"], ["m"]), "n", 3)).toThrow(/3 \/ 2 = 1.5/);
  });
});

function numbers(shape: readonly number[], values: readonly number[]): Tensor {
  return Tensor.fromHost(tensorType("float32", shape), new Float32Array(values));
}

const square = (x: Tensor): Tensor => ops.mul(x, x);
const total = (x: Tensor): Tensor => ops.reduceSum(x, range(x.ndim));

describe("vmap", () => {
  const matrix = numbers([2, 3], [1, 2, 3, 4, 5, 6]);

  test("maps the first dim of every argument", async () => {
    expect(await vmap(total)(matrix).js()).toEqual([6, 15]);
    expect(await vmap((x: Tensor, y: Tensor) => total(ops.mul(x, y)))(matrix, matrix).js()).toEqual([14, 77]);
  });

  test("maps the dims that inAxes gives, also from the end and in trees", async () => {
    expect(await vmap(total, { inAxes: 1 })(matrix).js()).toEqual([5, 7, 9]);
    expect(await vmap(total, { inAxes: -1 })(matrix).js()).toEqual([5, 7, 9]);
    const weights = numbers([3], [1, 10, 100]);
    const scaled = vmap(({ x, w }: { x: Tensor; w: Tensor }, k: Tensor) => ops.mul(ops.mul(x, w), k), {
      inAxes: [{ x: 0, w: null }, null],
    });
    expect(await scaled({ x: matrix, w: weights }, numbers([3], [1, 1, 2])).js()).toEqual([
      [1, 20, 600],
      [4, 50, 1200],
    ]);
  });

  test("puts the mapped dim of results where outAxes says", async () => {
    const f = vmap((x: Tensor) => ({ same: x, constant: ops.full([2], 7, "float32"), one: total(x) }), {
      outAxes: { same: 1, constant: -1, one: 0 },
    });
    const { same, constant, one } = f(matrix);
    expect(await same.js()).toEqual([
      [1, 4],
      [2, 5],
      [3, 6],
    ]);
    expect(await constant.js()).toEqual([
      [7, 7],
      [7, 7],
    ]);
    expect(await one.js()).toEqual([6, 15]);
  });

  test("leaves results alone that are the same for all, where outAxes is null", async () => {
    const f = vmap((x: Tensor, y: Tensor): [Tensor, Tensor] => [ops.add(x, y), square(y)], {
      inAxes: [0, null],
      outAxes: [0, null],
    });
    const [, same] = f(numbers([2], [1, 2]), numbers([], [5]));
    expect(await same.js()).toBe(25);
  });

  test("nests, and reads values from outside", async () => {
    const outer = numbers([3], [1, 2, 3]);
    const products = vmap((x: Tensor) => vmap((y: Tensor) => ops.mul(ops.mul(x, y), total(outer)))(outer))(
      outer,
    );
    expect(await products.js()).toEqual([
      [6, 12, 18],
      [12, 24, 36],
      [18, 36, 54],
    ]);
  });

  test("nests with names: collectives say which dim they mean", async () => {
    const sum = (name: string) => (x: Tensor) => ops.psum(x, lookUpAxes(name, "test"));
    const nested = (name: string) =>
      vmap(vmap(sum(name), { axisName: "columns" }), { axisName: "rows" })(matrix);
    expect(await nested("rows").js()).toEqual([
      [5, 7, 9],
      [5, 7, 9],
    ]);
    expect(await nested("columns").js()).toEqual([
      [6, 6, 6],
      [15, 15, 15],
    ]);
  });

  test("takes the size of the dim from axisSize when nothing is mapped", async () => {
    const index = vmap(() => ops.axisIndex(lookUpAxes("rows", "test")), { axisSize: 3, axisName: "rows" });
    expect(await index().js()).toEqual([0, 1, 2]);
  });

  test("computes once what is the same for all", () => {
    const program = makeProgram(
      vmap((x: Tensor, w: Tensor) => ops.mul(x, ops.exp(w)), { inAxes: [0, null] }),
    );
    const exps: TensorType[] = [];
    forEachEqn(verify(program(numbers([2], [1, 2]), numbers([], [1]))), (eqn) => {
      if (eqn.op === "exp") exps.push(...eqn.outs.map(({ type }) => type));
    });
    expect(exps.map(({ shape }) => shape)).toEqual([[]]);
  });

  test("keeps one matrix product when a batch meets shared weights", () => {
    const dot = (x: Tensor, w: Tensor) => ops.dotGeneral(x, w, { lhsContract: [0], rhsContract: [0] });
    const program = makeProgram(vmap(dot, { inAxes: [0, null] }))(
      matrix,
      numbers([3, 2], [1, 2, 3, 4, 5, 6]),
    );
    expect(printProgram(program)).toContain("dotGeneral");
    expect(program.eqns.map(({ op }) => op)).toEqual(["dotGeneral"]);
  });

  test("works on an empty batch", async () => {
    expect(await vmap(total)(numbers([0, 3], [])).js()).toEqual([]);
  });
});

describe("vmap and gradients", () => {
  const factor = numbers([], [3]);
  const own = (x: Tensor, w: Tensor): [Tensor, Tensor] => {
    const [y, e] = bind("customVjp", [factor, x, w], tripled);
    return [asTensor(y), asTensor(e)];
  };
  const xs = numbers([2, 3], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]);
  const w = numbers([3], [1, 2, 3]);
  const loss = (x: Tensor, weights: Tensor): Tensor => {
    const [y, e] = own(x, weights);
    return ops.add(total(square(y)), total(e));
  };
  const row = (i: number) => ops.reshape(ops.sliceDim(xs, 0, i, i + 1), [3]);

  test("the gradient by an argument that a custom rule shares is the sum over the batch", async () => {
    const mapped = (x: Tensor, weights: Tensor) => total(vmap(loss, { inAxes: [0, null] })(x, weights));
    const [dx, dw] = grad(mapped, { argnums: [0, 1] })(xs, w);
    const each = [0, 1].map((i) => grad(loss, { argnums: [0, 1] })(row(i), w));
    const expectedW = ops.add(at(at(each, 0), 1), at(at(each, 1), 1));
    expect(close(await dw.data(), await expectedW.data())).toBe(true);
    const expectedX = ops.concatenate(
      each.map(([g]) => g),
      0,
    );
    expect(close(await dx.data(), await expectedX.data())).toBe(true);
  });

  test("a result of a custom rule that all share is differentiated once", async () => {
    const shared = (weights: Tensor) => {
      const [y, e] = vmap(own, { inAxes: [0, null] })(xs, weights);
      return ops.add(total(y), total(ops.sliceDim(e, 0, 0, 1)));
    };
    const expected = (weights: Tensor) => {
      const [first, second] = [own(row(0), weights), own(row(1), weights)];
      return ops.add(ops.add(total(first[0]), total(second[0])), total(first[1]));
    };
    const [actual, wanted] = [grad(shared)(w), grad(expected)(w)];
    expect(close(await actual.data(), await wanted.data())).toBe(true);
  });

  test("a custom rule that talks over the mapped axis runs for every element", async () => {
    const axes = [{ name: "rows", size: 2 }];
    const vector = tensorType("float32", [3]);
    const psum = traceFlat(([v]) => [ops.psum(asTensor(v), axes)], [vector]).program;
    const identity = traceFlat(([ct]) => [asTensor(ct)], [vector]).program;
    const rule = { body: psum, forward: psum, backward: identity, numCaptures: 0, numResiduals: 0 };
    const options = { axisName: "rows", axisSize: 2, outAxes: null };
    const sum = (v: Tensor) => total(ops.mul(bind1("customVjp", [v], rule), w));
    const shared = grad((v: Tensor) => vmap(sum, { ...options, inAxes: null })(v))(w);
    expect(await shared.js()).toEqual([2, 4, 6]);
    const each = grad((v: Tensor) => vmap(sum, options)(v))(xs);
    expect(await each.js()).toEqual([
      [1, 2, 3],
      [1, 2, 3],
    ]);
  });

  test("per-element gradients equal gradients element by element", async () => {
    const actual = vmap(grad(loss), { inAxes: [0, null] })(xs, w);
    const expected = ops.concatenate([grad(loss)(row(0), w), grad(loss)(row(1), w)], 0);
    expect(close(await actual.data(), await expected.data())).toBe(true);
  });
});

function close(a: ArrayLike<number>, b: ArrayLike<number>): boolean {
  return a.length === b.length && range(a.length).every((i) => Math.abs((a[i] ?? 0) - (b[i] ?? 0)) < 1e-4);
}

describe("vmap refuses", () => {
  const x = numbers([2, 3], [1, 2, 3, 4, 5, 6]);
  const y = numbers([5], [1, 2, 3, 4, 5]);
  const first = (a: unknown, _b?: unknown) => a;

  test("sizes that disagree, with the path of every argument", () => {
    const call = () => vmap(first)({ p: x }, y);
    expect(call).toThrow(ShapeError);
    expect(call).toThrow(
      /argument 0\/p f32\[2,3\] has 2 along dim 0\n {2}argument 1 f32\[5\] has 5 along dim 0/,
    );
    expect(() => vmap(first, { axisSize: 4 })(x)).toThrow(/axisSize is 4/);
  });

  test("dims that an argument does not have", () => {
    expect(() => vmap(first, { inAxes: 2 })(x)).toThrow(DimError);
    expect(() => vmap(first, { inAxes: 2 })(x)).toThrow(
      "[vmap] inAxes 2 is out of range for argument 0 f32[2,3] (2 dims): use a number from -2 to 1, or null",
    );
    expect(() => vmap(first)(3)).toThrow(/argument 0 f32\[\] \(0 dims\): use null for it/);
    expect(() => vmap(total, { outAxes: 1 })(x)).toThrow(
      /outAxes 1 is out of range for the result \(1 dims\)/,
    );
    expect(() => vmap(first, { inAxes: "rows" })(x)).toThrow(ValueError);
  });

  test("axes trees that do not fit", () => {
    expect(() => vmap(first, { inAxes: [0] })(x, x)).toThrow(TreeError);
    expect(() => vmap(first, { inAxes: [0] })(x, x)).toThrow(/inAxes has 1 entries for 2 arguments/);
    expect(() => vmap(first, { inAxes: [{ q: 0 }] })({ p: x })).toThrow(TreeError);
    expect(() => vmap(first, { outAxes: [0, 0] })(x)).toThrow(TreeError);
  });

  test("to map nothing", () => {
    expect(() => vmap(first, { inAxes: null })(x)).toThrow(/no argument is mapped/);
    expect(() => vmap(first, { axisSize: -1 })(x)).toThrow(/axisSize -1/);
  });

  test("to drop the dim of a result that differs within the batch", () => {
    const call = () => vmap((a: Tensor) => ({ out: [a] }), { outAxes: null })(x);
    expect(call).toThrow(ValueError);
    expect(call).toThrow(/outAxes is null for result out\/0, but its value differs/);
  });

  test("a name that is taken", () => {
    const inner = vmap(total, { axisName: "rows" });
    expect(() => vmap(inner, { axisName: "rows" })(numbers([2, 2, 2], range(8)))).toThrow(AxisError);
  });
});
