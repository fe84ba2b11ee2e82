import { describe, expect, test } from "vitest";
import { blockOf } from "../../../../test/support/blockOf.js";
import { text } from "../../../../test/support/compilerText.js";
import { buildProgram, type Emit } from "../../../../test/support/interpreting.js";
import { type HostTensor, hostTensor, numbersOf } from "../../../engines/reference/hostTensor.js";
import { interpretSpmd } from "../../../engines/reference/interpret.js";
import {
  devicePut,
  jit,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  random,
  shardMap,
  type Tensor,
} from "../../../index.js";
import type { Spec } from "../../../ir/mesh.js";
import { type Atom, newLiteral, type Program, type Var } from "../../../ir/program.js";
import { at, range, sizeOf, tensorType } from "../../../ir/shape.js";
import { printProgram } from "../../../ir/text/print.js";
import { verify } from "../../../ir/verify.js";
import { splitUpdates } from "./splitUpdates.js";

const axes = [{ name: "data", size: 4 }];
/** The smallest that is split. */
const weight = tensorType("float32", [128, 128]);
const whole: Spec = [[], []];
const number = (value: number) => newLiteral(value, "float32");

/** A program over weights, all of them whole on every device, with its gradient last, which devices have of their own. */
function split(program: Program) {
  const specs = program.inputs.map(
    (_, i): Spec => (i === program.inputs.length - 1 ? [["data"], []] : whole),
  );
  const outSpecs = program.outputs.map(({ type }): Spec => type.shape.map(() => []));
  const result = splitUpdates({ program, inSpecs: specs, outSpecs });
  verify(result.program, "partitioned");
  return result;
}

const one = (emit: Emit, op: "add" | "mul" | "sub", ...ins: Atom[]): Var => at(emit(op, ins, {}), 0);
const sum = (emit: Emit, x: Var): Var => at(emit("psum", [x], { axes }), 0);

/** A step of gradient descent with momentum: the next weights and the next momentum. */
const momentum = (more: (emit: Emit, g: Var, next: Var) => readonly Atom[] = () => []) =>
  buildProgram([weight, weight, weight], (emit, w, m, g) => {
    const whole = sum(emit, one(emit, "mul", w, g));
    const next = one(emit, "add", one(emit, "mul", m, number(0.5)), whole);
    return [one(emit, "sub", w, one(emit, "mul", next, number(0.25))), next, ...more(emit, whole, next)];
  });

const layers = tensorType("float32", [2, 128, 128]);

/** A step of momentum whose gradients are those of the layers that a loop runs over. */
const layered = (more: (emit: Emit, sums: Var) => readonly Atom[] = () => []) =>
  buildProgram([layers, layers, layers], (emit, w, m, g) => {
    const body = buildProgram([weight, weight], (inner, row, own) => [
      sum(inner, one(inner, "mul", row, own)),
    ]);
    const params = { body, length: 2, reverse: true, numConsts: 0, numCarry: 0 };
    const sums = at(emit("scan", [w, g], params), 0);
    const next = one(emit, "add", one(emit, "mul", m, number(0.5)), sums);
    return [one(emit, "sub", w, next), next, ...more(emit, sums)];
  });

/** Runs a program on all devices, with inputs and outputs as specs say; what comes is put together again. */
function run(program: Program, types: readonly Var[], inSpecs: readonly Spec[]): HostTensor[][] {
  const mesh = { axes };
  const inputs = types.map(({ type }, i) => {
    const values = range(sizeOf(type.shape)).map((k) => Math.fround(Math.sin(k + 77 * i)));
    const tensor = hostTensor(type.dtype, type.shape, values);
    // The gradient is another one on every device.
    return range(4).map((device) =>
      i === types.length - 1
        ? hostTensor(
            type.dtype,
            type.shape,
            values.map((v) => Math.fround(v / (device + 1.3))),
          )
        : blockOf(tensor, at(inSpecs, i), mesh, device),
    );
  });
  return interpretSpmd(program, mesh, inputs);
}

