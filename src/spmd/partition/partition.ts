import { getKnown, getOrInsert, zip } from "../../ir/collections.js";
import { InternalError, ShardingError } from "../../ir/errors.js";
import { blockShape, formatSpec, type MeshShape, type Spec } from "../../ir/mesh.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import { afterPass } from "../../ir/passes.js";
import type { Atom, Eqn, Program, Var } from "../../ir/program.js";
import { at, bytesOf, bytesOfAll, formatType, range, type TensorType } from "../../ir/shape.js";
import { atSource, bind, inlineOnce, repeat, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { removeDeadCode } from "../../transforms/rewrite/deadCode.js";
import { DeviceSums } from "./blocks/deviceSums.js";
import { emitLocal, isLocal, type LocalOp } from "./blocks/localOps.js";
import { type GatherNote, Resharding } from "./blocks/resharding.js";
import { isChain, isSparse, specOfMoves, unmoved, zeroRows } from "./moves/moves.js";
import { Origins } from "./moves/origins.js";
import { type PlaceContext, placeMoves } from "./moves/placeMoves.js";
import { deferSums } from "./passes/deferSums.js";
import { hoistGathers } from "./passes/hoistGathers.js";
import { inlineCalls } from "./passes/inlineCalls.js";
import { joinPermutes } from "./passes/joinPermutes.js";
import { joinSums } from "./passes/joinSums.js";
import { narrowGathers } from "./passes/narrowGathers.js";
import { ownConstants } from "./passes/ownConstants.js";
import { ringProducts } from "./passes/ringProducts.js";
import { type DimFactors, factorRule } from "./placement/factors.js";
import {
  assignAxes,
  dimAxes,
  fixConstraints,
  propagate,
  Shardings,
  usableAxes,
  wishesOf,
} from "./placement/propagate.js";
import { busyMesh, specOn } from "./placement/reshard.js";
import type { DeviceBlocks, Moves, PartitionedValue } from "./placement/rowValues.js";
import { blocksOf } from "./placement/rowValues.js";
import { setAside } from "./placement/setAside.js";

/** A per-device program and how its inputs and outputs are split. */
export interface PartitionedProgram {
  readonly program: Program;
  readonly inSpecs: readonly Spec[];
  readonly outSpecs: readonly Spec[];
  /** Where split values had to be gathered. */
  readonly gathers: readonly GatherNote[];
}

/** A per-device program as it runs, whose inputs and outputs may lie split further than their specs say. */
export interface RunnableProgram extends PartitionedProgram {
  /** How the inputs are taken and the outputs are left. */
  readonly held: Pick<PartitionedProgram, "inSpecs" | "outSpecs">;
}

/** What the caller fixes. */
export interface PartitionRequest {
  /** How inputs are split; those that are undefined are chosen. */
  readonly inSpecs?: readonly (Spec | undefined)[];
  readonly outSpecs?: readonly (Spec | undefined)[];
  /** The axes along which gathers and scatters next to matrix products travel in rings; see {@link ringProducts}. */
  readonly overlap?: readonly string[];
}

/**
 * Turns a program over whole tensors into the program that every device of the mesh runs on its blocks: finds
 * a sharding for every value, then rewrites equation by equation, adding the collectives that are needed.
 */
export function partition(
  original: Program,
  whole: MeshShape,
  fixed: PartitionRequest = {},
): PartitionedProgram {
  const inlined = afterPass("inlineCalls", inlineCalls(original), "traced");
  const program = afterPass("ownConstants", ownConstants(inlined), "traced");
  const mesh = busyMesh(whole);
  const shardings = new Shardings();
  const fix = (atoms: readonly Atom[], specs: readonly (Spec | undefined)[] | undefined) =>
    atoms.forEach((atom, i) => {
      specOn(mesh, specs?.[i] ?? []).forEach((axes, d) => {
        shardings.fix(atom, d, axes);
      });
    });
  fix(program.inputs, fixed.inSpecs);
  fixConstraints(program, mesh, shardings);
  fix(program.outputs, fixed.outSpecs);
  propagate(program, mesh, shardings);
  const partitioner = new Partitioner(mesh, shardings);
  const inSpecs = program.inputs.map((input, i) => fixed.inSpecs?.[i] ?? shardings.get(input));
  const { program: result, outSpecs } = partitioner.program(
    program,
    inSpecs.map((spec) => specOn(mesh, spec)),
    program.outputs.map((atom, i) => {
      const given = fixed.outSpecs?.[i];
      return given ? specOn(mesh, given) : { atLeast: shardings.get(atom) };
    }),
  );
  const overlap = fixed.overlap ?? [];
  const needed = removeDeadCode(result);
  const hoisted = hoistGathers(needed, overlap, (inside, before, length) => {
    partitioner.resharding.noteHoisted(inside, before, length);
  });
  afterPass("hoistGathers", hoisted, "partitioned");
  const narrowed = narrowGathers(hoisted === needed ? needed : removeDeadCode(hoisted));
  afterPass("narrowGathers", narrowed, "partitioned");
  const ringed = ringProducts(narrowed, inSpecs, overlap);
  return {
    program: afterPass("partition", ringed, "partitioned"),
    inSpecs,
    outSpecs: outSpecs.map((spec, i) => fixed.outSpecs?.[i] ?? spec),
    gathers: partitioner.resharding.gathers,
  };
}

/** How an output must be split, or a split that is used unless the output is already split further. */
type Wanted = Spec | { readonly atLeast: Spec };

function choose(wanted: Wanted, actual: Spec): Spec {
  if (!("atLeast" in wanted)) return wanted;
  return wanted.atLeast.flat().length > actual.flat().length ? wanted.atLeast : actual;
}

function isZeros({ op, ins }: Eqn): boolean {
  return op === "broadcastInDim" && ins.every((atom) => atom.kind === "literal" && atom.value === 0);
}

class Partitioner {
  readonly resharding: Resharding;
  /** Rows that neighbours sent, for reuse. */
  private readonly received: PlaceContext["received"] = new WeakMap();
  /** What blocks were computed from, row by row. */
  private readonly origins = new Origins();
  private readonly sums: DeviceSums;
  /** Blocks of zeros. */
  private readonly zeros = new WeakSet<Tensor>();
  /** The values of programs that became part of the result unchanged. */
  private readonly takenValues = new Set<number>();
  /** The axes of the surrounding shard maps, along which any value may differ. */
  private manual: readonly string[] = [];

  constructor(
    readonly mesh: MeshShape,
    readonly shardings: Shardings,
  ) {
    this.sums = new DeviceSums(mesh);
    this.resharding = new Resharding(mesh, this.sums);
  }

  /** The per-device form of a program with the given specs. */
  program(
    program: Program,
    inSpecs: readonly Spec[],
    wanted: readonly Wanted[],
  ): { readonly program: Program; readonly outSpecs: readonly Spec[] } {
    const types = program.inputs.map(({ type }, i) => this.blockType(type, at(inSpecs, i)));
    let outSpecs: readonly Spec[] = [];
    const traced = traceFlat(
      (blocks) => {
        const ins = zip(blocks, inSpecs).map(([block, spec]) => blocksOf(block, spec));
        const outs = this.evaluate(program, ins);
        outSpecs = outs.map(({ spec }, i) => {
          const chosen = choose(at(wanted, i), spec);
          return at(program.outputs, i).type.shape.map((_, d) => chosen[d] ?? []);
        });
        return outs.map((value, i) =>
          this.resharding.move(value, at(outSpecs, i), undefined, at(program.outputs, i).type),
        );
      },
      types,
      "partition",
    );
    const joined = afterPass("joinSums", joinSums(removeDeadCode(traced.program)), "partitioned");
    return { program: afterPass("joinPermutes", joinPermutes(joined), "partitioned"), outSpecs };
  }

  private blockType(type: TensorType, spec: Spec): TensorType {
    return { dtype: type.dtype, shape: blockShape(type.shape, spec, this.mesh) };
  }

  private evaluate(program: Program, ins: readonly DeviceBlocks[]): DeviceBlocks[] {
    if (this.isUnsplit && this.staysAsItIs(program, ins)) return this.taken(program, ins);
    const values = new Map<number, PartitionedValue>();
    for (const [input, value] of zip(program.inputs, ins)) values.set(input.id, value);
    const read = (atom: Atom): PartitionedValue => {
      if (atom.kind === "literal") return blocksOf(Tensor.literal(atom), []);
      return getKnown(values, atom.id);
    };
    const settled = (atom: Atom, eqn?: Eqn): DeviceBlocks => {
      const value = read(atom);
      if (value.kind === "blocks") return value;
      const blocks = this.settle(value, eqn);
      if (atom.kind === "var") values.set(atom.id, blocks);
      return blocks;
    };
    const zeros = new Set(program.eqns.flatMap((eqn) => (isZeros(eqn) ? eqn.outs.map(({ id }) => id) : [])));
    const operandsOf = (eqn: Eqn): PartitionedValue[] => {
      if (eqn.op === "add")
        return eqn.ins.map((atom) => (isSparse(read(atom)) ? read(atom) : settled(atom, eqn)));
      if (eqn.op !== "concatenate") return eqn.ins.map(read);
      const { dim } = eqn.params;
      const rows = eqn.ins.map((atom) => {
        if (atom.kind === "var" && zeros.has(atom.id)) return zeroRows(atom.type);
        return isChain(read(atom), dim) ? read(atom) : settled(atom, eqn);
      });
      return this.alikeRows(rows, eqn);
    };
    const { isUnsplit } = this;
    for (const eqn of program.eqns) {
      const outs = atSource(eqn.source, (): readonly PartitionedValue[] => {
        if (!isUnsplit) {
          const moved = eqn.outs[0] && unmoved(eqn, operandsOf(eqn), eqn.outs[0].type, this.mesh);
          if (moved) return [moved];
        }
        const ins = eqn.ins.map((atom) => settled(atom, eqn));
        return this.apply(eqn, ins);
      });
      for (const [out, value] of zip(eqn.outs, outs)) {
        values.set(out.id, value);
        if (zeros.has(out.id) && value.kind === "blocks") this.zeros.add(value.block);
      }
    }
    return program.outputs.map((atom) => settled(atom));
  }

  /** Slices operands that are whole on every device to the blocks of the dims along which other operands are split. */
  private alikeRows(values: readonly PartitionedValue[], eqn: Eqn<"concatenate">): PartitionedValue[] {
    const { dim } = eqn.params;
    const specs = values.map((value) => (value.kind === "moves" ? specOfMoves(value) : value.spec));
    const split = specs.find((spec) => (spec[dim] ?? []).length > 0);
    const spec = split?.map((axes, d) => (d === dim ? [] : axes));
    return values.map((value, i) => {
      if (!spec || value.kind === "moves" || value.spec.flat().length > 0) return value;
      return blocksOf(this.resharding.move(value, spec, eqn, at(eqn.ins, i).type), spec);
    });
  }

  /** Makes moves by exchanging rows with neighbours, or else after gathering their sources. */
  private settle(moves: Moves, eqn: Eqn | undefined): DeviceBlocks {
    const context = { mesh: this.mesh, originOf: this.origins.of, received: this.received };
    const placed = placeMoves(moves, context);
    if (placed) return placed;
    const dims = new Set(moves.terms.flatMap(({ rows }) => [...rows.keys()]));
    const spec = specOfMoves(moves).map((axes, d) => (dims.has(d) ? [] : axes));
    const gathered = new Map<DeviceBlocks, DeviceBlocks>();
    const whole = (value: DeviceBlocks): DeviceBlocks =>
      getOrInsert(gathered, value, () => blocksOf(this.resharding.move(value, spec, eqn, moves.type), spec));
    const terms = moves.terms.map((term) => ({ ...term, source: whole(term.source) }));
    const base = moves.base && { base: whole(moves.base) };
    const result = placeMoves({ ...moves, terms, ...base }, context);
    if (!result) throw new InternalError(`[partition] rows of ${formatType(moves.type)} have no place`);
    return result;
  }

  private apply(eqn: Eqn, ins: readonly DeviceBlocks[]): DeviceBlocks[] {
    switch (eqn.op) {
      case "scan":
        return this.scan(eqn, ins);
      case "while":
        return this.while(eqn, ins);
      case "cond":
        return this.cond(eqn, ins);
      case "shardMap":
        return this.shardMap(eqn, ins);
      case "shardingConstraint": {
        this.requireFree(eqn);
        const out = at(eqn.outs, 0);
        const spec = this.shardings.get(out);
        return [blocksOf(this.resharding.move(at(ins, 0), spec, eqn, out.type), spec)];
      }
      case "pvary":
        // Only differentiation needs this mark.
        return [at(ins, 0)];
      case "optimizationBarrier": {
        const blocks = ops.optimizationBarrier(ins.map(({ block }) => block));
        return zip(blocks, ins).map(([block, { spec }]) => blocksOf(block, spec));
      }
      case "remat":
      case "customVjp":
        throw new InternalError(`[partition] ${eqn.op} must be inlined before`);
      default:
        return this.isUnsplit ? this.unsplit(eqn, ins) : this.local(eqn, ins);
    }
  }

  /** Whether no axis can split values: the mesh has none, or surrounding shard maps use all of them. */
  private get isUnsplit(): boolean {
    return this.mesh.axes.every(({ name }) => this.manual.includes(name));
  }

  /** Whether a program without splits can be copied as a whole, and none of its values is in the result already. */
  private staysAsItIs({ eqns }: Program, ins: readonly DeviceBlocks[]): boolean {
    const isNew = ({ id, type }: Var) => type.varying === undefined && !this.takenValues.has(id);
    return (
      eqns.every((eqn) => isLocal(eqn) && eqn.outs.every(isNew)) &&
      !ins.some(({ block }) => this.sums.has(block))
    );
  }

  private taken(program: Program, ins: readonly DeviceBlocks[]): DeviceBlocks[] {
    for (const { outs } of program.eqns) for (const { id } of outs) this.takenValues.add(id);
    const operands = ins.map(({ block }) => block);
    return inlineOnce(program, operands).map((block) => blocksOf(block, []));
  }

  /** An op whose operands are not split. */
  private unsplit(eqn: Eqn<LocalOp>, ins: readonly DeviceBlocks[]): DeviceBlocks[] {
    const operands = ins.map(({ block }) => block);
    const outs = repeat<OpName>(eqn, operands);
    if (eqn.op === "add") this.sums.add(operands, at(outs, 0));
    return outs.map((block) => blocksOf(block, []));
  }

  /** Throws if a constraint in a shard map's body splits over axes that the shard map already splits. */
  private requireFree({ params, source }: Eqn<"shardingConstraint">): void {
    const named = params.spec.flatMap((axes) => (axes === "unconstrained" ? [] : axes));
    const taken = named.find((axis) => this.manual.includes(axis));
    if (taken === undefined) return;
    const where = source ? ` (${source.text})` : "";
    throw new ShardingError(
      `a constraint to ${formatSpec(params.spec)} stands in a shardMap over "${taken}", whose body has a block along that axis already: leave "${taken}" out of the spec${where}`,
    );
  }

  /** An op on blocks: operands are brought to shardings that agree, partial results are combined. */
  private local(eqn: Eqn<LocalOp>, ins: readonly DeviceBlocks[]): DeviceBlocks[] {
    const { mesh } = this;
    const rule = factorRule(eqn);
    const wishesFor = (spec: Spec, dims: DimFactors | undefined, { type }: Atom) =>
      spec.flatMap((axes, d) => wishesOf(axes, dims?.[d] ?? [], rule.factors, mesh, bytesOf(type), false));
    const wishes = [
      ...ins.flatMap(({ spec }, i) => wishesFor(spec, rule.operands[i], at(eqn.ins, i))),
      ...eqn.outs.flatMap((out, i) => wishesFor(this.shardings.get(out), rule.results[i], out)),
    ];
    const assigned = usableAxes(
      setAside(eqn, ins, rule, assignAxes(wishes, rule.factors), this),
      [...rule.operands, ...rule.results].flat(),
      rule.factors,
      mesh,
    );
    const specOf = (dims: readonly (readonly number[])[]): Spec =>
      dims.map((factors) => dimAxes(factors, assigned, rule.factors, mesh));
    const operandSpecs = rule.operands.map(specOf);
    const resultSpecs = rule.results.map(specOf);
    const operands = this.moved(ins, operandSpecs, eqn);
    const auto = mesh.axes.filter(({ name }) => !this.manual.includes(name));
    const context = { mesh, rule, assigned, operandSpecs, resultSpecs, auto };
    const blocks = emitLocal(eqn, operands, context);
    if (eqn.op === "add") this.sums.add(operands, at(blocks, 0));
    const [first] = blocks;
    if (first) this.origins.note(eqn, operands, first, context);
    return blocks.map((block, i) => {
      const own = at(rule.results, i).flat();
      const result = blocksOf(block, at(resultSpecs, i));
      const partial = assigned.map((axes, factor) => (own.includes(factor) ? [] : axes));
      return this.sums.combine(result, this.shardings.get(at(eqn.outs, i)), rule.factors, partial);
    });
  }

  /** The operands of an equation, split as given. */
  private moved(ins: readonly DeviceBlocks[], specs: readonly Spec[], eqn: Eqn): Tensor[] {
    return ins.map((value, i) => this.resharding.move(value, at(specs, i), eqn, at(eqn.ins, i).type));
  }

  /** The body runs on blocks already; along axes that are not its own it is partitioned like the rest. */
  private shardMap(eqn: Eqn<"shardMap">, ins: readonly DeviceBlocks[]): DeviceBlocks[] {
    const { body } = eqn.params;
    const [inSpecs, outSpecs] = [eqn.params.inSpecs, eqn.params.outSpecs].map((specs) =>
      specs.map((spec) => specOn(this.mesh, spec)),
    );
    const inner = body.inputs.map((input) => this.shardings.get(input));
    const both = (manual: Spec | undefined, auto: Spec): Spec =>
      (manual ?? []).map((axes, d) => [...axes, ...(auto[d] ?? [])]);
    const whole = inner.map((spec, i) => both(inSpecs?.[i], spec));
    const blocks = zip(this.moved(ins, whole, eqn), inner).map(([block, spec]) => blocksOf(block, spec));
    const before = this.manual;
    this.manual = [...before, ...eqn.params.manual];
    const outs = this.evaluate(body, blocks);
    this.manual = before;
    return outs.map(({ block, spec }, i) => blocksOf(block, both(outSpecs?.[i], spec)));
  }

  private scan(eqn: Eqn<"scan">, ins: readonly DeviceBlocks[]): DeviceBlocks[] {
    const { body, numConsts, numCarry } = eqn.params;
    const inSpecs = body.inputs.map((input) => this.shardings.get(input));
    const wanted = body.outputs.map(
      (output, i): Wanted =>
        i < numCarry ? at(inSpecs, numConsts + i) : { atLeast: this.shardings.get(output) },
    );
    const stacked = (spec: Spec, isSlice: boolean): Spec => (isSlice ? [[], ...spec] : spec);
    const whole = inSpecs.map((spec, i) => stacked(spec, i >= numConsts + numCarry));
    const operands = this.moved(ins, whole, eqn);
    const { program: local, outSpecs } = this.resharding.repeated(eqn.params.length, () =>
      this.program(body, inSpecs, wanted),
    );
    const carries = range(numCarry).map((i) => numConsts + i);
    const varying = inSpecs.map((spec) => new Set([...spec.flat(), ...this.manual]));
    const [carried, slices] = [local.outputs.slice(0, numCarry), local.outputs.slice(numCarry)];
    const room = bytesOfAll(operands) + bytesOfAll(carried) + bytesOfAll(slices) * eqn.params.length;
    const { body: partial, sums } = deferSums(removeDeadCode(local), carries, varying, room);
    const starts = operands.map((x, i) =>
      sums.has(i - numConsts) ? ops.zeros(at(partial.inputs, i).type) : x,
    );
    const results = bind("scan", starts, { ...eqn.params, body: partial });
    return results.map((block, i) => {
      const spec = stacked(at(outSpecs, i), i >= numCarry);
      const sum = sums.get(i);
      if (!sum) return blocksOf(block, spec);
      const total =
        sum.dim === undefined ? this.sums.total(block, sum.axes) : ops.psumScatter(block, sum.axes, sum.dim);
      const start = at(operands, numConsts + i);
      return blocksOf(this.zeros.has(start) ? total : ops.add(start, total), spec);
    });
  }

  private while(eqn: Eqn<"while">, ins: readonly DeviceBlocks[]): DeviceBlocks[] {
    const { condition, body, numConditionConsts, numBodyConsts } = eqn.params;
    const bodySpecs = body.inputs.map((input) => this.shardings.get(input));
    const carrySpecs = bodySpecs.slice(numBodyConsts);
    const conditionSpecs = condition.inputs.map((input, i) =>
      i < numConditionConsts ? this.shardings.get(input) : at(carrySpecs, i - numConditionConsts),
    );
    const specs = [...conditionSpecs.slice(0, numConditionConsts), ...bodySpecs];
    const operands = this.moved(ins, specs, eqn);
    const params: OpParams["while"] = {
      ...eqn.params,
      condition: this.program(condition, conditionSpecs, [[]]).program,
      body: this.program(body, bodySpecs, carrySpecs).program,
    };
    return zip(bind("while", operands, params), carrySpecs).map(([block, spec]) => blocksOf(block, spec));
  }

  private cond(eqn: Eqn<"cond">, ins: readonly DeviceBlocks[]): DeviceBlocks[] {
    const operands = ins.slice(1);
    const inSpecs = operands.map(({ spec }, i) => at(eqn.ins, i + 1).type.shape.map((_, d) => spec[d] ?? []));
    const outSpecs = eqn.outs.map((out) => this.shardings.get(out));
    const branches = eqn.params.branches.map((branch) => this.program(branch, inSpecs, outSpecs).program);
    const blocks = ins.map(({ block }) => block);
    const results = bind("cond", blocks, { ...eqn.params, branches });
    return zip(results, outSpecs).map(([block, spec]) => blocksOf(block, spec));
  }
}
