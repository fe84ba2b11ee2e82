import { describe, expect, test } from "vitest";
import { expectSharded } from "../../../test/support/shardedPrograms.js";
import { hostEngine } from "../../engines/host.js";
import {
  devicePut,
  grad,
  jit,
  lax,
  Mesh,
  makeProgram,
  NamedSharding,
  np,
  P,
  random,
  remat,
  shardMap,
  simplify,
  type Tensor,
  valueAndGrad,
  vmap,
  withMesh,
  withShardingConstraint,
} from "../../index.js";
import type { Spec } from "../../ir/mesh.js";
import { isCollective } from "../../ir/opFacts.js";
import { forEachEqn, type Program } from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import { traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { shardingOf } from "../mesh/sharding.js";
import { type PartitionedProgram, type PartitionRequest, partition } from "./partition.js";
import { reshard } from "./placement/reshard.js";

const mesh = Mesh.create({ data: 2, model: 2 }, { engine: hostEngine });
const line = Mesh.create({ stage: 4 }, { engine: hostEngine });
const on = (target: Mesh, ...entries: Parameters<typeof P>) => new NamedSharding(target, P(...entries));
const whole = (rank: number): Spec => Array.from({ length: rank }, () => []);

/** The collectives of a program in order, such as `psum model`, with the shape of what they take. */
function collectives(program: Program): string[] {
  const found: string[] = [];
  forEachEqn(program, (eqn) => {
    if (!isCollective(eqn.op) || !("axes" in eqn.params)) return;
    const axes = eqn.params.axes.map(({ name }) => name).join("+");
    found.push(`${eqn.op} ${axes} [${at(eqn.ins, 0).type.shape}]`);
  });
  return found;
}

/** Partitions a function, checks its values against the whole program, and gives the per-device program. */
function sharded<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
  args: A,
  target: Mesh,
  fixed: PartitionRequest = {},
): PartitionedProgram {
  return expectSharded(simplify(makeProgram(fn)(...args)), target, fixed);
}

describe("rows move to neighbours", () => {
  const x = np.zeros([8, 3]);
  const split: PartitionRequest = { inSpecs: [[["stage"], []]] };

  test("a roll by one is one permutation of one row", () => {
    const { program, gathers } = sharded((a: Tensor) => np.roll(a, 1, 0), [x], line, split);
    expect(collectives(program)).toEqual(["ppermute stage [1,3]"]);
    expect(gathers).toEqual([]);
  });

  test("a roll by whole blocks moves blocks and nothing else", () => {
    const { program } = sharded((a: Tensor) => np.roll(a, -2, 0), [x], line, split);
    expect(collectives(program)).toEqual(["ppermute stage [2,3]"]);
    expect(program.eqns.map(({ op }) => op)).toEqual(["ppermute"]);
  });

  test("the gradient of a roll is one permutation back", () => {
    const f = (a: Tensor) => np.sum(np.sin(np.roll(a, 1, 0)));
    const { program, gathers } = sharded(grad(f), [x], line, split);
    expect(collectives(program)).toEqual(["ppermute stage [1,3]", "ppermute stage [1,3]"]);
    expect(gathers).toEqual([]);
  });

  test("a shift fills with zeros where nobody sends", () => {
    const shift = (a: Tensor) =>
      np.pad(lax.sliceInDim(a, 0, 6), [
        [2, 0],
        [0, 0],
      ]);
    const { program, gathers } = sharded(shift, [x], line, split);
    expect(collectives(program)).toEqual(["ppermute stage [2,3]"]);
    expect(gathers).toEqual([]);
  });

  test("split tensors are joined along their split dim without gathering them", () => {
    const f = (a: Tensor, b: Tensor) => np.concatenate([a, b], 0);
    const fixed = {
      inSpecs: [
        [["stage"], []],
        [["stage"], []],
      ],
    } as const;
    const { program, gathers } = sharded(f, [x, x], line, fixed);
    expect(collectives(program).every((text) => text.startsWith("ppermute stage"))).toBe(true);
    expect(gathers).toEqual([]);
  });

  test("a half of the rows is spread over all devices again", () => {
    const half = (a: Tensor) => lax.sliceInDim(a, 0, 4);
    const { program, outSpecs } = sharded(half, [x], line, { ...split, outSpecs: [[["stage"], []]] });
    expect(outSpecs).toEqual([[["stage"], []]]);
    expect(collectives(program).every((text) => text.startsWith("ppermute stage [1,3]"))).toBe(true);
  });

  test("what does not split evenly is gathered and noted", () => {
    const odd = (a: Tensor) => lax.sliceInDim(a, 0, 5);
    const { gathers } = sharded(odd, [x], line, split);
    expect(gathers).toMatchObject([
      { what: "return f32[5,3]", from: 'P("stage", null)', bytes: 96, times: 1 },
    ]);
  });
});

