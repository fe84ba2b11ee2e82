import {
  debug,
  effectsBarrier,
  grad,
  type HostArray,
  hessian,
  jacfwd,
  jacrev,
  jit,
  jvp,
  lax,
  linearize,
  Mesh,
  np,
  P,
  pureCallback,
  remat,
  shardMap,
  type Tensor,
  vmap,
} from "shardwise";
import { describe, expect, test } from "vitest";
import { floatCases } from "../../../test/support/floatCases.js";
import { randomHost } from "../../../test/support/gradientChecks.js";
import { expectNear } from "../../../test/support/near.js";
import { deviceAxis } from "../../../test/support/opCases.js";
import { randomNumbers } from "../../../test/support/vmapChecks.js";
import { type HostTensor, hostTensor, numbersOf } from "../../engines/reference/hostTensor.js";
import { interpretSpmd } from "../../engines/reference/interpret.js";
import { isFloat } from "../../ir/dtype.js";
import type { OpName } from "../../ir/ops.js";
import { at, range } from "../../ir/shape.js";
import { verify } from "../../ir/verify.js";
import { simplify } from "../rewrite/simplify.js";
import { jvpProgram } from "./pushForward.js";
import { vjpRules } from "./vjpRules.js";

const opNames = Object.keys(vjpRules) as OpName[];
/** Those with a rule that is meant to differ from that of their values, or with none, have tests of their own. */
const pushed = opNames.filter(
  (op) => vjpRules[op].kind !== "zero" && !["customVjp", "roundFloat8", "callback"].includes(op),
);
const mesh = { axes: [deviceAxis] };

/** How far the two values of a difference lie apart, halved. */
const step = 1e-5;

test.each(pushed)("the change of %s in a direction is a central difference", (op) => {
  const random = randomNumbers(op.length * 7919 + 1);
  const cases = floatCases(op);
  expect(cases.length).toBeGreaterThan(0);
  for (const { program, operands } of cases) {
    const active = program.inputs.map(({ type }) => isFloat(type.dtype));
    const onDevices = (low: number, high: number, type: (typeof program.inputs)[number]["type"]) =>
      range(deviceAxis.size).map(() => randomHost(type, low, high, random));
    const inputs = program.inputs.map(({ type }, i) =>
      onDevices(at(operands, i).low, at(operands, i).high, type),
    );
    const directions = program.inputs.map(({ type }) => onDevices(-1, 1, type));
    const moved = (by: number) =>
      inputs.map((blocks, i) =>
        blocks.map((block, device): HostTensor => {
          if (!active[i]) return block;
          const along = numbersOf(at(at(directions, i), device));
          const { dtype, shape } = block.type;
          return hostTensor(
            dtype,
            shape,
            numbersOf(block).map((x, e) => x + by * at(along, e)),
          );
        }),
      );
    const both = verify(simplify(jvpProgram(program, active)));
    const results = interpretSpmd(both, mesh, [...inputs, ...directions.filter((_, i) => active[i])]);
    const [above, below] = [moved(step), moved(-step)].map((at) => interpretSpmd(program, mesh, at));
    program.outputs.forEach(({ type }, o) => {
      if (!isFloat(type.dtype)) return;
      range(deviceAxis.size).forEach((device) => {
        const change = numbersOf(at(at(results, program.outputs.length + o), device));
        const [high, low] = [above, below].map((outs) => numbersOf(at(at(outs ?? [], o), device)));
        const differences = change.map((_, e) => (at(high ?? [], e) - at(low ?? [], e)) / (2 * step));
        expectNear(change, differences, 1e-6, `the change of ${op}`);
      });
    });
  }
});

