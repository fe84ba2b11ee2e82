/**
 * Afterwards small sums over the same devices are sent together, as one sum of their concatenated elements: as many
 * as follow each other before any of them is read, up to the size of a bucket.
 *
 * Unchanged are all values, bit for bit, because devices are added in the same order for every element, and every
 * other equation.
 */

import { type Atom, type Eqn, makeEqn, newVar, type Program, type Var } from "../../ir/program.js";
import { at, bytesOf, sizeOf, tensorType } from "../../ir/shape.js";

/** Maximum bytes of a sum that costs latency rather than work, so that concatenating it with others pays. */
const SMALL_BYTES = 32 * 1024;

/** Maximum bytes of a bucket. */
const BUCKET_BYTES = 256 * 1024;

type Sum = Eqn<"psum">;

/** Sums of one data type over the same axes. */
interface Bucket {
  readonly members: Sum[];
  bytes: number;
}

/** Combines small sums over the same devices, such as gradients of biases and scales, into one. */
export function bucketSums(program: Program): Program {
  const buckets = findBuckets(program).filter(({ members }) => members.length > 1);
  if (buckets.length === 0) return program;
  const bucketOf = new Map<Eqn, Bucket>(
    buckets.flatMap((bucket) => bucket.members.map((sum) => [sum, bucket] as const)),
  );
  const eqns = program.eqns.flatMap((eqn): readonly Eqn[] => {
    const bucket = bucketOf.get(eqn);
    if (!bucket) return [eqn];
    // By then all of them are computed, and none has been read.
    return bucket.members.at(-1) === eqn ? bucketSum(bucket) : [];
  });
  return { ...program, eqns };
}

function findBuckets(program: Program): Bucket[] {
  const found: Bucket[] = [];
  const open = new Map<string, Bucket>();
  const keyOf = new Map<number, string>();
  for (const eqn of program.eqns) {
    for (const atom of eqn.ins) open.delete((atom.kind === "var" && keyOf.get(atom.id)) || "");
    if (eqn.op !== "psum") continue;
    const { type } = at(eqn.ins, 0);
    const bytes = bytesOf(type);
    if (bytes === 0 || bytes > SMALL_BYTES) continue;
    const key = `${type.dtype} ${eqn.params.axes.map(({ name }) => name).join()}`;
    const bucket = open.get(key);
    if (bucket && bucket.bytes + bytes <= BUCKET_BYTES) {
      bucket.members.push(eqn);
      bucket.bytes += bytes;
    } else {
      const fresh = { members: [eqn], bytes };
      found.push(fresh);
      open.set(key, fresh);
    }
    keyOf.set(at(eqn.outs, 0).id, key);
  }
  return found;
}

/** The sum of all members, in place of the last one. */
function bucketSum({ members }: Bucket): Eqn[] {
  const first = at(members, 0);
  const { dtype } = at(first.ins, 0).type;
  const { source } = first;
  const flat = members.map(({ ins }) => flattened(at(ins, 0)));
  const joined = newVar(tensorType(dtype, [flat.reduce((sum, { size }) => sum + size, 0)]));
  const sums = newVar(joined.type);
  const atoms = flat.map(({ atom }) => atom);
  let start = 0;
  const parts = members.flatMap(({ outs: [out] }, i): Eqn[] => {
    const { size } = at(flat, i);
    const from = start;
    start += size;
    return out ? cut(sums, from, from + size, out) : [];
  });
  return [
    ...flat.flatMap(({ eqns }) => eqns),
    makeEqn("concatenate", atoms, [joined], { dim: 0 }, source),
    makeEqn("psum", [joined], [sums], first.params, source),
    ...parts,
  ];
}

function flattened(x: Atom): { readonly atom: Atom; readonly size: number; readonly eqns: readonly Eqn[] } {
  const { dtype, shape } = x.type;
  const size = sizeOf(shape);
  if (shape.length === 1) return { atom: x, size, eqns: [] };
  const flat = newVar(tensorType(dtype, [size]));
  // A constant has no memory that could be viewed in another shape.
  const eqn =
    x.kind === "literal"
      ? makeEqn("broadcastInDim", [x], [flat], { shape: [size], dims: [] })
      : makeEqn("reshape", [x], [flat], { shape: [size] });
  return { atom: flat, size, eqns: [eqn] };
}

function cut(sums: Var, start: number, end: number, out: Var): Eqn[] {
  const params = { starts: [start], limits: [end], strides: [1] };
  const { dtype, shape } = out.type;
  if (shape.length === 1) return [makeEqn("slice", [sums], [out], params)];
  const part = newVar(tensorType(dtype, [end - start]));
  return [makeEqn("slice", [sums], [part], params), makeEqn("reshape", [part], [out], { shape })];
}