describe("resharding", () => {
  const grid = Mesh.create({ a: 2, b: 2, c: 2 }, { engine: hostEngine });
  const cases: readonly (readonly [string, Spec, Spec, readonly string[]])[] = [
    ["cuts out new axes locally", [[], []], [["a"], ["b"]], []],
    ["gathers what is lost", [["a"], []], [[], []], ["allGather a [4,8]"]],
    ["gathers axes of a dim at once", [["a", "b"], []], [[], []], ["allGather a+b [2,8]"]],
    ["moves an axis to another dim by an all-to-all", [["a"], []], [[], ["a"]], ["allToAll a [4,8]"]],
    ["keeps the outer axis of a dim", [["a", "b"], []], [["a"], ["b"]], ["allToAll b [2,8]"]],
    ["reorders axes by a permutation", [["a", "b"], []], [["b", "a"], []], ["ppermute a+b [2,8]"]],
    [
      "reorders before it moves an axis",
      [["a", "b"], []],
      [["b"], ["a"]],
      ["ppermute a+b [2,8]", "allToAll a [2,8]"],
    ],
    ["puts one axis in place of another by a permutation", [["a"], []], [["b"], []], ["ppermute a+b [4,8]"]],
    ["swaps axes by a permutation", [["a"], ["b"]], [["b"], ["a"]], ["ppermute a+b [4,4]"]],
    ["leaves other dims split", [["a"], ["b"]], [[], ["b"]], ["allGather a [4,4]"]],
    ["gathers as few axes as it can", [["a", "b"], ["c"]], [["a"], ["c"]], ["allGather b [2,4]"]],
  ];
  test.each(cases)("%s", (_, from, to, steps) => {
    const x = np.zeros([8, 8]);
    const { program } = expectSharded(makeProgram((a: Tensor) => a)(x), grid, {
      inSpecs: [from],
      outSpecs: [to],
    });
    expect(collectives(program)).toEqual(steps);
  });

  test("axes of one device never talk", () => {
    const thin = Mesh.create({ a: 1, b: 2 }, { engine: hostEngine });
    const { program } = traceFlat(
      ([x]) => (x ? [reshard(x, [["a"], ["b"]], [["b"], []], thin)] : []),
      [{ dtype: "float32", shape: [4, 2] }],
    );
    expect(collectives(program)).toEqual(["allToAll b [4,2]"]);
  });
});