describe("an update that all devices would do", () => {
  test("is done by each for its rows: scattered sums, momentum that stays split, gathered weights", () => {
    const program = momentum();
    expect(printProgram(program)).toBe(text`
      (%0:f32[128,128], %1:f32[128,128], %2:f32[128,128]) {
        %3:f32[128,128] = mul %0 %2
        %4:f32[128,128] = psum %3 {axes: {data: 4}}
        %5:f32[128,128] = mul %1 0.5
        %6:f32[128,128] = add %5 %4
        %7:f32[128,128] = mul %6 0.25
        %8:f32[128,128] = sub %0 %7
        return %8, %6
      }`);
    const { program: after, inSpecs, outSpecs } = split(program);
    expect(printProgram(after)).toBe(text`
      (%0:f32[128,128], %1:f32[32,128], %2:f32[128,128]) {
        %3:f32[128,128] = mul %0 %2
        %4:f32[32,128] = psumScatter %3 {axes: {data: 4}, dim: 0}
        %5:f32[32,128] = mul %1 0.5
        %6:f32[32,128] = add %5 %4
        %7:f32[32,128] = mul %6 0.25
        %8:i32[] = axisIndex {axes: {data: 4}}
        %9:i32[] = mul %8 32
        %10:f32[32,128] = dynamicSlice %0 %9 0 {sizes: [32,128]}
        %11:f32[32,128] = sub %10 %7
        %12:f32[128,128] = allGather %11 {axes: {data: 4}, dim: 0}
        return %12, %6
      }`);
    expect(inSpecs).toEqual([whole, [["data"], []], [["data"], []]]);
    expect(outSpecs).toEqual([whole, [["data"], []]]);
  });

  test("gives the same bits", () => {
    const program = momentum();
    const after = split(program);
    const wholeSpecs = program.inputs.map(() => whole);
    const want = run(program, program.inputs, wholeSpecs);
    const got = run(after.program, program.inputs, after.inSpecs);
    want.forEach((row, i) => {
      row.forEach((tensor, device) => {
        const block = blockOf(tensor, at(after.outSpecs, i), { axes }, device);
        expect(numbersOf(at(at(got, i), device))).toEqual(numbersOf(block));
      });
    });
  });

  test("may look at the norm of all gradients, which is a sum of the devices' sums", () => {
    const program = momentum((emit, g) => emit("reduceSum", [one(emit, "mul", g, g)], { dims: [0, 1] }));
    const after = split(program);
    const ops = after.program.eqns.map(({ op }) => op);
    expect(ops.filter((op) => op === "psum")).toHaveLength(1);
    expect(ops.filter((op) => op === "psumScatter")).toHaveLength(1);
    const [want, got] = [
      run(
        program,
        program.inputs,
        program.inputs.map(() => whole),
      ),
      run(after.program, program.inputs, after.inSpecs),
    ].map((rows) => numbersOf(at(at(rows, 2), 3))[0] ?? 0);
    expect(Math.abs(Number(got) / Number(want) - 1)).toBeLessThan(1e-6);
  });
});

describe("gradients that a loop over layers stacks", () => {
  test("are scattered in the loop, along a dim of the layers", () => {
    expect(printProgram(split(layered()).program)).toBe(text`
      (%0:f32[2,128,128], %1:f32[2,32,128], %2:f32[2,128,128]) {
        %3:f32[2,32,128] = scan %0 %2 {length: 2, reverse: true, numConsts: 0, numCarry: 0} (%4:f32[128,128], %5:f32[128,128]) {
          %6:f32[128,128] = mul %4 %5
          %7:f32[32,128] = psumScatter %6 {axes: {data: 4}, dim: 0}
          return %7
        }
        %8:f32[2,32,128] = mul %1 0.5
        %9:f32[2,32,128] = add %8 %3
        %10:i32[] = axisIndex {axes: {data: 4}}
        %11:i32[] = mul %10 32
        %12:f32[2,32,128] = dynamicSlice %0 0 %11 0 {sizes: [2,32,128]}
        %13:f32[2,32,128] = sub %12 %9
        %14:f32[2,128,128] = allGather %13 {axes: {data: 4}, dim: 1}
        return %14, %9
      }`);
  });

  test("have the same bits", () => {
    const program = layered();
    const after = split(program);
    const want = run(
      program,
      program.inputs,
      program.inputs.map(() => []),
    );
    const got = run(after.program, program.inputs, after.inSpecs);
    want.forEach((row, i) => {
      row.forEach((tensor, device) => {
        const block = blockOf(tensor, at(after.outSpecs, i), { axes }, device);
        expect(numbersOf(at(at(got, i), device))).toEqual(numbersOf(block));
      });
    });
  });

  test("are summed whole where something else reads them", () => {
    const program = layered((emit, sums) => emit("transpose", [sums], { permutation: [0, 2, 1] }));
    expect(split(program).program.eqns.map(({ op }) => op)).toEqual(program.eqns.map(({ op }) => op));
  });
});