describe("forward mode", () => {
  /** The root of x by Newton's method, until a step changes little. */
  const root = (x: Tensor): Tensor => {
    const [found] = lax.whileLoop(
      ([y, last]: readonly [Tensor, Tensor]) => np.greater(np.abs(y.sub(last)), 1e-4),
      ([y]: readonly [Tensor, Tensor]) => [y.add(x.div(y)).mul(0.5), y] as const,
      [np.ones([]), np.zeros([])],
    );
    return found;
  };

  test("goes through loops of dynamic length, alone, compiled and over batches", async () => {
    const [value, slope] = jit((x: Tensor) => jvp(root, [x], [np.array(1)]))(np.array(4));
    expect(await value.item()).toBeCloseTo(2, 5);
    expect(await slope.item()).toBeCloseTo(0.25, 4);
    const [, push] = linearize(root, [np.array(9)]);
    expect(await push(np.array(3)).item()).toBeCloseTo(0.5, 4);
    const slopes = vmap((x: Tensor) => jvp(root, [x], [np.array(1)])[1])(np.array([4, 16, 25]));
    expect(await np.allclose(slopes, np.array([0.25, 0.125, 0.1]), { atol: 1e-4 }).item()).toBe(1);
    const jacobian = jacfwd((x: Tensor) => np.stack([root(x.get(0)), root(x.get(1)).mul(x.get(0))]))(
      np.array([4, 9]),
    );
    const want = np.array([
      [0.25, 0],
      [3, 4 / 6],
    ]);
    expect(await np.allclose(jacobian, want, { atol: 1e-3 }).item()).toBe(1);
    expect(() => grad(root)(np.array(4))).toThrow(/no reverse derivative/);
  });

  test("agrees with the way back in scans, choices, remat and custom rules, twice too", async () => {
    const f = (x: Tensor) => {
      const body = remat((y: Tensor) => np.sin(y).mul(x));
      const [last, ys] = lax.scan((y: Tensor) => [body(y), y] as const, x, null, { length: 3 });
      const chosen = lax.cond(
        np.greater(np.sum(x), 0),
        (y: Tensor) => y.mul(y),
        (y: Tensor) => y.neg(),
        last,
      );
      return chosen.add(np.sum(ys, 0));
    };
    const x = np.array([0.3, 0.7]);
    expect(await np.allclose(jacfwd(f)(x), jacrev(f)(x), { atol: 1e-5 }).item()).toBe(1);
    const sum = (v: Tensor) => np.sum(f(v));
    const second = jacrev(jacrev(sum))(x);
    expect(await np.allclose(hessian(sum)(x), second, { atol: 1e-4 }).item()).toBe(1);
  });

  test("goes through shard maps, whose sums are sums of changes", async () => {
    const devices = Mesh.create({ data: 2 });
    const f = shardMap((x: Tensor, w: Tensor) => lax.psum(np.sum(np.sin(x.mul(w))), "data").mul(w), {
      mesh: devices,
      inSpecs: [P("data"), P()],
      outSpecs: P(),
    });
    const plain = (x: Tensor, w: Tensor) => np.sum(np.sin(x.mul(w))).mul(w);
    const [x, w] = [np.arange(4, "float32"), np.array(0.5)];
    const run = (g: typeof plain) => jvp(g, [x, w], [np.ones([4]), np.array(2)]);
    const [got, want] = [run((a, b) => jit(f)(a, b)), run(plain)];
    expect(await np.allclose(got[0], want[0]).item()).toBe(1);
    expect(await np.allclose(got[1], want[1]).item()).toBe(1);
  });

  test("tells the host once, and has nothing to say of what the host computes", async () => {
    const seen: number[] = [];
    const note = (x: HostArray) => void seen.push(x.item());
    const f = (x: Tensor) => {
      debug.callback(note, x);
      return np.sin(x);
    };
    jvp(f, [np.array(1)], [np.array(1)]);
    const [, push] = linearize(f, [np.array(2)]);
    push(np.array(1));
    push(np.array(2));
    await effectsBarrier();
    expect(seen).toEqual([1, 2]);
    const called = (x: Tensor) => pureCallback((v: HostArray) => v, x, [x]);
    expect(() => jvp(called, [np.array(1)], [np.array(1)])).toThrow(/\[jvp\] callback: .*customJvp/);
  });

  test("refuses tangents that do not fit", () => {
    expect(() => jvp(np.sin, [np.ones([2])], [np.ones([3])])).toThrow(
      /\[jvp\] tangent 0 is f32\[3\] but the value is f32\[2\]/,
    );
  });
});
