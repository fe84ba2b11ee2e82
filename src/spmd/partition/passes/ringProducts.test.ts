import { describe, expect, test } from "vitest";
import { expectSharded } from "../../../../test/support/shardedPrograms.js";
import {
  costAnalysis,
  grad,
  jit,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  type Tensor,
  withShardingConstraint,
} from "../../../index.js";
import type { MeshShape, Spec } from "../../../ir/mesh.js";
import { forEachEqn, type Program } from "../../../ir/program.js";
import { traceFlat } from "../../../trace/builder.js";
import * as ops from "../../../trace/ops.js";

const ring = (size: number): MeshShape => ({ axes: [{ name: "ring", size }] });
const split = (rank: number, dim: number): Spec =>
  Array.from({ length: rank }, (_, d) => (d === dim ? ["ring"] : []));
const whole = (rank: number): Spec => split(rank, -1);

/** The ops of a program that tell how values travel and where they are multiplied. */
function travels(program: Program): string[] {
  const found: string[] = [];
  const telling = ["dotGeneral", "ppermute", "allGather", "psumScatter", "psum", "allToAll"];
  forEachEqn(program, ({ op }) => {
    if (telling.includes(op)) found.push(op);
  });
  return found;
}

/** Partitions a product with rings and without, both checked against the whole, and gives the two programs. */
function both(
  size: number,
  fn: (x: Tensor, y: Tensor) => Tensor,
  shapes: readonly [readonly number[], readonly number[]],
  specs: readonly [Spec, Spec, Spec],
  dtype: "float32" | "bfloat16" | "int32" = "float32",
) {
  const types = shapes.map((shape) => ({ dtype, shape }));
  const { program } = traceFlat(([x, y]) => (x && y ? [fn(x, y)] : []), types);
  const fixed = { inSpecs: specs.slice(0, 2), outSpecs: specs.slice(2) };
  return {
    plain: travels(expectSharded(program, ring(size), fixed).program),
    rings: travels(expectSharded(program, ring(size), { ...fixed, overlap: ["ring"] }).program),
  };
}

const multiply = (x: Tensor, y: Tensor) =>
  ops.dotGeneral(x, y, { lhsContract: [x.ndim - 1], rhsContract: [0] });