describe("contractions", () => {
  const x = np.zeros([8, 4]);
  const w1 = np.zeros([4, 8]);
  const w2 = np.zeros([8, 4]);
  const mlp = (a: Tensor, u: Tensor, v: Tensor) => np.matmul(np.tanh(np.matmul(a, u)), v);
  const loss = (a: Tensor, u: Tensor, v: Tensor) => np.mean(np.square(mlp(a, u, v)));

  test("tensor parallel layers sum once forward", () => {
    const fixed = { inSpecs: [whole(2), [[], ["model"]], [["model"], []]], outSpecs: [whole(2)] } as const;
    const { program } = sharded(mlp, [x, w1, w2], mesh, fixed);
    expect(collectives(program)).toEqual(["psum model [8,4]"]);
  });

  test("a split result takes its share of the sum", () => {
    const fixed = {
      inSpecs: [whole(2), [[], ["model"]], [["model"], []]],
      outSpecs: [[["model"], []]],
    } as const;
    const { program } = sharded(mlp, [x, w1, w2], mesh, fixed);
    expect(collectives(program)).toEqual(["psumScatter model [8,4]"]);
  });

  test("data parallel gradients are summed once for every parameter, and the loss", () => {
    const fixed = {
      inSpecs: [[["data"], []], whole(2), whole(2)],
      outSpecs: [[], whole(2), whole(2)],
    } as const;
    const step = (a: Tensor, u: Tensor, v: Tensor) => {
      const [value, [gu, gv]] = valueAndGrad(loss, { argnums: [1, 2] })(a, u, v);
      return [value, gu, gv];
    };
    const { program, gathers } = sharded(step, [x, w1, w2], mesh, fixed);
    expect(collectives(program).sort()).toEqual(["psum data [4,8]", "psum data [8,4]", "psum data []"]);
    expect(gathers).toEqual([]);
  });

  test("fully sharded parameters are gathered, their gradients scattered", () => {
    const split: Spec = [["data"], []];
    const fixed = { inSpecs: [split, split, split], outSpecs: [split, split] };
    const step = (a: Tensor, u: Tensor, v: Tensor) => [...grad(loss, { argnums: [1, 2] })(a, u, v)];
    const batch = np.zeros([64, 4]);
    const { program } = sharded(step, [batch, w1, w2], mesh, fixed);
    expect(collectives(program).sort()).toEqual([
      "allGather data [2,8]",
      "allGather data [4,4]",
      "psumScatter data [4,8]",
      "psumScatter data [8,4]",
    ]);
  });

  test("data and model parallel together need one sum over model forward and sums of gradients over data", () => {
    const fixed = {
      inSpecs: [
        [["data"], []],
        [[], ["model"]],
        [["model"], []],
      ],
      outSpecs: [
        [[], ["model"]],
        [["model"], []],
      ],
    } as const;
    const step = (a: Tensor, u: Tensor, v: Tensor) => [...grad(loss, { argnums: [1, 2] })(a, u, v)];
    const { program } = sharded(step, [x, w1, w2], mesh, fixed);
    expect(collectives(program).sort()).toEqual(["psum data [4,4]", "psum data [4,4]", "psum model [4,4]"]);
  });

  test("conflicts are resolved in favour of fewer bytes", () => {
    const fixed = {
      inSpecs: [
        [[], ["model"]],
        [["data"], []],
      ],
    } as const;
    const big = np.zeros([256, 4]);
    const f = (a: Tensor, b: Tensor) => np.matmul(a, b);
    const { program } = sharded(f, [big, np.zeros([4, 2])], mesh, fixed);
    expect(collectives(program)[0]).toBe("ppermute data+model [2,2]");
  });
});

describe("movement", () => {
  test("heads that split a dim stay split", () => {
    const heads = (a: Tensor) => np.transpose(np.reshape(a, [2, 3, 4, 5]), [0, 2, 1, 3]);
    const fixed = { inSpecs: [[["data"], [], ["model"]]] } as const;
    const { program, outSpecs } = sharded(heads, [np.zeros([2, 3, 20])], mesh, fixed);
    expect(outSpecs).toEqual([[["data"], ["model"], [], []]]);
    expect(collectives(program)).toEqual([]);
  });

  test("merged dims stay split over the outer one", () => {
    const fixed = { inSpecs: [[["data"], ["model"], []]] } as const;
    const { program, outSpecs } = sharded(
      (a: Tensor) => np.reshape(a, [8, 3]),
      [np.zeros([2, 4, 3])],
      mesh,
      fixed,
    );
    expect(outSpecs).toEqual([[["data", "model"], []]]);
    expect(collectives(program)).toEqual([]);
  });

  test("an axis of the inner part of a merged dim changes to the outer part", () => {
    const fixed = { inSpecs: [[["data"], [], ["model"]]] } as const;
    const { program, outSpecs } = sharded(
      (a: Tensor) => np.reshape(a, [16]),
      [np.zeros([2, 2, 4])],
      mesh,
      fixed,
    );
    expect(outSpecs).toEqual([[["data", "model"]]]);
    expect(collectives(program)).toEqual(["allToAll model [1,2,2]"]);
  });

  test("a merged dim cannot be split over its inner part alone", () => {
    const fixed = { inSpecs: [[[], ["model"]]] } as const;
    const { gathers } = sharded((a: Tensor) => np.reshape(a, [12]), [np.zeros([3, 4])], mesh, fixed);
    expect(gathers).toMatchObject([{ what: "reshape f32[3,4]", bytes: 48 }]);
  });

  test("iota counts from the offset of the block", () => {
    const f = (a: Tensor) => a.add(lax.iota("float32", 8));
    const { program } = sharded(f, [np.zeros([8])], line, { inSpecs: [[["stage"]]] });
    expect(collectives(program)).toEqual([]);
  });
});

