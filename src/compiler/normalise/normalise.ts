import { isFloat } from "../../ir/dtype.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import {
  type Atom,
  type Eqn,
  type Literal,
  makeEqn,
  mapInnerPrograms,
  newLiteral,
  newVar,
  type Program,
  type SourceLocation,
  type Var,
} from "../../ir/program.js";
import { at, range, type Shape, sizeOf, tensorType } from "../../ir/shape.js";
import { reductionIdentity } from "../identities.js";
import { joinPads } from "./joinPads.js";

/**
 * Brings a per-device program into the small language that the later passes understand:
 *
 * * `remat`, `customVjp`, `name`, `stopGradient`, `optimizationBarrier` and shape-preserving movements are gone;
 * * 16-bit floats are reduced, scanned and multiplied in float32;
 * * integer matrix products are products and sums;
 * * sums of padded blocks that tile a tensor are concatenations;
 * * collectives move dense blocks, `allToAll` along dim 0;
 * * results without elements, or made of no elements, are constants;
 * * what nothing needs is dropped.
 */
export function normalise(program: Program): Program {
  return dropUnused(joinPads(new Rewriter().program(program)));
}

/** Keeps the equations whose results are needed; collectives stay, since other devices wait for them. */
function dropUnused(program: Program): Program {
  const needed = new Set<number>();
  const need = (atom: Atom) => {
    if (atom.kind === "var") needed.add(atom.id);
  };
  program.outputs.forEach(need);
  const kept: Eqn[] = [];
  for (let i = program.eqns.length - 1; i >= 0; i--) {
    const eqn = at(program.eqns, i);
    if (!eqn.outs.some((out) => needed.has(out.id)) && !communicates(eqn)) continue;
    eqn.ins.forEach(need);
    kept.push(eqn);
  }
  return { ...program, eqns: kept.reverse() };
}

function communicates(eqn: Eqn): boolean {
  switch (eqn.op) {
    case "psum":
    case "pmax":
    case "pmin":
    case "allGather":
    case "psumScatter":
    case "ppermute":
    case "allToAll":
      return true;
    case "scan":
      return eqn.params.body.eqns.some(communicates);
    case "while":
      return [...eqn.params.condition.eqns, ...eqn.params.body.eqns].some(communicates);
    case "cond":
      return eqn.params.branches.some((branch) => branch.eqns.some(communicates));
    default:
      return false;
  }
}

class Rewriter {
  private eqns: Eqn[] = [];
  private values = new Map<number, Atom>();
  private source: SourceLocation | undefined;

  program(program: Program): Program {
    for (const eqn of program.eqns) this.eqn(eqn);
    return { inputs: program.inputs, eqns: this.eqns, outputs: program.outputs.map((a) => this.atom(a)) };
  }

  private inner(program: Program): Program {
    return normalise(program);
  }

  private atom(atom: Atom): Atom {
    return atom.kind === "var" ? (this.values.get(atom.id) ?? atom) : atom;
  }

  private emit<K extends OpName>(
    op: K,
    ins: readonly Atom[],
    outs: readonly Var[],
    params: OpParams[K],
  ): void {
    this.eqns.push(makeEqn(op, ins, outs, params, this.source) as Eqn);
  }

  /** Emits an op with one result of the given type and gives the result. */
  private make<K extends OpName>(
    op: K,
    ins: readonly Atom[],
    type: { readonly dtype: Var["type"]["dtype"]; readonly shape: Shape },
    params: OpParams[K],
  ): Var {
    const out = newVar(type);
    this.emit(op, ins, [out], params);
    return out;
  }

  private replace(out: Var, by: Atom): void {
    this.values.set(out.id, by);
  }

  private splat(literal: Literal, shape: Shape, out?: Var): Var {
    const target = out ?? newVar(tensorType(literal.type.dtype, shape));
    this.emit("broadcastInDim", [literal], [target], { shape, dims: [] });
    return target;
  }

  private convert(x: Atom, dtype: Var["type"]["dtype"]): Var {
    return this.make("convert", [x], tensorType(dtype, x.type.shape), { dtype });
  }

  /** Inlines a body: its inputs become the operands, its outputs the results. */
  private inline(body: Program, ins: readonly Atom[], outs: readonly Var[]): void {
    const outer = this.values;
    const source = this.source;
    this.values = new Map(outer);
    body.inputs.forEach((input, i) => {
      this.values.set(input.id, at(ins, i));
    });
    // The same body can be inlined twice, so its values get fresh names.
    for (const eqn of body.eqns) {
      const fresh = eqn.outs.map((out) => newVar(out.type));
      this.eqn({ ...eqn, outs: fresh } as Eqn);
      eqn.outs.forEach((out, i) => {
        this.values.set(out.id, this.atom(at(fresh, i)));
      });
    }
    const results = body.outputs.map((a) => this.atom(a));
    this.values = outer;
    this.source = source;
    outs.forEach((out, i) => {
      this.replace(out, at(results, i));
    });
  }

