import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import { createReferenceEngine } from "../../engines/index.js";
import {
  checkpointName,
  checkpointPolicies,
  customVjp,
  grad,
  lax,
  Mesh,
  makeProgram,
  P,
  printProgram,
  type RematOptions,
  type RematPolicyFunction,
  remat,
  shardMap,
  simplify,
  type Tensor,
  valueAndGrad,
  verify,
  vmap,
} from "../../index.js";
import type { RematPolicy } from "../../ir/ops.js";
import { forEachEqn, type Program } from "../../ir/program.js";
import { dotProductAttention } from "../../nn/index.js";
import * as np from "../../numpy/index.js";
import { switchCase } from "../control/cond.js";
import { scan } from "../control/scan.js";

const count = (program: Program, op: string): number => {
  let found = 0;
  forEachEqn(program, (eqn) => {
    if (eqn.op === op) found++;
  });
  return found;
};
const dataOf = async (x: Tensor) => Array.from(await x.data(), Number);

const w = np.array([
  [0.5, -0.25],
  [1, 0.75],
]);
const x = np.array([
  [1, 2],
  [0.5, -1],
]);

describe("remat", () => {
  const layer = (w: Tensor, x: Tensor) => {
    const hidden = checkpointName(np.tanh(np.matmul(x, w)), "hidden");
    const scores = np.einsum("bij,bkj->bik", hidden.reshape([2, 1, 2]), hidden.reshape([2, 1, 2]));
    return np.sum(np.sin(np.matmul(hidden, w))).add(np.sum(np.cos(scores)));
  };
  const both = checkpointPolicies.saveFromBothPolicies(
    checkpointPolicies.dotsSaveable,
    checkpointPolicies.saveOnlyTheseNames("hidden"),
  );
  const policies: Readonly<Record<string, RematPolicy>> = {
    nothingSaveable: checkpointPolicies.nothingSaveable,
    everythingSaveable: checkpointPolicies.everythingSaveable,
    dotsSaveable: checkpointPolicies.dotsSaveable,
    dotsWithNoBatchDimsSaveable: checkpointPolicies.dotsWithNoBatchDimsSaveable,
    'saveOnlyTheseNames("hidden")': checkpointPolicies.saveOnlyTheseNames("hidden"),
    'saveOnlyTheseNames("other")': checkpointPolicies.saveOnlyTheseNames("other"),
    'saveAnyNamesButThese("hidden")': checkpointPolicies.saveAnyNamesButThese("hidden"),
    saveFromBothPolicies: both,
  };

  test.each(Object.entries(policies))("with %s changes neither values nor gradients", async (_, policy) => {
    const kept = remat(layer, { policy });
    await expectClose(kept(w, x), await layer(w, x).item());
    const argnums = [0, 1] as const;
    const [got, want] = [grad(kept, { argnums })(w, x), grad(layer, { argnums })(w, x)];
    for (const i of argnums) await expectClose(got[i], await dataOf(want[i]), { ulps: 2 });
  });

  /** How often each op runs in the gradient's program. */
  const runs = (policy: RematPolicy) => {
    const program = verify(makeProgram(grad(remat(layer, { policy })))(w, x));
    return { dots: count(program, "dotGeneral"), tanhs: count(program, "tanh") };
  };

  test("shows in the printed program what is computed again", () => {
    // Forward there are three products, one of them batched, and the gradient by w needs five more.
    expect(runs(checkpointPolicies.everythingSaveable)).toEqual({ dots: 8, tanhs: 1 });
    expect(runs(checkpointPolicies.nothingSaveable)).toEqual({ dots: 11, tanhs: 2 });
    expect(runs(checkpointPolicies.dotsSaveable)).toEqual({ dots: 8, tanhs: 2 });
    expect(runs(checkpointPolicies.dotsWithNoBatchDimsSaveable)).toEqual({ dots: 9, tanhs: 2 });
    expect(runs(checkpointPolicies.saveOnlyTheseNames("hidden"))).toEqual({ dots: 10, tanhs: 1 });
    expect(runs(both)).toEqual({ dots: 8, tanhs: 1 });
    const text = printProgram(makeProgram(grad(remat(layer)))(w, x));
    const [forward = "", again = ""] = text.split("optimizationBarrier");
    expect(forward).toContain("tanh");
    expect(again).toContain("tanh");
  });

  test("keeps inside a scan what its policy names, and nothing else", () => {
    const loss = (policy: RematPolicy) => (v: Tensor) => {
      const step = remat((c: Tensor) => checkpointName(np.tanh(np.sin(c)), "kept").mul(2), { policy });
      return np.sum(scan((c: Tensor): [Tensor, null] => [step(c), null], v, null, { length: 7 })[0]);
    };
    const stacks = (policy: RematPolicy) => {
      const program = verify(makeProgram(grad(loss(policy)))(np.zeros([3])));
      const forward = program.eqns.find((eqn) => eqn.op === "scan");
      return (forward?.outs.length ?? 0) - 1;
    };
    expect(stacks(checkpointPolicies.nothingSaveable)).toBe(1);
    expect(stacks(checkpointPolicies.saveOnlyTheseNames("kept"))).toBe(2);
    expect(stacks(checkpointPolicies.everythingSaveable)).toBe(2);
  });

  test("keeps all that an op gives of which one result has a name", () => {
    const policy = checkpointPolicies.saveOnlyTheseNames("mixed");
    const block = remat(
      (v: Tensor) => {
        const mixed = checkpointName(dotProductAttention(np.sin(v), v, v, { isCausal: true }), "mixed");
        return np.sum(mixed.astype("float32"));
      },
      { policy },
    );
    const program = verify(makeProgram(grad(block))(np.zeros([1, 4, 2, 8], { dtype: "bfloat16" })));
    expect([count(program, "attention"), count(program, "sin")]).toEqual([1, 2]);
  });

  test("can be nested and differentiated twice", async () => {
    const f = (v: Tensor) => remat((u: Tensor) => remat((t: Tensor) => np.sin(t).mul(t))(u).mul(u))(v);
    const plain = (v: Tensor) => np.sin(v).mul(v).mul(v);
    await expectClose(grad(grad(f))(np.array(0.7)), await grad(grad(plain))(np.array(0.7)).item());
  });
});

