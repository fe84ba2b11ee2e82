/**
 * The steps of a per-device program on devices whose compiler fuses, such as GPUs through XLA: products, attention as
 * one kernel, fused kernels that read and write memory once, and collectives that run while others compute.
 */
import type { CollectiveSpec, RaggedExchange, SlotAddress } from "../../compiler/steps.js";
import { axesSize, deviceGroups, type MeshShape } from "../../ir/mesh.js";
import { type CollectiveOp, flopsOf, isCollectiveEqn } from "../../ir/opFacts.js";
import type { Eqn, Program, Var } from "../../ir/program.js";
import { at, bytesOf, bytesOfAll, sizeOf } from "../../ir/shape.js";
import {
  attentionSeconds,
  type DeviceSpeed,
  kernelSeconds,
  type ProductSize,
  productSeconds,
} from "./deviceSpeed.js";
import { type ExpertLoad, filledExchange } from "./expertLoad.js";
import { Fusion } from "./fusion.js";
import type { Prices } from "./prices.js";
import type { TimedCollective, TimedStep } from "./timedSteps.js";

/** A machine on which a program is priced. */
export interface FusingMachine {
  readonly device: DeviceSpeed;
  readonly mesh: MeshShape;
  readonly collective: Prices["collective"];
  /** The rows of the embedding table on a device. */
  readonly vocabulary: number;
  /** The load of the fullest device along `expert`. */
  readonly load: ExpertLoad;
}

/** The steps of a program, in the order of its equations. */
export function fusedSteps(program: Program, machine: FusingMachine): TimedStep[] {
  return stepsOf(program, machine, undefined);
}

/** How a collective appears in prices. */
const kinds: { readonly [K in CollectiveOp]: CollectiveSpec["kind"] } = {
  psum: "allReduce",
  pmax: "allReduce",
  pmin: "allReduce",
  allGather: "allGather",
  psumScatter: "reduceScatter",
  ppermute: "permute",
  allToAll: "allToAll",
  raggedAllToAll: "allToAll",
};

/** The numbers of inputs of a loop's body. */
interface Iteration {
  readonly numConsts: number;
  readonly numCarry: number;
}

function stepsOf(program: Program, machine: FusingMachine, loop: Iteration | undefined): TimedStep[] {
  const fusion = new Fusion(program);
  const isBackground = loop ? backgroundOf(program, fusion, loop) : () => false;
  // Steps before and behind those of an equation: the ends and the starts of collectives.
  const at0: TimedStep[] = [];
  const before = program.eqns.map((): TimedStep[] => []);
  const behind = program.eqns.map((): TimedStep[] => []);
  const firstUse = firstUses(program, fusion);
  const casts = new Casts(fusion);
  program.eqns.forEach((eqn) => {
    if (!isCollectiveEqn(eqn)) return;
    const collective = timedCollective(eqn, machine, isBackground(eqn));
    if (collective.seconds === 0) return;
    const ready = Math.max(-1, ...fusion.operands(eqn).map((value) => fusion.storedAt(value)));
    (ready < 0 ? at0 : at(behind, ready)).push({ op: "start", collective });
    const needed = Math.min(...eqn.outs.map(({ id }) => firstUse.get(id) ?? program.eqns.length));
    const end: TimedStep = { op: "done", collective };
    if (needed < program.eqns.length) at(before, needed).push(end);
    else behind.at(-1)?.push(end);
  });
  return [
    ...at0,
    ...program.eqns.flatMap((eqn, i) => [
      ...at(before, i),
      ...(fusion.kernels.get(i) ?? []).map(({ reads, writes }): TimedStep => {
        const bytes = [...reads.values()].reduce((sum, one) => sum + one, 0) + bytesOfAll(writes);
        return { op: "work", part: "kernels", seconds: kernelSeconds(machine.device, bytes) };
      }),
      ...(fusion.isSeparate(eqn) ? separateSteps(eqn, machine, casts) : []),
      ...at(behind, i),
    ]),
  ];
}

