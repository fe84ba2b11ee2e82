import { describe, expect, test } from "vitest";
import { oracleFor } from "../../../test/support/agreement.js";
import { deviceAxis, type TensorOperand } from "../../../test/support/opCases.js";
import {
  asTensor,
  expectLikeDevices,
  expectLikeLoop,
  randomNumbers,
  randomTensor,
} from "../../../test/support/vmapChecks.js";
import { hostTensor, numbersOf } from "../../engines/reference/hostTensor.js";
import { interpretSpmd } from "../../engines/reference/interpret.js";
import { Tensor } from "../../index.js";
import { AxisError, ShardingError } from "../../ir/errors.js";
import { axesSize, type MeshAxis } from "../../ir/mesh.js";
import type { OpParams } from "../../ir/ops.js";
import type { Program } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { printProgram } from "../../ir/text/print.js";
import { verify } from "../../ir/verify.js";
import { lookUpAxes } from "../../trace/axes.js";
import { bind, bind1, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { vmap, vmapProgram } from "./vmap.js";

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
    ["ppermute of one block", (axes) => (x) => ops.ppermute(x, axes, [[axesSize(axes) - 2, 0]])],
    ["ppermute to the last", (axes) => (x) => ops.ppermute(x, axes, [[0, axesSize(axes) - 1]])],
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

  test.each([
    ["alone", [v]],
    ["beside another axis", [a, v]],
  ])("raggedAllToAll over it %s is what devices do", (_where, axes) => {
    // How many rows each position sends to each other one, two of them in two blocks.
    const counts = [
      [1, 0, 0, 0, 2, 0],
      [0, 2, 1, 0, 0, 1],
      [1, 1, 0, 1, 0, 0],
    ];
    const rowsBefore = (list: readonly number[], i: number) =>
      list.slice(0, i).reduce((sum, n) => sum + n, 0);
    const size = (from: number, to: number, block: number) => at(at(counts, from), 2 * to + block);
    const sent = (from: number, to: number, block: number) => rowsBefore(at(counts, from), 2 * to + block);
    const received = (from: number, to: number, block: number) =>
      rowsBefore(
        range(6).map((i) => size(i >> 1, to, i & 1)),
        2 * from + block,
      );
    const table = (row: (me: number, other: number, block: number) => number[]) =>
      ops.reshape(
        ops.stack(
          range(3)
            .flatMap((me) => range(6).flatMap((i) => row(me, i >> 1, i & 1)))
            .map((n) => ops.full([], n, "int32")),
        ),
        [3, 6, 3],
      );
    const mine = (all: Tensor) => ops.gather(all, ops.axisIndex([v]), { dim: 0, batchDims: 0 });
    const exchange = (x: Tensor) => {
      const sends = table((me, to, k) => [sent(me, to, k), size(me, to, k), received(me, to, k)]);
      const receives = table((me, from, k) => [received(from, me, k), size(from, me, k), sent(from, me, k)]);
      return ops.raggedAllToAll([x, ops.mul(x, x), mine(sends), mine(receives)], [v]);
    };
    expectLikeDevices(axes, "v", [5, 2], exchange);
    expectLikeDevices(axes, "v", [5, 2, 2], exchange, true);
  });

  test("raggedAllToAll over another axis has a table for every element of the batch", () => {
    // Every device keeps one row and sends some to the other one, by the first or the second table.
    const tables = (rows: readonly number[][][]) =>
      ops.reshape(ops.stack(rows.flat(2).map((n) => ops.full([], n, "int32"))), [2, 2, 3]);
    const sends = [
      [
        [0, 1, 1],
        [2, 2, 3],
      ],
      [
        [4, 1, 0],
        [0, 3, 2],
      ],
    ];
    const receives = [
      [
        [1, 1, 0],
        [3, 2, 2],
      ],
      [
        [0, 1, 4],
        [2, 3, 0],
      ],
    ];
    const scalar: TensorOperand = { kind: "tensor", type: tensorType("int32", []), low: 0, high: 2 };
    const matrix = (rows: number): TensorOperand => ({
      ...{ kind: "tensor", type: tensorType("float32", [rows, 2]), low: -1, high: 1 },
    });
    const axes = [deviceAxis];
    const exchange = (x: Tensor, into: Tensor, which: readonly [Tensor, Tensor]) => {
      // All devices take the same table, whose blocks are those of the devices in order.
      const own = (all: readonly number[][][], choice: Tensor) => {
        const table = ops.gather(tables(all), ops.pmax(choice, axes), { dim: 0, batchDims: 0 });
        const isFirst = ops.broadcastInDim(ops.compare("eq", ops.axisIndex(axes), 0), [2, 3], []);
        return ops.select(isFirst, table, ops.reverse(table, [0]));
      };
      return ops.raggedAllToAll([x, into, own(sends, which[0]), own(receives, which[1])], axes);
    };
    const operands = [matrix(5), matrix(6), scalar];
    const program = traceFlat(
      ([x, into, choice]) => [exchange(asTensor(x), asTensor(into), [asTensor(choice), asTensor(choice)])],
      operands.map(({ type }) => type),
    ).program;
    for (const flags of [
      [true, true, true],
      [false, true, true],
      [true, false, false],
    ]) {
      expectLikeLoop(program, operands, flags, randomNumbers(23), { size: 4 });
    }
  });

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
    const x = Tensor.fromHost(tensorType("float32", [3]), new Float32Array([1, 2, 3]));
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
          checked: false,
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

  test("an axis of a shard map hides a mapped axis of the same name", () => {
    const [operand, hidden] = [tensorType("float32", [4, 3]), sumOver(["m"], ["m"])];
    const mapped = (axisName?: string) =>
      vmapProgram(hidden, { size: 5, batchedInputs: [true], ...(axisName && { axisName }) });
    expect(printProgram(mapped("m").program)).toBe(printProgram(mapped().program));
    const rows = { name: "rows", size: 5 };
    const body = traceFlat(([x]) => [ops.psum(asTensor(x), [rows])], [tensorType("float32", [2, 3])]).program;
    const [inSpecs, outSpecs] = [[[["m"], []]], [[["m"], []]]];
    const seen = traceFlat(
      ([x]) =>
        bind("shardMap", [asTensor(x)], { mesh, manual: ["m"], inSpecs, outSpecs, checked: false, body }),
      [operand],
    ).program;
    const result = vmapProgram(seen, { size: 5, batchedInputs: [true], axisName: "rows" });
    expect(result.batchedOutputs).toEqual([false]);
    verify(result.program);
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
          checked: false,
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
    const oracle = oracleFor(verify(whole.program), { axes: [] }, [[x]]);
    run(split).forEach((value, i) => {
      expect(oracle.difference(i, 0, value)).toBeUndefined();
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
    expect(map(sumOver(["m", "n"], ["m", "n"]), "n", 4)).toThrow(/communicates over that axis/);
    expect(map(sumOver(["m"], ["m"]), "n", 3)).toThrow(/3 \/ 2 = 1.5/);
  });
});