type Fn = (w: Tensor, x: Tensor) => Tensor;

/** The functions of test/jax/rematCounts.py. */
const layer: Fn = (w, c) => {
  const hidden = np.sin(checkpointName(np.matmul(c, w), "hidden"));
  const blocks = hidden.reshape([2, 1, 2]);
  const scores = np.einsum("bij,bkj->bik", blocks, np.cos(blocks));
  const result = checkpointName(np.matmul(hidden, w), "result");
  return np.cos(result).mul(np.sin(np.sum(scores)));
};
const repeated = (step: (c: Tensor) => Tensor, start: Tensor, length: number): Tensor =>
  scan((c: Tensor): [Tensor, null] => [step(c), null], start, null, { length })[0];
const chosen = (x: Tensor, branches: ((c: Tensor) => Tensor)[]): Tensor =>
  switchCase(np.sum(x).gt(0).astype("int32"), branches, x);
const loop: Fn = (w, x) => repeated((c) => layer(w, c), x, 3);
const choice: Fn = (w, x) => chosen(x, [(c) => layer(w, c), (c) => np.sin(np.matmul(c, w))]);
const ruled = customVjp((w: Tensor, x: Tensor) => np.sin(np.matmul(x, w)), {
  forward: (w: Tensor, x: Tensor) => {
    const hidden = checkpointName(np.matmul(x, w), "hidden");
    return [np.sin(hidden), [hidden, w, x] as const];
  },
  backward: ([hidden, w, x]: readonly [Tensor, Tensor, Tensor], ct: Tensor) => {
    const inner = ct.mul(np.cos(hidden));
    return [np.matmul(x.T, inner), np.matmul(inner, w.T)];
  },
});
const functions = {
  layer,
  loop,
  stacked: (w, x) => {
    const step = (c: Tensor, row: Tensor): [Tensor, Tensor] => [
      np.sin(np.matmul(c, w)),
      np.cos(np.matmul(row, w)),
    ];
    return np.sin(scan(step, x, np.stack([x, x]))[1]);
  },
  invariant: (w, x) => repeated((c) => np.sin(np.matmul(c, np.sin(np.matmul(w, w)))), x, 3),
  choice,
  loopInLoop: (w, x) => repeated((c) => np.sin(np.matmul(loop(w, c), w)), x, 2),
  choiceInLoop: (w, x) => repeated((c) => choice(w, c), x, 2),
  loopInChoice: (w, x) => chosen(x, [(c) => loop(w, c), (c) => c.mul(2)]),
  rematInLoop: (w, x) => repeated((c) => remat(layer)(w, c), x, 3),
  dotsInLoop: (w, x) =>
    repeated((c) => remat(layer, { policy: checkpointPolicies.dotsSaveable })(w, c), x, 3),
  rule: (w, x) => np.sin(ruled(w, x)),
  ruleInLoop: (w, x) => repeated((c) => ruled(w, c), x, 3),
} as const satisfies Record<string, Fn>;