/** For every stored value the first equation that reads it. */
function firstUses({ eqns }: Program, fusion: Fusion): Map<number, number> {
  const found = new Map<number, number>();
  const use = (value: Var, position: number) => {
    if (!found.has(value.id)) found.set(value.id, position);
  };
  eqns.forEach((eqn, i) => {
    for (const { reads } of fusion.kernels.get(i) ?? []) for (const value of reads.keys()) use(value, i);
    if (fusion.isSeparate(eqn)) for (const value of fusion.operands(eqn)) use(value, i);
  });
  return found;
}

/** Which factors of products have been cast to float8: once each, and before they are gathered. */
class Casts {
  private readonly known = new Set<number>();

  constructor(private readonly fusion: Fusion) {}

  /** Whether a product's program rounds a factor; the other one may have been rounded where a loop kept it. */
  isRounded(eqn: Eqn): boolean {
    return this.fusion.operands(eqn).some((value) => {
      const scaled = this.fusion.definition(value);
      const [factor] = scaled?.op === "mul" ? this.fusion.operands(scaled) : [];
      return factor !== undefined && this.fusion.definition(factor)?.op === "roundFloat8";
    });
  }

  /** The elements of an equation's factors that are still to be cast. */
  add(eqn: Eqn): number {
    return this.fusion.operands(eqn).reduce((sum, value) => {
      if (this.known.has(value.id)) return sum;
      this.known.add(value.id);
      const made = this.fusion.definition(value);
      return sum + sizeOf((made?.op === "allGather" ? at(made.ins, 0) : value).type.shape);
    }, 0);
  }
}

/** Equations that are not part of fused kernels. */
function separateSteps(eqn: Eqn, machine: FusingMachine, casts: Casts): TimedStep[] {
  const { device } = machine;
  const work = (part: "products" | "attention" | "kernels" | "moves", seconds: number): TimedStep[] => [
    { op: "work", part, seconds },
  ];
  const [bytesIn, bytesOut] = [bytesOfAll(eqn.ins), bytesOfAll(eqn.outs)];
  switch (eqn.op) {
    case "dotGeneral":
      return work("products", productSeconds(device, productOf(eqn, machine.vocabulary, casts)));
    case "raggedDot": {
      const [{ type: x }, { type: y }] = [at(eqn.ins, 0), at(eqn.ins, 1)];
      const [m = 1, k = 1] = x.shape.slice(-2);
      const rows = m * machine.load.filled;
      const shape = { m: rows, k, n: y.shape.at(-1) ?? 1, batch: 1, dtype: x.dtype };
      const factors = { isWeight: true, isRounded: false, uncast: casts.add(eqn) };
      return work("products", productSeconds(device, { ...shape, ...factors, bytes: bytesIn + bytesOut }));
    }
    case "attention":
    case "attentionBackward":
      return work("attention", attentionSeconds(device, attentionFlops(eqn), bytesIn + bytesOut));
    case "scan": {
      const { body, length: count, role, numConsts, numCarry } = eqn.params;
      return [{ op: "loop", count, body: stepsOf(body, machine, { numConsts, numCarry }), role }];
    }
    case "while": {
      const parts = [eqn.params.condition, eqn.params.body].flatMap((one) =>
        stepsOf(one, machine, undefined),
      );
      return [{ op: "loop", count: 1, body: parts, role: undefined }];
    }
    case "cond": {
      const { branches, role } = eqn.params;
      return [{ op: "cond", branches: branches.map((one) => stepsOf(one, machine, undefined)), role }];
    }
    case "gather":
      return work("moves", kernelSeconds(device, 2 * bytesOut));
    case "dynamicUpdateSlice":
      return work("moves", kernelSeconds(device, 2 * bytesOf(at(eqn.ins, 1).type)));
    case "scatter":
      return work("moves", kernelSeconds(device, 3 * bytesOf(at(eqn.ins, 2).type)));
    case "sort":
      // A radix sort reads and writes its keys about once for each of eight digits.
      return work("kernels", kernelSeconds(device, 8 * (bytesIn + bytesOut)));
    default:
      return isCollectiveEqn(eqn) ? [] : work("kernels", kernelSeconds(device, bytesIn + bytesOut));
  }
}