describe.each([2, 3, 4])("on a ring of %i devices", (size) => {
  const [rows, inner, columns] = [5, 2 * size, 3 * size];
  const hops = (name: string) => Array.from({ length: size - 1 }, () => name);
  const count = (list: readonly string[], name: string) => list.filter((op) => op === name).length;

  test("the features of an operand arrive block by block and are multiplied as they do", () => {
    const shapes = [
      [rows, inner],
      [inner, columns],
    ] as const;
    const { plain, rings } = both(size, multiply, shapes, [split(2, 1), split(2, 1), split(2, 1)]);
    expect(plain).toEqual(["allGather", "dotGeneral"]);
    expect(rings.filter((op) => op === "ppermute")).toEqual(hops("ppermute"));
    expect(count(rings, "dotGeneral")).toBe(size);
    expect(rings).not.toContain("allGather");
  });

  test("the right operand, or rows that are not summed over, arrive likewise", () => {
    const right = both(
      size,
      multiply,
      [
        [columns, rows],
        [rows, inner],
      ],
      [split(2, 0), split(2, 1), split(2, 0)],
    );
    expect(right.plain).toEqual(["allGather", "dotGeneral"]);
    expect(count(right.rings, "dotGeneral")).toBe(size);
    expect(right.rings).not.toContain("allGather");
  });

  test("a sum that each device keeps a part of takes on the parts as it passes", () => {
    for (const [out, spec] of [
      [0, split(2, 0)],
      [1, split(2, 1)],
    ] as const) {
      const shapes = [
        [columns, inner],
        [inner, 2 * columns],
      ] as const;
      const { plain, rings } = both(size, multiply, shapes, [split(2, 1), split(2, 0), spec]);
      expect(plain, `dim ${out}`).toEqual(["dotGeneral", "psumScatter"]);
      expect(count(rings, "ppermute")).toBe(size - 1);
      expect(count(rings, "dotGeneral")).toBe(size);
      expect(rings).not.toContain("psumScatter");
    }
  });

  test("products over batches, integers and bfloat16 keep their values", () => {
    const batched = (x: Tensor, y: Tensor) =>
      ops.dotGeneral(x, y, { lhsBatch: [0], rhsBatch: [0], lhsContract: [2], rhsContract: [1] });
    const shapes = [
      [2, rows, inner],
      [2, inner, columns],
    ] as const;
    const specs = [split(3, 2), split(3, 2), split(3, 2)] as const;
    for (const dtype of ["float32", "int32", "bfloat16"] as const) {
      const { rings } = both(size, batched, shapes, specs, dtype);
      expect(count(rings, "dotGeneral")).toBe(size);
    }
  });

  test("one ring serves all products with the same operand, and one takes on the sum of several", () => {
    const mlp = (x: Tensor, w: Tensor) => {
      const gate = multiply(x, w);
      const up = multiply(x, ops.sin(w));
      return ops.mul(ops.tanh(gate), up);
    };
    const shapes = [
      [rows, inner],
      [inner, columns],
    ] as const;
    const { rings } = both(size, mlp, shapes, [split(2, 1), split(2, 1), split(2, 1)]);
    expect(count(rings, "ppermute")).toBe(size - 1);
    expect(count(rings, "dotGeneral")).toBe(2 * size);
    const sum = (x: Tensor, w: Tensor) => ops.add(multiply(x, w), multiply(ops.sin(x), ops.cos(w)));
    const scattered = both(size, sum, shapes, [split(2, 1), split(2, 0), split(2, 1)]);
    expect(scattered.plain.filter((op) => op === "psumScatter")).toHaveLength(1);
    expect(count(scattered.rings, "ppermute")).toBe(size - 1);
    expect(scattered.rings).not.toContain("psumScatter");
  });

  test("a product that all devices compute alike is left alone, for blocks are summed in another order on each", () => {
    const shapes = [
      [rows, inner],
      [inner, columns],
    ] as const;
    const fn = (x: Tensor, w: Tensor) =>
      multiply(ops.shardingConstraint(x, { mesh: ring(size), spec: whole(2) }), w);
    const { rings } = both(size, fn, shapes, [split(2, 1), whole(2), whole(2)]);
    expect(rings).toEqual(["allGather", "dotGeneral"]);
  });

  test("what is needed whole, too, is put together from the blocks of the ring", () => {
    const shapes = [
      [rows, inner],
      [inner, columns],
    ] as const;
    const fn = (x: Tensor, w: Tensor) => {
      const all = ops.shardingConstraint(x, { mesh: ring(size), spec: whole(2) });
      return np.add(multiply(all, w), np.sum(ops.cumsum(all, 1, false)));
    };
    const { rings } = both(size, fn, shapes, [split(2, 1), split(2, 1), split(2, 1)]);
    expect(count(rings, "ppermute")).toBe(size - 1);
    expect(rings).not.toContain("allGather");
  });
});

describe("jit with overlap", () => {
  const mesh = Mesh.create({ data: 2, model: 2 });
  const [x, w] = [np.sin(np.arange(4 * 8)).reshape(4, 8), np.cos(np.arange(2 * 8 * 8)).reshape(2, 8, 8)];
  const shard = (...entries: Parameters<typeof P>) => new NamedSharding(mesh, P(...entries));
  /** Layers whose features are split between them, in a loop. */
  const loss = (kernels: Tensor, batch: Tensor) => {
    const layer = (h: Tensor, kernel: Tensor): [Tensor, Tensor] => {
      const split = withShardingConstraint(h, shard("data", "model"));
      const next = np.tanh(split.matmul(kernel));
      return [withShardingConstraint(next, shard("data", "model")), next.sum()];
    };
    const [out, sums] = lax.scan(layer, batch, kernels);
    return out.mul(out).sum().add(sums.sum());
  };
  const options = { mesh, inShardings: [shard(null, null, "model"), shard("data", "model")] } as const;

  test("gives the same gradients, through loops, with hops instead of gathers", async () => {
    const gradient = grad(loss);
    const plain = await jit(gradient, options)(w, x).data();
    const rings = await jit(gradient, { ...options, overlap: ["model"] })(w, x).data();
    rings.forEach((value, i) => {
      expect(Math.abs(Number(value) - Number(plain[i]))).toBeLessThan(1e-5);
    });
    const ops = (overlap: readonly string[]) =>
      new Set(costAnalysis(gradient, { ...options, overlap })(w, x).collectives.map(({ op }) => op));
    expect(ops([])).toContain("allGather");
    expect(ops(["model"])).toContain("ppermute");
    expect(ops(["model"])).not.toContain("allGather");
  });

  test("wants axes that the mesh has", () => {
    // @ts-expect-error the checker finds the misspelt axis, too
    expect(() => jit(loss, { ...options, overlap: ["modle"] })(w, x)).toThrow(
      /overlap names the axis "modle", which the mesh .* does not have/,
    );
  });
});
