import { describe, expect, test } from "vitest";
import { expectSharded } from "../../../../test/support/shardedPrograms.js";
import { grad, lax, makeProgram, np, simplify, type Tensor } from "../../../index.js";
import type { MeshShape } from "../../../ir/mesh.js";
import { isCollective } from "../../../ir/opFacts.js";
import type { Program } from "../../../ir/program.js";
import { at } from "../../../ir/shape.js";
import { traceFlat } from "../../../trace/builder.js";
import * as ops from "../../../trace/ops.js";
import { removeDeadCode } from "../../../transforms/rewrite/deadCode.js";
import type { PartitionRequest } from "../partition.js";
import { hoistGathers } from "./hoistGathers.js";

const mesh: MeshShape = { axes: [{ name: "d", size: 2 }] };
const rows = [["d"], []] as const;
const inLoop = [[], ["d"], []] as const;
const step = (w: Tensor, x: Tensor) => np.tanh(np.matmul(x, w));

/** The loss of examples [iterations, examples, features], of which each iteration takes some. */
const loss = (w: Tensor, xs: Tensor) =>
  np.sum(lax.scan((sum: Tensor, x: Tensor) => [sum.add(np.mean(step(w, x))), null], np.zeros([]), xs)[0]);

/** The collectives before and after loops, and in them. */
function places(program: Program): { readonly outside: string[]; readonly inside: string[] } {
  const ops = (list: Program["eqns"]) => list.map(({ op }) => op).filter((op) => isCollective(op));
  const loops = program.eqns.flatMap((eqn) => (eqn.op === "scan" ? [eqn.params.body] : []));
  return { outside: ops(program.eqns), inside: loops.flatMap(({ eqns }) => ops(eqns)) };
}

function partitioned(examples: number, fixed: PartitionRequest): ReturnType<typeof places> {
  const program = simplify(makeProgram(grad(loss))(np.zeros([4, 4]), np.zeros([3, examples, 4])));
  return places(expectSharded(program, mesh, fixed).program);
}

describe("loops that use the same split weights in every iteration", () => {
  const split: PartitionRequest = { inSpecs: [rows, inLoop], outSpecs: [rows] };

  test("have them gathered once before, and their gradient scattered once after", () => {
    const { outside, inside } = partitioned(16, split);
    expect(outside.sort()).toEqual(["allGather", "psumScatter"]);
    expect(inside).toEqual([]);
  });

  test("gather them in every iteration along axes that are to overlap with products", () => {
    const { outside, inside } = partitioned(16, { ...split, overlap: ["d"] });
    expect(outside).not.toContain("allGather");
    expect(inside.length).toBeGreaterThan(0);
  });

  test.each([
    [1, "allGather inside"],
    [30, "allGather outside"],
  ])("with other operands of %d elements have %s", (elements, place) => {
    const axes = [{ name: "d", size: 8 }];
    const { program } = traceFlat(
      ([w, x]) => {
        if (!w || !x) return [];
        const total = () => ops.reduceSum(ops.allGather(w, axes, 0), [0]);
        const add = (h: Tensor) => ops.add(h, ops.broadcastInDim(total(), h.shape, []));
        return [lax.scan((h: Tensor) => [add(h), null], x, null, { length: 2 })[0]];
      },
      [
        { dtype: "float32", shape: [2] },
        { dtype: "float32", shape: [elements] },
      ],
    );
    const { inside, outside } = places(removeDeadCode(hoistGathers(program)));
    expect([...inside.map((op) => `${op} inside`), ...outside.map((op) => `${op} outside`)]).toEqual([place]);
  });

  test("over layers gather those of one layer at a time", () => {
    const layers = (w: Tensor, x: Tensor) =>
      np.sum(lax.scan((h: Tensor, own: Tensor) => [step(own, h), null], x, w)[0]);
    const program = simplify(makeProgram(layers)(np.zeros([3, 4, 4]), np.zeros([16, 4])));
    const { program: local } = expectSharded(program, mesh, { inSpecs: [inLoop, rows] });
    expect(places(local).inside).toEqual(["allGather"]);
    expect(at(places(local).outside, 0)).toBe("psum");
  });
});