const policies = {
  nothing: checkpointPolicies.nothingSaveable,
  everything: checkpointPolicies.everythingSaveable,
  dots: checkpointPolicies.dotsSaveable,
  dotsWithNoBatchDims: checkpointPolicies.dotsWithNoBatchDimsSaveable,
  names: checkpointPolicies.saveOnlyTheseNames("hidden"),
  otherNames: checkpointPolicies.saveOnlyTheseNames("other"),
  exceptNames: checkpointPolicies.saveAnyNamesButThese("hidden"),
} as const satisfies Record<string, RematPolicy>;

/** The matrix products of the gradient in JAX 0.10, printed by test/jax/rematCounts.py. */
const productsInJax: Readonly<Record<keyof typeof functions, Record<keyof typeof policies, number>>> = {
  layer: {
    nothing: 12,
    everything: 9,
    dots: 9,
    dotsWithNoBatchDims: 10,
    names: 11,
    otherNames: 12,
    exceptNames: 11,
  },
  loop: {
    nothing: 12,
    everything: 9,
    dots: 9,
    dotsWithNoBatchDims: 10,
    names: 11,
    otherNames: 12,
    exceptNames: 11,
  },
  stacked: {
    nothing: 4,
    everything: 3,
    dots: 3,
    dotsWithNoBatchDims: 3,
    names: 4,
    otherNames: 4,
    exceptNames: 4,
  },
  invariant: {
    nothing: 8,
    everything: 6,
    dots: 6,
    dotsWithNoBatchDims: 6,
    names: 8,
    otherNames: 8,
    exceptNames: 8,
  },
  choice: {
    nothing: 16,
    everything: 12,
    dots: 12,
    dotsWithNoBatchDims: 13,
    names: 15,
    otherNames: 16,
    exceptNames: 15,
  },
  loopInLoop: {
    nothing: 16,
    everything: 12,
    dots: 12,
    dotsWithNoBatchDims: 13,
    names: 15,
    otherNames: 16,
    exceptNames: 15,
  },
  choiceInLoop: {
    nothing: 16,
    everything: 12,
    dots: 12,
    dotsWithNoBatchDims: 13,
    names: 15,
    otherNames: 16,
    exceptNames: 15,
  },
  loopInChoice: {
    nothing: 12,
    everything: 9,
    dots: 9,
    dotsWithNoBatchDims: 10,
    names: 11,
    otherNames: 12,
    exceptNames: 11,
  },
  rematInLoop: {
    nothing: 15,
    everything: 9,
    dots: 9,
    dotsWithNoBatchDims: 11,
    names: 13,
    otherNames: 15,
    exceptNames: 13,
  },
  dotsInLoop: {
    nothing: 12,
    everything: 9,
    dots: 9,
    dotsWithNoBatchDims: 10,
    names: 11,
    otherNames: 12,
    exceptNames: 11,
  },
  rule: {
    nothing: 4,
    everything: 3,
    dots: 3,
    dotsWithNoBatchDims: 3,
    names: 3,
    otherNames: 4,
    exceptNames: 4,
  },
  ruleInLoop: {
    nothing: 4,
    everything: 3,
    dots: 3,
    dotsWithNoBatchDims: 3,
    names: 3,
    otherNames: 4,
    exceptNames: 4,
  },
};

describe("remat with a policy", () => {
  const lossOf = (fn: Fn, policy?: RematPolicy) => (w: Tensor, x: Tensor) =>
    np.sum(np.sin((policy ? remat(fn, { policy }) : fn)(w, x)));
  const argnums = [0, 1] as const;
  const gradientOf = (fn: Fn, policy?: RematPolicy) => grad(lossOf(fn, policy), { argnums });
  const entries = <T extends object>(record: T) => Object.entries(record) as [keyof T, T[keyof T]][];

  describe.each(entries(functions))("around %s", (name, fn) => {
    test("computes the products again that JAX computes again", () => {
      const counts = entries(policies).map(([kind, policy]) => {
        const program = simplify(verify(makeProgram(gradientOf(fn, policy))(w, x)));
        return [kind, count(program, "dotGeneral")];
      });
      expect(Object.fromEntries(counts)).toEqual(productsInJax[name]);
    });

    const results = async (policy?: RematPolicy) => [
      await dataOf(lossOf(fn, policy)(w, x)),
      ...(await Promise.all(gradientOf(fn, policy)(w, x).map(dataOf))),
      ...(await Promise.all(gradientOf(fn, policy)(w, x.neg()).map(dataOf))),
    ];
    let plain: ReturnType<typeof results> | undefined;

    test.each(entries(policies))("%s changes neither values nor gradients", async (_, policy) => {
      plain ??= results();
      expect(await results(policy)).toEqual(await plain);
    });
  });
});