describe("an update stays whole", () => {
  const eqns = ({ eqns: list }: Program) => list.map(({ op }) => op);
  const isWhole = (program: Program) => expect(eqns(split(program).program)).toEqual(eqns(program));

  test("when the summed gradient is an output too: more would be gathered than was summed", () => {
    isWhole(momentum((_, g) => [g]));
  });

  test("when something else than elementwise work reads it", () => {
    isWhole(momentum((emit, _, next) => emit("transpose", [next], { permutation: [1, 0] })));
  });

  test("when it takes something that differs from device to device", () => {
    isWhole(
      buildProgram([weight, weight], (emit, w, g) => [
        one(emit, "sub", one(emit, "mul", w, sum(emit, g)), g),
      ]),
    );
  });

  test("when no dim splits evenly, and when there is little of it", () => {
    for (const type of [tensorType("float32", [129, 131]), tensorType("float32", [64, 64])]) {
      isWhole(buildProgram([type, type], (emit, w, g) => [one(emit, "sub", w, sum(emit, g))]));
    }
  });
});

describe("state that is kept split between steps", () => {
  const mesh = Mesh.create({ data: 4 });
  const step = jit(
    shardMap(
      (w: Tensor, m: Tensor, x: Tensor) => {
        // The product with zero reads the weights whole, as a forward pass does.
        const gradient = np.matmul(np.swapaxes(x, 0, 1), x).add(np.matmul(w, w).mul(0));
        const next = m.mul(0.5).add(lax.psum(gradient, "data"));
        return [w.sub(next.mul(0.25)), next] as const;
      },
      { mesh, inSpecs: [P(), P(), P("data")], outSpecs: [P(), P()], checkReplication: false },
    ),
    { donate: [0, 1] },
  );
  const start = () => devicePut(random.normal(random.key(0), [128, 128]), new NamedSharding(mesh, P()));
  const rows = random.normal(random.key(1), [8, 128]);
  const gradient = np.matmul(np.swapaxes(rows, 0, 1), rows);
  const close = async (got: Tensor, want: Tensor) => {
    const apart = await np.max(np.abs(np.subtract(np.array(await got.data()), want.reshape([-1])))).item();
    expect(apart).toBeLessThan(1e-4);
  };

  test("is still whole for whoever asks, before and after other steps", async () => {
    let [w, m] = [await start(), np.zerosLike(await start())];
    [w, m] = step(w, m, rows);
    [w, m] = step(w, m, rows);
    expect(String(m.sharding)).toBe(String(w.sharding));
    await close(m, gradient.mul(1.5));
    // Another program takes it whole; the next step takes it from there.
    await close(jit((x: Tensor) => np.swapaxes(x, 0, 1).mul(2))(m), gradient.mul(3));
    [w, m] = step(w, m, rows);
    const shards = m.addressableShards;
    expect(shards.map(({ data }) => data.shape)).toEqual(range(4).map(() => [128, 128]));
    for (const { data } of shards) await close(data, gradient.mul(1.75));
    [w, m] = step(w, m, rows);
    await close(m, gradient.mul(1.875));
    await close(w, (await start()).sub(gradient.mul(0.25 * (1 + 1.5 + 1.75 + 1.875))));
  });

  test("gives its memory back once", async () => {
    const [w, m] = step(await start(), np.zerosLike(await start()), rows);
    await m.data();
    m.dispose();
    w.dispose();
    await expect(async () => m.data()).rejects.toThrow(/was released/);
  });
});
