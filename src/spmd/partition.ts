import { blockShape, type MeshShape, type Spec } from "../ir/mesh.js";
import { type Atom, type Eqn, forEachEqn, mapInnerPrograms, type Program } from "../ir/program.js";
import { at, tensorType } from "../ir/shape.js";
import { bind, inline, traceFlat } from "../trace/builder.js";
import { Tensor } from "../trace/tensor.js";
import { replicatedSpec } from "./partitionSpec.js";
import { reshard } from "./reshard.js";

/** A per-device program and how its inputs and outputs are split. */
export interface PartitionedProgram {
  readonly program: Program;
  readonly inSpecs: readonly Spec[];
  readonly outSpecs: readonly Spec[];
}

/** The specs that are fixed from outside; the others are chosen. */
export interface FixedSpecs {
  readonly inSpecs?: readonly (Spec | undefined)[];
  readonly outSpecs?: readonly (Spec | undefined)[];
}

interface Sharded {
  readonly block: Tensor;
  readonly spec: Spec;
}

/**
 * Turns a program over whole tensors into the program that every device of the mesh runs on its blocks.
 * Shard maps are opened; what stands outside of them is computed on every device.
 */
export function partition(program: Program, mesh: MeshShape, fixed: FixedSpecs = {}): PartitionedProgram {
  const inSpecs = program.inputs.map(
    (input, i) => fixed.inSpecs?.[i] ?? firstUse(program, input) ?? replicatedSpec(input.type.shape.length),
  );
  let outSpecs: readonly Spec[] = [];
  const types = program.inputs.map(({ type }, i) =>
    tensorType(type.dtype, blockShape(type.shape, at(inSpecs, i), mesh)),
  );
  const traced = traceFlat((blocks) => {
    const outs = evaluate(
      program,
      mesh,
      blocks.map((block, i) => ({ block, spec: at(inSpecs, i) })),
    );
    outSpecs = outs.map(({ spec }, i) => fixed.outSpecs?.[i] ?? spec);
    return outs.map(({ block, spec }, i) => reshard(block, spec, at(outSpecs, i), mesh));
  }, types);
  return { program: traced.program, inSpecs, outSpecs };
}

/** The spec under which a shard map takes this input, if one does. */
function firstUse(program: Program, input: Atom): Spec | undefined {
  for (const eqn of program.eqns) {
    const i = eqn.ins.indexOf(input);
    if (i >= 0 && eqn.op === "shardMap") return at(eqn.params.inSpecs, i);
  }
  return undefined;
}

function evaluate(program: Program, mesh: MeshShape, ins: readonly Sharded[]): Sharded[] {
  const values = new Map<number, Sharded>();
  const read = (atom: Atom): Sharded => {
    if (atom.kind === "literal") return { block: Tensor.literal(atom), spec: [] };
    return at(
      [values.get(atom.id)].filter((value) => value !== undefined),
      0,
    );
  };
  program.inputs.forEach((input, i) => {
    values.set(input.id, at(ins, i));
  });
  for (const eqn of program.eqns) {
    const outs = apply(eqn, mesh, eqn.ins.map(read));
    eqn.outs.forEach((out, i) => {
      values.set(out.id, at(outs, i));
    });
  }
  return program.outputs.map(read);
}

function apply(eqn: Eqn, mesh: MeshShape, ins: readonly Sharded[]): Sharded[] {
  const resharded = (wanted: (i: number) => Spec) =>
    ins.map(({ block, spec }, i) => reshard(block, spec, wanted(i), mesh));
  if (eqn.op === "shardMap") {
    const { body, inSpecs, outSpecs } = eqn.params;
    const outs = inline(
      body,
      resharded((i) => at(inSpecs, i)),
    );
    return outs.map((block, i) => ({ block, spec: at(outSpecs, i) }));
  }
  const whole = resharded((i) => replicatedSpec(at(eqn.ins, i).type.shape.length));
  const replicated = (blocks: readonly Tensor[]) =>
    blocks.map((block) => ({ block, spec: replicatedSpec(block.ndim) }));
  if (eqn.op === "shardingConstraint") return replicated(whole);
  const opened = mapInnerPrograms(eqn, (inner) =>
    holdsShardMap(inner) ? partitionWhole(inner, mesh) : inner,
  );
  return replicated(bind(opened.op, whole, opened.params));
}

/** Partitions a program inside another one, whose operands and results are whole on every device. */
function partitionWhole(program: Program, mesh: MeshShape): Program {
  const whole = (atoms: readonly Atom[]) => atoms.map(({ type }) => replicatedSpec(type.shape.length));
  return partition(program, mesh, { inSpecs: whole(program.inputs), outSpecs: whole(program.outputs) })
    .program;
}

/** Whether there is anything in the program that only the partitioner can handle. */
export function holdsShardMap(program: Program): boolean {
  let found = false;
  forEachEqn(program, (eqn) => {
    if (eqn.op === "shardMap" || eqn.op === "shardingConstraint") found = true;
  });
  return found;
}