describe("indexing", () => {
  const table = np.zeros([8, 4]);
  const ids = np.zeros([6]).astype("int32");

  test("a look-up in a split vocabulary is masked and summed", () => {
    const look = (t: Tensor, i: Tensor) => ops.gather(t, i, { dim: 0, batchDims: 0 });
    const { program, gathers } = sharded(look, [table, ids], mesh, {
      inSpecs: [[["model"], []], [["data"]]],
    });
    expect(collectives(program)).toEqual(["psum model [3,4]"]);
    expect(gathers).toEqual([]);
  });

  test("booleans of a split table are combined by maximum", () => {
    const look = (t: Tensor, i: Tensor) => ops.gather(t, i, { dim: 0, batchDims: 0 });
    const { program } = sharded(look, [np.zeros([8, 4]).astype("bool"), ids], mesh, {
      inSpecs: [[["model"], []], [[]]],
    });
    expect(collectives(program)).toEqual(["pmax model [6,4]"]);
  });

  test("the gradient of a look-up stays in the rows of the device", () => {
    const loss = (t: Tensor, i: Tensor) => np.sum(np.sin(ops.gather(t, i, { dim: 0, batchDims: 0 })));
    const { program, gathers, outSpecs } = sharded(grad(loss), [table, ids], mesh, {
      inSpecs: [[["model"], []], [["data"]]],
      outSpecs: [[["model"], []]],
    });
    expect(outSpecs).toEqual([[["model"], []]]);
    expect(collectives(program)).toEqual(["psum model [3,4]", "psum data [4,4]"]);
    expect(gathers).toEqual([]);
  });

  test("split updates are added on every device and summed", () => {
    const add = (t: Tensor, i: Tensor, u: Tensor) =>
      ops.scatter(t, i, u, { dim: 0, batchDims: 0, combine: "add" });
    const { program } = sharded(add, [table, ids, np.zeros([6, 4])], mesh, {
      inSpecs: [whole(2), [["data"]], [["data"], []]],
      outSpecs: [whole(2)],
    });
    expect(collectives(program)).toEqual(["psum data [8,4]"]);
  });

  test("dynamic slices along another dim are local", () => {
    const f = (a: Tensor, i: Tensor) =>
      lax.dynamicUpdateSliceInDim(a, lax.dynamicSliceInDim(a, i, 1, 1).mul(2), 0, 1);
    const { program } = sharded(f, [np.zeros([8, 4]), np.array(2).astype("int32")], line, {
      inSpecs: [[["stage"], []], []],
    });
    expect(collectives(program)).toEqual([]);
  });

  test("every stage takes a slice of its own block with its own index", () => {
    const take = vmap((w: Tensor, i: Tensor) => lax.dynamicIndexInDim(w, i, 0, false), {
      inAxes: [1, 0],
    });
    const { program } = sharded(take, [np.zeros([3, 4, 5]), np.zeros([4]).astype("int32")], line, {
      inSpecs: [[[], ["stage"], []], [["stage"]]],
    });
    expect(collectives(program)).toEqual([]);
  });
});

