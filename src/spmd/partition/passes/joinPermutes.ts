import { getOrInsert } from "../../../ir/collections.js";
import { type Atom, type Eqn, makeEqn, newVar, type Program, type Var } from "../../../ir/program.js";
import { at, sizeOf } from "../../../ir/shape.js";

/** A strided slice of a value. */
interface StridedSlice extends Range {
  readonly source: Var;
  readonly strides: readonly number[];
}

/** The rows from `starts` to `limits` along each dim. */
interface Range {
  readonly starts: readonly number[];
  readonly limits: readonly number[];
}

/** One exchange that replaces several that send parts of the same value to the same neighbours. */
interface Joined extends Range {
  readonly source: Var;
  readonly members: readonly Eqn<"ppermute">[];
  /** How many elements it sends. */
  readonly size: number;
}

/**
 * Sends rows once if several exchanges of a value with the same neighbours need them, as overlapping windows do: the
 * first exchange sends what all of them need, unless that is more than before.
 */
export function joinPermutes(program: Program): Program {
  const partOf = findParts(program);
  const groups = findJoined(program, partOf).filter(({ members }) => members.length > 1);
  if (groups.length === 0) return program;
  const joinedOf = new Map(groups.flatMap((joined) => joined.members.map((eqn) => [eqn, joined])));
  const received = new Map<Joined, Var>();
  const eqns = program.eqns.flatMap((eqn): Eqn[] => {
    const joined = eqn.op === "ppermute" ? joinedOf.get(eqn) : undefined;
    const part = joined && partOf(eqn.ins[0]);
    if (eqn.op !== "ppermute" || !joined || !part) return [eqn];
    const known = received.get(joined);
    const there = known ?? newVar({ ...at(eqn.outs, 0).type, shape: sizes(joined) });
    const made = known ? [] : exchangeOf(joined, eqn, there);
    received.set(joined, there);
    const inside = (list: readonly number[]) => list.map((n, d) => n - at(joined.starts, d));
    const own = { ...part, source: there, starts: inside(part.starts), limits: inside(part.limits) };
    return [...made, cut(own, at(eqn.outs, 0), eqn)];
  });
  return { ...program, eqns };
}

const sizes = ({ starts, limits }: Range) => limits.map((n, d) => n - at(starts, d));

const ones = (list: readonly number[]) => list.map(() => 1);

function cut({ source: x, starts, limits, strides }: StridedSlice, out: Var, { source }: Eqn): Eqn {
  return makeEqn("slice", [x], [out], { starts, limits, strides }, source);
}

function exchangeOf(joined: Joined, eqn: Eqn<"ppermute">, there: Var): Eqn[] {
  const rows = newVar({ ...at(eqn.ins, 0).type, shape: there.type.shape });
  return [
    cut({ ...joined, strides: ones(joined.starts) }, rows, eqn),
    makeEqn("ppermute", [rows], [there], eqn.params, eqn.source),
  ];
}

/** Finds which slice of which value a value is. */
function findParts({ eqns }: Program): (atom: Atom | undefined) => StridedSlice | undefined {
  const parts = new Map<number, StridedSlice>();
  for (const eqn of eqns) {
    const [source] = eqn.ins;
    const [out] = eqn.outs;
    if (eqn.op !== "slice" || source?.kind !== "var" || !out) continue;
    const { starts, strides } = eqn.params;
    const last = (d: number) => (at(out.type.shape, d) - 1) * at(strides, d);
    parts.set(out.id, { source, starts, strides, limits: starts.map((n, d) => n + last(d) + 1) });
  }
  return (atom) => {
    if (atom?.kind !== "var") return undefined;
    const { shape } = atom.type;
    const whole = { source: atom, starts: shape.map(() => 0), limits: shape, strides: ones(shape) };
    return parts.get(atom.id) ?? whole;
  };
}

/** Exchanges of parts of the same value with the same neighbours for which joining sends no more. */
function findJoined(
  { eqns }: Program,
  partOf: (atom: Atom | undefined) => StridedSlice | undefined,
): Joined[] {
  const groups = new Map<string, Joined[]>();
  for (const eqn of eqns) {
    const part = eqn.op === "ppermute" ? partOf(eqn.ins[0]) : undefined;
    if (eqn.op !== "ppermute" || !part) continue;
    const { axes, permutation } = eqn.params;
    const key = `${part.source.id} ${axes.map(({ name }) => name)} ${permutation.join(";")}`;
    const known = getOrInsert(groups, key, () => []);
    const size = sizeOf(at(eqn.ins, 0).type.shape);
    const place = known.findIndex((joined) => sizeOf(sizes(around(joined, part))) <= joined.size + size);
    const joined = known[place];
    if (!joined) {
      known.push({ ...part, size, members: [eqn] });
      continue;
    }
    const range = around(joined, part);
    known[place] = { ...joined, ...range, size: sizeOf(sizes(range)), members: [...joined.members, eqn] };
  }
  return [...groups.values()].flat();
}

/** The smallest range around two. */
function around(a: Range, b: Range): Range {
  return {
    starts: a.starts.map((n, d) => Math.min(n, at(b.starts, d))),
    limits: a.limits.map((n, d) => Math.max(n, at(b.limits, d))),
  };
}