function productOf(eqn: Eqn<"dotGeneral">, vocabulary: number, casts: Casts): ProductSize {
  const { ins, outs, params } = eqn;
  const [lhs, rhs, out] = [at(ins, 0).type, at(ins, 1).type, at(outs, 0).type];
  const sizes = (dims: readonly number[]) => dims.reduce((size, dim) => size * at(lhs.shape, dim), 1);
  const [k, batch] = [sizes(params.lhsContract), sizes(params.lhsBatch)];
  const [m, n] = [sizeOf(lhs.shape) / (k * batch), sizeOf(rhs.shape) / (k * batch)];
  return {
    m,
    n,
    k,
    batch,
    dtype: lhs.dtype,
    isWeight: params.lhsBatch.length === 0 && ![m, n, k].includes(vocabulary),
    isRounded: casts.isRounded(eqn),
    bytes: bytesOf(lhs) + bytesOf(rhs) + bytesOf(out),
    uncast: casts.add(eqn),
  };
}

/** What attention computes; of keys whose positions are known when it runs, a causal one sees half. */
function attentionFlops(eqn: Eqn<"attention" | "attentionBackward">): number {
  const { causal, extras } = eqn.params;
  return flopsOf(eqn) * (causal && extras?.includes("queryPositions") ? 0.5 : 1);
}

/** Where things lie does not matter for their prices. */
const nowhere: SlotAddress = { slot: 0, offset: 0 };

function timedCollective(
  eqn: Eqn<CollectiveOp>,
  { mesh, collective, load }: FusingMachine,
  isBackground: boolean,
): TimedCollective {
  const { axes } = eqn.params;
  const names = axes.map(({ name }) => name);
  const { dtype, shape } = at(eqn.ins, 0).type;
  const elements = sizeOf(shape);
  const spec: CollectiveSpec = filledExchange(
    {
      kind: kinds[eqn.op],
      combine: "sum",
      dtype,
      axes,
      groups: deviceGroups(mesh, names),
      size: axesSize(axes),
      source: nowhere,
      target: nowhere,
      elements,
      outer: 1,
      inner: elements,
      permutation: eqn.op === "ppermute" ? eqn.params.permutation : [],
      ...(eqn.op === "raggedAllToAll" && { ragged: raggedExchange(eqn) }),
      info: 0,
    },
    load,
  );
  return { axes: names.join(", "), seconds: spec.size > 1 ? collective(spec) : 0, isBackground };
}

/** How many rows an exchange has on both sides. */
function raggedExchange({ ins }: Eqn<"raggedAllToAll">): RaggedExchange<SlotAddress> {
  const [rows = 1] = at(ins, 0).type.shape;
  const [targetRows = 1] = at(ins, 1).type.shape;
  return { sends: nowhere, receives: nowhere, numBlocks: 1, rows, targetRows };
}

/**
 * The collectives of a loop's body that need nothing of the iteration before, such as the gathers of a layer's
 * parameters, and those that the next iteration does not need, such as the sums of its gradients.
 */
function backgroundOf(program: Program, fusion: Fusion, { numConsts, numCarry }: Iteration) {
  const { inputs, eqns, outputs } = program;
  const carried = new Set(inputs.slice(numConsts, numConsts + numCarry).map(({ id }) => id));
  for (const eqn of eqns) {
    if (eqn.op === "optimizationBarrier") continue;
    if (fusion.operands(eqn).some(({ id }) => carried.has(id)))
      for (const { id } of eqn.outs) carried.add(id);
  }
  const next = new Set(outputs.slice(0, numCarry).flatMap((atom) => fusion.root(atom)?.id ?? []));
  for (const eqn of [...eqns].reverse()) {
    if (eqn.op === "optimizationBarrier" || !eqn.outs.some(({ id }) => next.has(id))) continue;
    for (const { id } of fusion.operands(eqn)) next.add(id);
  }
  return (eqn: Eqn): boolean => {
    const needsNothing = fusion.operands(eqn).every(({ id }) => !carried.has(id));
    return needsNothing || eqn.outs.every(({ id }) => !next.has(id));
  };
}