describe("control flow", () => {
  test("a scan keeps its carry split and sums inside where it must", () => {
    const f = (c: Tensor, ws: Tensor) =>
      lax.scan((h: Tensor, w: Tensor) => [np.tanh(np.matmul(h, w)), np.sum(h)], c, ws);
    const { program, outSpecs } = sharded(f, [np.zeros([4, 6]), np.zeros([3, 6, 6])], mesh, {
      inSpecs: [
        [["data"], []],
        [[], [], ["model"]],
      ],
    });
    expect(outSpecs[0]?.[0]).toEqual(["data"]);
    expect(program.eqns.some(({ op }) => op === "scan")).toBe(true);
  });

  test("the gradient of a scan gathers nothing along the batch", () => {
    const f = (c: Tensor, ws: Tensor) =>
      np.sum(lax.scan((h: Tensor, w: Tensor) => [np.tanh(np.matmul(h, w)), null], c, ws)[0]);
    const { program } = sharded(grad(f, { argnums: 1 }), [np.zeros([4, 6]), np.zeros([3, 6, 6])], mesh, {
      inSpecs: [[["data"], []], whole(3)],
      outSpecs: [whole(3)],
    });
    expect(collectives(program).filter((text) => !text.startsWith("psum data"))).toEqual([]);
  });

  test("gradients that a loop collects are summed over devices once, after it", () => {
    const f = (w: Tensor, xs: Tensor) =>
      lax.scan(
        (total: Tensor, x: Tensor) => [total.add(np.sum(np.tanh(np.matmul(x, w)))), null],
        np.array(0),
        xs,
      )[0];
    const { program } = sharded(grad(f), [np.zeros([6, 6]), np.zeros([5, 4, 6])], mesh, {
      inSpecs: [whole(2), [[], ["data"], []]],
      outSpecs: [whole(2)],
    });
    expect(collectives(program)).toEqual(["psum data [6,6]"]);
    expect(program.eqns.some(({ op }) => op === "psum")).toBe(true);
  });

  test("a carry that is read in between is summed in every iteration", () => {
    const f = (start: Tensor, xs: Tensor) =>
      lax.scan((c: Tensor, x: Tensor) => [c.add(np.sum(x)), np.sin(c)], start, xs);
    const { program } = sharded(f, [np.array(0), np.zeros([5, 4])], mesh, {
      inSpecs: [[], [[], ["data"]]],
    });
    expect(program.eqns.some(({ op }) => op === "psum")).toBe(false);
    expect(collectives(program)).toEqual(["psum data []"]);
  });

  test("branches of a cond agree on how their results are split", () => {
    const f = (flag: Tensor, a: Tensor) =>
      lax.cond(
        flag,
        (b: Tensor) => np.sin(b),
        (b: Tensor) => np.flip(b, 1).mul(2),
        a,
      );
    const { program } = sharded(f, [np.array(true), np.zeros([4, 6])], mesh, {
      inSpecs: [[], [["data"], []]],
    });
    expect(collectives(program)).toEqual([]);
  });

  test("a while loop keeps its carry split", () => {
    const f = (a: Tensor) => lax.foriLoop(0, 3, (i: Tensor, b: Tensor) => np.roll(b, 1, 0).add(i), a);
    const { program } = sharded(f, [np.zeros([8])], line, { inSpecs: [[["stage"]]] });
    expect(collectives(program)).toEqual(["ppermute stage [1]"]);
  });

  test("rematerialised code is split like the rest", () => {
    const f = (a: Tensor, w: Tensor) => np.sum(remat((b: Tensor) => np.tanh(np.matmul(b, w)))(a));
    const { gathers } = sharded(grad(f), [np.zeros([4, 6]), np.zeros([6, 6])], mesh, {
      inSpecs: [
        [["data"], []],
        [[], ["model"]],
      ],
    });
    expect(gathers).toEqual([]);
  });
});

