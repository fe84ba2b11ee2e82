import { expect, test } from "vitest";
import {
  grad,
  jit,
  Mesh,
  makeProgram,
  NamedSharding,
  np,
  P,
  printProgram,
  simplify,
  type Tensor,
  withShardingConstraint,
} from "../index.js";
import { verify } from "../ir/verify.js";
import { partition } from "./partition.js";

const mesh = Mesh.create({ data: 2, model: 2 });
const S = (...e: Parameters<typeof P>) => new NamedSharding(mesh, P(...e));

test("smoke", async () => {
  const x = np.reshape(np.arange(32), [8, 4]).astype("float32");
  const w = np.sin(np.reshape(np.arange(16), [4, 4]).astype("float32"));
  const f = (a: Tensor, b: Tensor) => {
    const h = withShardingConstraint(np.tanh(np.matmul(a, b)), S("data", "model"));
    return np.sum(np.roll(h, 1, 0).mul(h));
  };
  const program = simplify(makeProgram(grad(f, { argnums: [0, 1] }))(x, w));
  const parts = partition(program, mesh, {
    inSpecs: [
      [["data"], []],
      [[], ["model"]],
    ],
  });
  console.log(printProgram(verify(simplify(parts.program), "perDevice")), parts.gathers);
  const plain = await Promise.all(grad(f, { argnums: [0, 1] })(x, w).map((t) => t.js()));
  const g = jit(grad(f, { argnums: [0, 1] }), { inShardings: [S("data"), S(null, "model")] })(x, w);
  expect(await g[0].js()).toEqual(plain[0]);
});