  private eqn(original: Eqn): void {
    this.source = original.source ?? this.source;
    const eqn = { ...original, ins: original.ins.map((a) => this.atom(a)) } as Eqn;
    const out = eqn.outs[0];
    if (!("axes" in eqn.params) && eqn.outs.length > 0 && !hasBody(eqn)) {
      if (eqn.outs.every((o) => sizeOf(o.type.shape) === 0)) {
        for (const o of eqn.outs) this.splat(newLiteral(0, o.type.dtype), o.type.shape, o);
        return;
      }
    }
    switch (eqn.op) {
      case "name":
      case "stopGradient":
      case "optimizationBarrier":
        eqn.outs.forEach((o, i) => {
          this.replaceOrSplat(o, at(eqn.ins, i));
        });
        return;
      case "remat":
      case "customVjp":
        this.inline(eqn.params.body, eqn.ins, eqn.outs);
        return;
      case "scan":
      case "while":
      case "cond":
        this.eqns.push(mapInnerPrograms(eqn, (body) => this.inner(body)));
        return;
      case "convert":
      case "bitcast":
        if (out && at(eqn.ins, 0).type.dtype === eqn.params.dtype) this.replaceOrSplat(out, at(eqn.ins, 0));
        else this.eqns.push(eqn);
        return;
      case "transpose":
        if (out && eqn.params.permutation.every((p, i) => p === i)) this.replace(out, at(eqn.ins, 0));
        else this.eqns.push(eqn);
        return;
      case "reshape":
      case "broadcastInDim": {
        const [x] = eqn.ins;
        if (out && x?.kind === "var" && x.type.shape.join() === out.type.shape.join()) this.replace(out, x);
        else if (out && eqn.op === "reshape" && x?.kind === "literal") this.splat(x, out.type.shape, out);
        else this.eqns.push(eqn);
        return;
      }
      case "clamp":
        if (out) this.clamp(eqn as Eqn<"clamp">, out);
        return;
      case "reduceSum":
      case "reduceMax":
      case "reduceMin":
        if (out) this.reduce(eqn as Eqn<"reduceSum">, out);
        return;
      case "cumsum":
        if (out) this.cumsum(eqn as Eqn<"cumsum">, out);
        return;
      case "scatter":
        if (out) this.scatter(eqn as Eqn<"scatter">, out);
        return;
      case "dotGeneral":
        if (out) this.dot(eqn as Eqn<"dotGeneral">, out);
        return;
      case "allToAll":
        if (out) this.allToAll(eqn as Eqn<"allToAll">, out);
        return;
      default:
        this.eqns.push(eqn);
    }
  }

  private replaceOrSplat(out: Var, by: Atom): void {
    if (by.kind === "literal" && out.type.shape.length > 0) this.splat(by, out.type.shape, out);
    else this.replace(out, by);
  }

  private clamp(eqn: Eqn<"clamp">, out: Var): void {
    const [low, x, high] = [at(eqn.ins, 0), at(eqn.ins, 1), at(eqn.ins, 2)];
    const raised = this.make("max", [x, low], out.type, {});
    this.emit("min", [raised, high], [out], {});
  }

  private reduce(eqn: Eqn<"reduceSum">, out: Var): void {
    const x = at(eqn.ins, 0);
    const op = eqn.op;
    const { dtype, shape } = x.type;
    const dims = eqn.params.dims.filter((d) => shape[d] !== 1);
    if (sizeOf(shape) === 0) {
      this.splat(newLiteral(reductionIdentity(op, dtype), dtype), out.type.shape, out);
    } else if (dims.length === 0) {
      if (shape.length === out.type.shape.length) this.replaceOrSplat(out, x);
      else this.emit("reshape", [x], [out], { shape: out.type.shape });
    } else if (dtype === "bfloat16" || dtype === "float16") {
      const wide = this.convert(x, "float32");
      const sum = this.make(op, [wide], tensorType("float32", out.type.shape), { dims: eqn.params.dims });
      this.emit("convert", [sum], [out], { dtype });
    } else {
      this.emit(op, [x], [out], { dims: eqn.params.dims });
    }
  }

  private cumsum(eqn: Eqn<"cumsum">, out: Var): void {
    const x = at(eqn.ins, 0);
    const { dtype, shape } = x.type;
    if (dtype !== "bfloat16" && dtype !== "float16") {
      this.eqns.push(eqn);
      return;
    }
    const wide = this.convert(x, "float32");
    const sums = this.make("cumsum", [wide], tensorType("float32", shape), eqn.params);
    this.emit("convert", [sums], [out], { dtype });
  }

  private scatter(eqn: Eqn<"scatter">, out: Var): void {
    const [x, indices, updates] = [at(eqn.ins, 0), at(eqn.ins, 1), at(eqn.ins, 2)];
    const { dtype, shape } = x.type;
    if (eqn.params.combine === "set" || (dtype !== "bfloat16" && dtype !== "float16")) {
      this.eqns.push(eqn);
      return;
    }
    const ins = [this.convert(x, "float32"), indices, this.convert(updates, "float32")];
    const sums = this.make("scatter", ins, tensorType("float32", shape), eqn.params);
    this.emit("convert", [sums], [out], { dtype });
  }