describe("shard maps inside global programs", () => {
  const x = np.zeros([4, 6]);

  test("run on blocks and join the rest", () => {
    const total = shardMap((a: Tensor) => lax.psum(a, "data"), { mesh, inSpecs: P("data"), outSpecs: P() });
    const f = (a: Tensor) => np.sin(total(np.cos(a)));
    const { program } = sharded(f, [x], mesh, { inSpecs: [[["data"], []]] });
    expect(collectives(program)).toEqual(["psum data [2,6]"]);
  });

  test.each([true, false])("leave a body that has all axes as it is (checkReplication %s)", (check) => {
    const body = (a: Tensor, w: Tensor) => {
      const rows = lax.sliceInDim(np.concatenate([a, np.cos(a)], 0), 1, 3, 1, 0);
      const picked = np.take(np.matmul(rows, w), np.argsort(rows, 1), 1, { mode: "clip" });
      return lax.psum(np.sum(picked.mul(lax.axisIndex("data"))), ["data", "model"]);
    };
    const f = shardMap(body, {
      mesh,
      inSpecs: [P("data"), P(null, "model")],
      outSpecs: P(),
      checkReplication: check,
    });
    const traced = simplify(makeProgram(f)(x, np.zeros([6, 8])));
    const { program } = expectSharded(traced, mesh, {
      inSpecs: [
        [["data"], []],
        [[], ["model"]],
      ],
    });
    const opsOf = ({ eqns }: Program) => eqns.map(({ op }) => op).filter((op) => op !== "pvary");
    const [call] = traced.eqns;
    expect(opsOf(program)).toEqual(call?.op === "shardMap" ? opsOf(call.params.body) : []);
    for (const { ins, outs } of program.eqns) {
      for (const { type } of [...ins, ...outs]) expect(type.varying).toBeUndefined();
    }
  });

  test("have values of their own wherever a body stands again", () => {
    const g = jit(
      shardMap((a: Tensor) => np.sin(a).mul(lax.axisIndex("data")), {
        mesh,
        inSpecs: P("data"),
        outSpecs: P("data"),
        checkReplication: false,
      }),
    );
    const { program } = sharded((a: Tensor) => g(g(a)).add(g(a)), [x], mesh, { inSpecs: [[["data"], []]] });
    expect(program.eqns.filter(({ op }) => op === "sin").length).toBe(2);
    const values = program.eqns.flatMap(({ outs }) => outs.map(({ id }) => id));
    expect(new Set(values).size).toBe(values.length);
  });

  test("keep values split over axes that are not theirs", () => {
    const total = shardMap((a: Tensor, b: Tensor) => lax.psum(np.tanh(a).mul(b), "data"), {
      mesh,
      inSpecs: [P("data"), P()],
      outSpecs: P(),
      axisNames: ["data"],
    });
    const f = (a: Tensor, b: Tensor) => np.sin(total(np.cos(a), b));
    const { program, outSpecs } = sharded(f, [x, np.zeros([2, 6])], mesh, {
      inSpecs: [
        [["data"], ["model"]],
        [[], ["model"]],
      ],
    });
    expect(outSpecs).toEqual([[[], ["model"]]]);
    expect(collectives(program)).toEqual(["psum data [2,3]"]);
  });

  test("split a dim over their own axes and then others", () => {
    const twice = shardMap((a: Tensor) => a.mul(2).add(lax.axisIndex("data")), {
      mesh,
      inSpecs: P("data"),
      outSpecs: P("data"),
      axisNames: ["data"],
    });
    const { program } = sharded((a: Tensor) => twice(a), [np.zeros([8])], mesh, {
      inSpecs: [[["data", "model"]]],
      outSpecs: [[["data", "model"]]],
    });
    expect(collectives(program)).toEqual([]);
  });

  test("may reduce over axes that are not theirs by plain sums", () => {
    const f = shardMap((a: Tensor) => lax.psum(np.sum(a, 1), "data"), {
      mesh,
      inSpecs: P("data"),
      outSpecs: P(),
      axisNames: ["data"],
    });
    const { program } = sharded((a: Tensor) => f(a), [x], mesh, {
      inSpecs: [[["data"], ["model"]]],
      outSpecs: [whole(1)],
    });
    expect(collectives(program)).toEqual(["psum model [2]", "psum data [2]"]);
  });

  test("give sums of which a share is needed inside and another outside", () => {
    const sumRows = shardMap(
      (block: Tensor): [Tensor, Tensor] => {
        const sum = withShardingConstraint(np.sum(block, 0), new NamedSharding(mesh, P(null)));
        return [sum, np.tanh(withShardingConstraint(sum, new NamedSharding(mesh, P("model"))))];
      },
      { mesh, axisNames: ["data"], inSpecs: P(null, "data"), outSpecs: [P("data"), P("data")] },
    );
    const f = (a: Tensor) => {
      const [sum, own] = sumRows(a);
      return [np.sin(withShardingConstraint(sum, new NamedSharding(mesh, P("model")))), own];
    };
    sharded(f, [np.zeros([4, 8])], mesh, { inSpecs: [[["model"], ["data"]]] });
  });

  test("may constrain values over axes that are not theirs, however small, but not over their own", () => {
    for (const small of [1, 2]) {
      const two = Mesh.create({ data: 2, model: small });
      const within = (spec: ReturnType<typeof P>) =>
        shardMap((a: Tensor) => np.tanh(withShardingConstraint(a.mul(2), new NamedSharding(two, spec))), {
          mesh: two,
          inSpecs: P("data"),
          outSpecs: P("data"),
          axisNames: ["data"],
        });
      sharded(within(P("model")), [np.zeros([8])], two);
      expect(() => sharded(within(P("data")), [np.zeros([8])], two)).toThrow(
        /a constraint to P\("data"\) stands in a shardMap over "data".*leave "data" out of the spec/,
      );
    }
  });

  test("keep values whole along their own axes, however their results are used", () => {
    const total = shardMap((a: Tensor) => lax.psum(a, "data"), {
      mesh,
      inSpecs: P("data"),
      outSpecs: P(),
      axisNames: ["data"],
    });
    const f = (a: Tensor, b: Tensor) => np.tanh(total(a)).add(b);
    sharded(f, [np.zeros([8, 6]), np.zeros([4, 6])], mesh, {
      inSpecs: [
        [[], []],
        [[], ["data"]],
      ],
    });
  });

  test("may lay copies of a sum side by side", () => {
    const copies = shardMap((block: Tensor) => block, { mesh, inSpecs: P(), outSpecs: P("data") });
    const f = (a: Tensor) => {
      const sum = withShardingConstraint(np.sum(a, 0), new NamedSharding(mesh, P(null, null)));
      return np.sin(withShardingConstraint(copies(sum), new NamedSharding(mesh, P(null, "data"))));
    };
    sharded(f, [np.zeros([4, 4, 4])], mesh, { inSpecs: [[["data"], [], []]] });
  });

  test("differentiate", () => {
    const f = shardMap(
      (a: Tensor) =>
        lax.ppermute(np.sin(a), "data", [
          [0, 1],
          [1, 0],
        ]),
      {
        mesh,
        inSpecs: P("data"),
        outSpecs: P("data"),
        axisNames: ["data"],
      },
    );
    const loss = (a: Tensor) => np.sum(np.square(f(a)));
    const { gathers } = sharded(grad(loss), [x], mesh, { inSpecs: [[["data"], ["model"]]] });
    expect(gathers).toEqual([]);
  });
});