describe("what remat keeps", () => {
  const { dotsSaveable, nothingSaveable, saveFromBothPolicies, everythingSaveable } = checkpointPolicies;
  const sumOf = (fn: Fn, policy: RematPolicy) => (w: Tensor, x: Tensor) =>
    np.sum(np.sin(remat(fn, { policy })(w, x)));
  const gradientOf = (fn: Fn, policy: RematPolicy) =>
    simplify(verify(makeProgram(grad(sumOf(fn, policy), { argnums: [0, 1] }))(w, x)));
  /** The shapes that the first loop of a program stacks. */
  const stackedBy = ({ eqns }: Program) => {
    const forward = eqns.find(({ op }) => op === "scan");
    return forward?.op === "scan"
      ? forward.outs.slice(forward.params.numCarry).map(({ type }) => type.shape)
      : undefined;
  };

  test("of a loop is stacked, and only what the way back reads", () => {
    const read: Fn = (w, x) => repeated((c) => np.sin(np.matmul(c, w)), x, 3);
    expect(stackedBy(gradientOf(read, nothingSaveable))).toEqual([]);
    expect(stackedBy(gradientOf(read, dotsSaveable))).toEqual([[3, 2, 2]]);
    // The product goes into a sum, whose derivative does not ask for it.
    const step =
      (w: Tensor) =>
      (c: Tensor, _: Tensor): [Tensor, Tensor] => [np.sin(c), np.sum(np.matmul(c, w))];
    const unread: Fn = (w, x) => scan(step(w), x, np.zeros([3]))[1];
    expect(stackedBy(gradientOf(unread, nothingSaveable))).toEqual([[3]]);
    expect(stackedBy(gradientOf((w, x) => np.sum(unread(w, x)), dotsSaveable))).toEqual([[3]]);
  });

  test("is the same in all iterations where it depends on constants only, and is computed once", () => {
    const program = gradientOf(functions.invariant, dotsSaveable);
    expect(stackedBy(program)).toEqual([[3, 2, 2]]);
    const before = program.eqns.slice(
      0,
      program.eqns.findIndex(({ op }) => op === "scan"),
    );
    expect(before.filter(({ op }) => op === "dotGeneral")).toHaveLength(1);
  });

  test("of a shard map stays on its devices", async () => {
    const mesh = Mesh.create({ i: 2 }, { engine: await createReferenceEngine({ numDevices: 2 }) });
    const mapped: Fn = shardMap(
      (w: Tensor, x: Tensor) => {
        const total = lax.psum(np.sum(checkpointName(np.sin(x), "hidden")), "i");
        return np.sin(np.matmul(x, w)).mul(np.cos(checkpointName(total, "hidden")));
      },
      { mesh, inSpecs: [P(), P("i")], outSpecs: P("i") },
    );
    const names = checkpointPolicies.saveOnlyTheseNames("hidden");
    const counts = ({ eqns }: Program) => {
      const [forward] = eqns.filter(({ op }) => op === "shardMap");
      return forward?.outs.map(({ type }) => type.shape);
    };
    expect(counts(gradientOf(mapped, nothingSaveable))).toEqual([[2, 2]]);
    // The sum over the devices is the same on both, so that one of it is enough.
    expect(counts(gradientOf(mapped, names))).toEqual([[2, 2], [1]]);
    expect(counts(gradientOf(mapped, dotsSaveable))).toEqual([
      [2, 2],
      [2, 1, 2],
    ]);
    const gradient = (policy?: RematPolicy) =>
      grad((w: Tensor, x: Tensor) => np.sum(np.sin((policy ? remat(mapped, { policy }) : mapped)(w, x))), {
        argnums: [0, 1],
      })(w, x);
    for (const policy of [nothingSaveable, names, dotsSaveable]) {
      for (const i of [0, 1] as const) {
        expect(await dataOf(gradient(policy)[i])).toEqual(await dataOf(gradient()[i]));
      }
    }
  });

  test("can be differentiated again, and mapped over a batch", async () => {
    for (const fn of [loop, choice, functions.rematInLoop, functions.ruleInLoop]) {
      const twice = (fn: Fn) =>
        grad((x: Tensor) => np.sum(np.sin(grad((w: Tensor) => np.sum(np.sin(fn(w, x))))(w))))(x);
      const both = saveFromBothPolicies(dotsSaveable, checkpointPolicies.saveOnlyTheseNames("hidden"));
      await expectClose(twice(remat(fn, { policy: both })), await dataOf(twice(fn)), { ulps: 64 });
      const batch = (fn: Fn) => vmap(grad((x: Tensor) => np.sum(np.sin(fn(w, x)))))(np.stack([x, x.neg()]));
      await expectClose(batch(remat(fn, { policy: both })), await dataOf(batch(fn)), { ulps: 4 });
    }
  });

  test("is everything when one of both policies keeps everything, inside other remats too", () => {
    const both = saveFromBothPolicies(nothingSaveable, everythingSaveable);
    expect(count(gradientOf(functions.rematInLoop, both), "dotGeneral")).toBe(9);
    const outer: Fn = (w, x) => remat(loop, { policy: everythingSaveable })(w, x);
    expect(count(gradientOf(outer, dotsSaveable), "dotGeneral")).toBe(9);
  });

  test("of a rule is what its way forward computes", async () => {
    // The rule's result differs from the function's, so that the two can be told apart.
    const marked = customVjp((x: Tensor) => x.mul(2), {
      forward: (x: Tensor) => [x.mul(3), null],
      backward: (_: null, ct: Tensor) => [ct.mul(5)],
    });
    const [value, gradient] = valueAndGrad((x: Tensor) => remat(marked)(x))(np.array(1));
    await expectClose(value, 3);
    await expectClose(gradient, 5);
    await expectClose(remat(marked)(np.array(1)), 2);
    const fixed = (y: Tensor) => remat((x: Tensor) => marked(np.array(1)).mul(x))(y);
    await expectClose(valueAndGrad(fixed)(np.array(1))[0], 2);
  });
});

