/** Programs of complex numbers: functions of `np` on them, which tracing turns into ops on their parts. */
import { lax, Mesh, NamedSharding, np, P, type Tensor } from "shardwise";
import { hostEngine } from "../../src/engines/host.js";
import type { DType } from "../../src/ir/dtype.js";
import type { MeshShape } from "../../src/ir/mesh.js";
import type { Program } from "../../src/ir/program.js";
import { range } from "../../src/ir/shape.js";
import { verify } from "../../src/ir/verify.js";
import { partitionCall } from "../../src/spmd/run/call.js";
import type { Random } from "../compiler/randomProgram.js";

/** Rows and columns of all matrices. */
const SIZE = 4;

/** What makes another matrix of complex numbers of two. */
const functions: readonly ((a: Tensor, b: Tensor) => Tensor)[] = [
  (a, b) => a.add(b),
  (a, b) => a.sub(b),
  (a, b) => a.mul(b),
  (a, b) => a.div(b.mul(np.conj(b)).add(1)),
  (a, b) => np.matmul(a, b),
  (a) => np.conj(a),
  (a) => a.neg(),
  (a) => np.transpose(a),
  (a) => np.exp(a.mul(0.1)),
  (a) => np.sin(a.mul(0.1)),
  (a) => np.fft.fft(a).mul(0.25),
  (a) => np.cumsum(a, 0),
  (a) => np.flip(a, 1),
  (a, b) => np.where(np.greater(np.real(a), 0), a, b),
  (a, b) => lax.sliceInDim(np.concatenate([a, b]), 1, 1 + SIZE),
  (a) => np.broadcastTo(np.sum(a, 0, { keepdims: true }), [SIZE, SIZE]),
  (a) => lax.complex(np.abs(a), np.real(a)),
  (a, b) => lax.foriLoop(0, 3, (_i: Tensor, x: Tensor) => x.mul(0.5).add(b), a),
];

/** A program of complex numbers, and the mesh it is for. @param types what the parts of numbers may be; all by default */
export function complexProgram(
  random: Random,
  types?: readonly DType[],
): { readonly program: Program; readonly mesh: MeshShape } {
  const mesh = Mesh.create({ x: random.pick([1, 2, 4]) }, { engine: hostEngine });
  const dtype = random.pick((["float32", "float64"] as const).filter((one) => types?.includes(one) ?? true));
  const chosen = range(2 + random.below(5)).map(() => random.pick(functions));
  const places = chosen.map((_, i) => [random.below(i + 2), random.below(i + 2)] as const);
  const run = (...parts: Tensor[]) => {
    const [a, b, c, d] = parts as [Tensor, Tensor, Tensor, Tensor];
    const values = [lax.complex(a, b), lax.complex(c, d)];
    for (const [i, [first, second]] of places.entries()) {
      const [left, right] = [values[first], values[second]];
      const made = left && right && chosen[i]?.(left, right);
      if (made) values.push(made);
    }
    const last = values.at(-1) ?? lax.complex(a, b);
    return [np.real(last), np.imag(last), np.abs(last)];
  };
  const sharding = () => new NamedSharding(mesh, random.chance(0.5) ? P("x") : P());
  const args = range(4).map(() => np.zeros([SIZE, SIZE], { dtype }));
  const { program } = partitionCall(run, args as [Tensor, Tensor, Tensor, Tensor], {
    mesh,
    inShardings: range(4).map(sharding) as never,
    outShardings: range(3).map(sharding) as never,
  });
  return { program: verify(program, "partitioned"), mesh: { axes: mesh.axes } };
}