  private dot(eqn: Eqn<"dotGeneral">, out: Var): void {
    const [x, y] = [at(eqn.ins, 0), at(eqn.ins, 1)];
    const { lhsContract, dtype } = eqn.params;
    const operand = x.type.dtype;
    if (lhsContract.some((d) => x.type.shape[d] === 0)) {
      this.splat(newLiteral(0, dtype), out.type.shape, out);
      return;
    }
    // The product is formed in a type that holds it: 16-bit floats in float32, integers exactly.
    const work = operand === "bfloat16" || operand === "float16" ? "float32" : operand;
    const wide = isFloat(dtype) && isFloat(work) && dtype === "float64" ? "float64" : work;
    const [a, b] = [x, y].map((v) => (v.type.dtype === wide ? v : this.convert(v, wide))) as [Atom, Atom];
    const target = wide === dtype ? out : newVar(tensorType(wide, out.type.shape));
    if (isFloat(wide)) this.emit("dotGeneral", [a, b], [target], { ...eqn.params, dtype: wide });
    else this.integerDot(a, b, eqn.params, target);
    if (target !== out) this.emit("convert", [target], [out], { dtype });
  }

  /** A product of integers as a broadcast product and its sum over the contracted dims. */
  private integerDot(x: Atom, y: Atom, p: OpParams["dotGeneral"], out: Var): void {
    const free = (v: Atom, used: readonly number[]) =>
      range(v.type.shape.length).filter((d) => !used.includes(d));
    const lhsFree = free(x, [...p.lhsBatch, ...p.lhsContract]);
    const rhsFree = free(y, [...p.rhsBatch, ...p.rhsContract]);
    const size = (v: Atom, dims: readonly number[]) => dims.map((d) => at(v.type.shape, d));
    const shape = [
      ...size(x, p.lhsBatch),
      ...size(x, lhsFree),
      ...size(y, rhsFree),
      ...size(x, p.lhsContract),
    ];
    const batch = range(p.lhsBatch.length);
    const left = range(lhsFree.length).map((i) => batch.length + i);
    const right = range(rhsFree.length).map((i) => batch.length + left.length + i);
    const contract = range(p.lhsContract.length).map((i) => batch.length + left.length + right.length + i);
    const spread = (v: Atom, order: readonly number[], dims: readonly number[]): Var => {
      const dtype = v.type.dtype;
      const turned = this.make("transpose", [v], tensorType(dtype, size(v, order)), { permutation: order });
      return this.make("broadcastInDim", [turned], tensorType(dtype, shape), { shape, dims });
    };
    const a = spread(x, [...p.lhsBatch, ...lhsFree, ...p.lhsContract], [...batch, ...left, ...contract]);
    const b = spread(y, [...p.rhsBatch, ...rhsFree, ...p.rhsContract], [...batch, ...right, ...contract]);
    const product = this.make("mul", [a, b], tensorType(x.type.dtype, shape), {});
    if (contract.length === 0) this.replace(out, product);
    else this.emit("reduceSum", [product], [out], { dims: contract });
  }

  /** Splits to `[devices, …block]`, exchanges along dim 0, and puts what arrives along the other dim. */
  private allToAll(eqn: Eqn<"allToAll">, out: Var): void {
    const x = at(eqn.ins, 0);
    const { axes, splitDim, concatDim } = eqn.params;
    const devices = axes.reduce((n, axis) => n * axis.size, 1);
    const { dtype, shape } = x.type;
    const rank = shape.length;
    const split = shape.flatMap((n, d) => (d === splitDim ? [devices, n / devices] : [n]));
    const parts = this.make("reshape", [x], tensorType(dtype, split), { shape: split });
    const first = [splitDim, ...range(rank + 1).filter((d) => d !== splitDim)];
    const blocks = first.map((d) => at(split, d));
    const sent = this.make("transpose", [parts], tensorType(dtype, blocks), { permutation: first });
    const arrived = this.make("allToAll", [sent], tensorType(dtype, blocks), {
      axes,
      splitDim: 0,
      concatDim: 0,
    });
    // The device dim goes right before the dim it is concatenated to.
    const order = range(rank).flatMap((d) => (d === concatDim ? [0, d + 1] : [d + 1]));
    const placed = order.map((d) => at(blocks, d));
    const moved = this.make("transpose", [arrived], tensorType(dtype, placed), { permutation: order });
    this.emit("reshape", [moved], [out], { shape: out.type.shape });
  }
}

function hasBody(eqn: Eqn): boolean {
  return (
    eqn.op === "scan" ||
    eqn.op === "while" ||
    eqn.op === "cond" ||
    eqn.op === "remat" ||
    eqn.op === "customVjp"
  );
}