describe("annotations", () => {
  test("vmap gives its dim to a mesh axis", () => {
    const row = (a: Tensor) => withShardingConstraint(np.sin(a), on(mesh, "model"));
    const f = (a: Tensor) => vmap(row, { spmdAxisName: "data" })(a);
    const { program } = partition(makeProgram(f)(np.zeros([4, 6])), mesh);
    expect(program.inputs.map(({ type }) => type.shape)).toEqual([[2, 3]]);
    sharded(f, [np.zeros([4, 6])], mesh);
  });

  test("a dim that is unconstrained keeps its sharding", () => {
    const f = (a: Tensor) => withShardingConstraint(np.sin(a), on(mesh, P.UNCONSTRAINED, "model"));
    const { outSpecs, program } = sharded(f, [np.zeros([4, 6])], mesh, { inSpecs: [[["data"], []]] });
    expect(outSpecs).toEqual([[["data"], ["model"]]]);
    expect(collectives(program)).toEqual([]);
  });

  test("a constraint that does not split evenly is refused, with the arithmetic", () => {
    expect(() => withShardingConstraint(np.zeros([5, 6]), on(mesh, "data"))).toThrow(
      /\[withShardingConstraint\] the tensor: dim 0 of \[5,6\] does not split over P\("data"\).*\(5 \/ 2 = 2.5\): use a size that is a multiple of 2/,
    );
    const rest = new NamedSharding(mesh, P(P.UNCONSTRAINED));
    const { outSpecs } = sharded((a: Tensor) => withShardingConstraint(a, rest), [np.zeros([5, 6])], mesh);
    expect(outSpecs).toEqual([[[], []]]);
  });

  test("what is constrained to be whole is whole, whatever stands around it", () => {
    const f = (a: Tensor) => np.sin(withShardingConstraint(np.cos(a), on(mesh)));
    const { gathers, program } = sharded(f, [np.zeros([4, 6])], mesh, {
      inSpecs: [[["data"], []]],
      outSpecs: [[["data"], []]],
    });
    expect(gathers).toMatchObject([{ what: "shardingConstraint f32[4,6]" }]);
    expect(collectives(program)).toEqual(["allGather data [2,6]"]);
  });

  test("an output may be split in a different way than the constraint on it", () => {
    const f = (a: Tensor) => withShardingConstraint(a, on(mesh, null, "data"));
    const { program } = sharded(f, [np.zeros([4, 6])], mesh, { outSpecs: [[["data"], []]] });
    expect(collectives(program)).toEqual(["allToAll data [4,3]"]);
  });

  test("constants that are equal by chance are split apart", () => {
    const f = (a: Tensor, b: Tensor) => {
      const zeros = () => np.zeros([4, 4]);
      return [
        withShardingConstraint(zeros(), on(mesh, "data")).add(a),
        withShardingConstraint(zeros(), on(mesh, null, "data")).add(b),
      ];
    };
    const x = np.zeros([4, 4]);
    const { program, outSpecs } = sharded(f, [x, x], mesh);
    expect(outSpecs).toEqual([
      [["data"], []],
      [[], ["data"]],
    ]);
    expect(collectives(program)).toEqual([]);
  });

  test("withMesh gives bare specs their mesh", () => {
    const f = (a: Tensor) => withMesh(mesh, () => withShardingConstraint(np.sin(a), P("data")));
    expect(sharded(f, [np.zeros([4])], mesh).inSpecs).toEqual([[["data"]]]);
  });
});

