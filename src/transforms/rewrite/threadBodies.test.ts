import { customVjp, jit, lax, Mesh, makeProgram, np, P, remat, shardMap, type Tensor } from "shardwise";
import { expect, test } from "vitest";
import { bodiesOf, flow, groupsOf, inGroups } from "../../ir/bodies.js";
import type { ProgramOp } from "../../ir/ops.js";
import { type Eqn, hasPrograms, innerPrograms, type Program } from "../../ir/program.js";
import { at, typesOf } from "../../ir/shape.js";
import { verify } from "../../ir/verify.js";
import { inline, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor as TensorClass } from "../../trace/tensor.js";
import { Threading } from "./threadBodies.js";

const mesh = Mesh.create({ i: 2 });

const doubled = customVjp((y: Tensor) => y.mul(2), {
  forward: (y: Tensor): [Tensor, Tensor] => [y.mul(2), y],
  backward: (_, ct) => [ct.mul(2)],
});

/** For every op with bodies a function of four ones, and how often its body runs. */
const cases: { readonly [K in ProgramOp]: readonly [fn: (x: Tensor) => Tensor, runs: number] } = {
  scan: [(x) => lax.scan((sum: Tensor, y: Tensor) => [sum.add(y), null] as const, np.array(0), x)[0], 4],
  while: [
    (x) =>
      lax.whileLoop(
        (y: Tensor) => np.sum(y).lt(np.sum(x).mul(3)),
        (y: Tensor) => y.mul(2),
        x,
      ),
    2,
  ],
  cond: [
    (x) =>
      lax.cond(
        np.sum(x).gt(0),
        (y: Tensor) => y.mul(2),
        (y: Tensor) => y.add(1),
        x,
      ),
    1,
  ],
  remat: [remat((y: Tensor) => np.sin(y)), 1],
  customVjp: [(x) => doubled(x), 1],
  shardMap: [shardMap((y: Tensor) => y.mul(2), { mesh, inSpecs: P("i"), outSpecs: P("i") }), 1],
};

const names = Object.keys(cases) as ProgramOp[];

function programOf(op: ProgramOp): Program {
  return makeProgram(cases[op][0])(np.ones([4]));
}

function withBodiesIn({ eqns }: Program): Eqn<ProgramOp> {
  return at(eqns.filter(hasPrograms), 0);
}

/** The program with one more result: a counter that is threaded through its op with bodies and raised in each run. */
function counting(program: Program): Program {
  const eqn = withBodiesIn(program);
  const isLoop = bodiesOf(eqn).sizes.carry !== undefined;
  const apply = (ins: readonly Tensor[]) => {
    const counter = [{ tensor: TensorClass.scalar(0, "int32"), spec: [] }];
    const threading = new Threading(eqn, ins, isLoop ? { carry: counter } : { consts: counter });
    const run = (body: Program, own: readonly Tensor[], count: Tensor) => ({
      own: inline(body, own),
      added: { [isLoop ? "carry" : "ys"]: [ops.add(count, 1)] },
    });
    return threading.apply(
      (body, { own, added }) => run(body.program, own, at((isLoop ? added.carry : added.consts) ?? [], 0)),
      "count",
      [[]],
    );
  };
  const before = program.eqns.slice(0, program.eqns.indexOf(eqn));
  const operands = { inputs: program.inputs, eqns: before, outputs: eqn.ins };
  return traceFlat((args) => {
    const { own, added } = apply(inline(operands, args));
    return [...own, ...inGroups(["carry", "ys"], added)];
  }, typesOf(program.inputs)).program;
}

test.each(names)("a counter that is threaded through %s counts the runs of its body", async (op) => {
  const program = programOf(op);
  const counted = verify(counting(program));
  const [fn, runs] = cases[op];
  const [expected, result, count] = jit((x: Tensor) => [fn(x), ...inline(counted, [x])])(np.ones([4]));
  expect(await count?.js()).toBe(runs);
  expect(await result?.js()).toEqual(await expected?.js());
});

test.each(names)("the description of %s matches its operands, results and bodies", (op) => {
  const eqn = withBodiesIn(programOf(op));
  const { operands, results, sizes, bodies } = bodiesOf(eqn);
  const size = (order: typeof operands) => order.reduce((sum, group) => sum + (sizes[group] ?? 0), 0);
  expect(size(operands)).toBe(eqn.ins.length);
  expect(size(results)).toBe(eqn.outs.length);
  expect(bodies.map(({ program }) => program)).toEqual(innerPrograms(eqn).map(([, program]) => program));
  for (const { program, inputs, outputs } of bodies) {
    expect([size(inputs), size(outputs)]).toEqual([program.inputs.length, program.outputs.length]);
    expect(inGroups(inputs, groupsOf(inputs, sizes, program.inputs))).toEqual(program.inputs);
  }
});

test("a fact about a carry holds in every iteration", () => {
  type Carry = [Tensor, Tensor, Tensor];
  const program = makeProgram((x: Tensor) =>
    lax.scan<Carry, Tensor, Tensor>(([a, b, c], y) => [[y, a, b], c], [np.sum(x), np.sum(x), np.sum(x)], x),
  )(np.ones([4]));
  const eqn = withBodiesIn(program);
  const depends = (body: Program, flags: readonly boolean[]) =>
    body.outputs.map(
      (out) => flags[body.inputs.findIndex(({ id }) => out.kind === "var" && id === out.id)] ?? false,
    );
  const { ins, outs } = flow<ProgramOp, boolean>(eqn, [false, false, false, true], depends, (a, b) => a || b);
  expect(ins).toEqual([true, true, true, true]);
  expect(outs).toEqual([true, true, true, true]);
});
