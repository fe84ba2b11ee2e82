import { HostFunction } from "../../src/ir/callbacks.js";
import { type DType, decode, encode } from "../../src/ir/dtype.js";
import { ValueError } from "../../src/ir/errors.js";
import type { MeshShape } from "../../src/ir/mesh.js";
import { at } from "../../src/ir/shape.js";
import { verify } from "../../src/ir/verify.js";
import { randomInputs } from "../compiler/differential.js";
import { Random, randomProgram } from "../compiler/randomProgram.js";
import type { EngineCase } from "../conformance/engine/cases.js";
import { complexProgram } from "./complexPrograms.js";

/** A program with inputs, and which of them are donated. */
export interface ComparedCase extends EngineCase {
  readonly donated: readonly boolean[];
}

const meshes: readonly MeshShape[] = [
  { axes: [] },
  { axes: [{ name: "x", size: 2 }] },
  {
    axes: [
      { name: "x", size: 2 },
      { name: "y", size: 2 },
    ],
  },
];

/** A callback that computes: twice its operand. */
const twice = new HostFunction("twice", ([x]) => {
  if (x === undefined) throw new ValueError("[twice] takes one operand");
  const { dtype } = x.type;
  return [
    encode(
      dtype,
      Array.from(decode(dtype, x.data), (value) => 2 * value),
    ),
  ];
});

/** A callback that throws for some operands. */
const picky = new HostFunction("picky", ([x]) => {
  if (x === undefined) throw new ValueError("[picky] takes one operand");
  const [first = 0] = decode(x.type.dtype, x.data);
  if (first > 0) throw new ValueError("[picky] refuses this operand");
  return [x.data];
});

/** What programs may have. */
export interface CaseOptions {
  /** Which host callbacks they have: none, those that compute, or also some that throw. */
  readonly callbacks: "none" | "computing" | "all";
  /** The types of their tensors; all by default. */
  readonly types?: readonly DType[];
}

function realProgram(seed: number, random: Random, { callbacks, types }: CaseOptions) {
  const mesh = at(meshes, random.below(meshes.length));
  const program = randomProgram({
    seed,
    numEqns: 4 + random.below(24),
    axes: mesh.axes,
    ...(types && { types }),
    // Callbacks that throw end a program, so few have them.
    ...(callbacks !== "none" && {
      callbacks: { pure: [twice], io: callbacks === "all" && random.chance(0.3) ? [picky] : [] },
    }),
  });
  return { program: verify(program, "partitioned"), mesh };
}

/** What a seed stands for: a program with control flow, on one to four devices; one of ten has complex numbers. */
export function caseOf(seed: number, options: CaseOptions): ComparedCase {
  const random = new Random(seed);
  const { program, mesh } = random.chance(0.1)
    ? complexProgram(random, options.types)
    : realProgram(seed, random, options);
  return {
    name: `seed ${seed}`,
    program,
    mesh,
    inputs: randomInputs(program, mesh, seed),
    donated: program.inputs.map(() => random.chance(0.3)),
  };
}