describe("jit", () => {
  const x = np.reshape(np.arange(24), [4, 6]).astype("float32");
  const f = (a: Tensor) => np.sin(a).add(np.sum(a));

  test("splits arguments and results as it is told", async () => {
    const g = jit(f, { mesh, inShardings: [P("data")], outShardings: P(null, "model") });
    const y = g(x);
    expect(String(shardingOf(y)?.spec)).toBe('P(null, "model")');
    expect(await y.js()).toEqual(await f(x).js());
  });

  test("takes arguments as they lie when nothing is said", async () => {
    const placed = await devicePut(x, on(mesh, "data", "model"));
    const y = jit(f)(placed);
    expect(String(shardingOf(y)?.spec)).toBe('P("data", "model")');
  });

  test("donated arguments may lie elsewhere first", async () => {
    const own = np.add(x, 0);
    const y = jit(f, { mesh, inShardings: [P("data")], donate: 0 })(own);
    expect(await y.js()).toEqual(await f(x).js());
    expect(() => own.add(1)).toThrow();
  });

  test("inside another jit its shardings are constraints", () => {
    const inner = jit(f, { mesh, inShardings: [P("data")], outShardings: P(null, "model") });
    const program = simplify(makeProgram((a: Tensor) => np.cos(inner(a)))(x));
    expect(program.eqns.filter(({ op }) => op === "shardingConstraint")).toHaveLength(2);
    const { inSpecs, outSpecs } = expectSharded(program, mesh);
    expect([inSpecs, outSpecs]).toEqual([[[["data"], []]], [[[], ["model"]]]]);
  });

  test("random numbers are made where they are needed", async () => {
    const draw = (key: Tensor) => random.normal(key, [8, 4]);
    const y = jit(draw, { mesh, outShardings: P("data", "model") })(random.key(3));
    expect(await y.js()).toEqual(await draw(random.key(3)).js());
  });
});