describe("a function as the policy of remat", () => {
  const f = (w: Tensor, x: Tensor) => np.sum(np.tanh(np.matmul(np.sin(np.matmul(x, w)), w)));
  const loop = (w: Tensor, x: Tensor) =>
    np.sum(scan((c: Tensor) => [np.matmul(np.sin(c), w), null], x, null, { length: 3 })[0]);
  type Fn = (w: Tensor, x: Tensor) => Tensor;
  const programOf = (fn: Fn, policy: RematOptions["policy"]) =>
    simplify(
      makeProgram(valueAndGrad(remat(fn, { policy: policy ?? checkpointPolicies.nothingSaveable }) as Fn))(
        w,
        x,
      ),
    );

  test.each<[string, Fn]>([
    ["a chain", f],
    ["a loop", loop],
  ])("keeps what it chooses and nothing else, in %s", async (_, fn) => {
    const dots = programOf(fn, (op) => op === "dotGeneral");
    const plain = programOf(fn, checkpointPolicies.dotsSaveable);
    for (const op of ["dotGeneral", "sin"]) expect(count(dots, op)).toBe(count(plain, op));
    const nothing = programOf(fn, () => false);
    expect(count(nothing, "dotGeneral")).toBe(
      count(programOf(fn, checkpointPolicies.nothingSaveable), "dotGeneral"),
    );
    expect(count(nothing, "dotGeneral")).toBeGreaterThan(count(dots, "dotGeneral"));
    const sines = programOf(fn, (op) => op === "sin");
    expect(count(sines, "sin")).toBeLessThan(count(nothing, "sin"));
    const kept = grad(remat(fn, { policy: (op) => op === "sin" }))(w, x);
    expect(await dataOf(kept as Tensor)).toEqual(await dataOf(grad(fn)(w, x)));
  });

  test("is told the op, the types of its operands and its parameters", () => {
    const seen: unknown[] = [];
    const policy: RematPolicyFunction = (op, operands, params) => {
      if (op === "dotGeneral") seen.push([operands.map(({ shape }) => shape), params.lhsContract]);
      return false;
    };
    remat(f, { policy })(w, x);
    expect(seen).toEqual([
      [
        [
          [2, 2],
          [2, 2],
        ],
        [1],
      ],
      [
        [
          [2, 2],
          [2, 2],
        ],
        [1],
      ],
    ]);
  });

  test("must return a boolean", () => {
    const policy = (() => 1) as unknown as RematPolicyFunction;
    expect(() => remat(f, { policy })(w, x)).toThrow(/the policy must return a boolean, it returned 1/);
  });
});
