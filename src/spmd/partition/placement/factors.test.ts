import { describe, expect, test } from "vitest";
import { formatRule } from "../../../../test/support/formatRule.js";
import { caseProgram, type OpCase, opCases } from "../../../../test/support/opCases.js";
import { type ElementwiseOp, elementwiseFamilies, opsOf } from "../../../ir/opFacts.js";
import { type Eqn, hasPrograms } from "../../../ir/program.js";
import { at, type Shape, tensorType } from "../../../ir/shape.js";
import { traceFlat } from "../../../trace/builder.js";
import * as ops from "../../../trace/ops.js";
import { type FactoredOp, factorRule } from "./factors.js";

/**
 * The rules of ops that work on each element, by the ranks of operands and results: dims correspond one by one, and
 * scalars among the operands have none.
 */
const elementwiseGolden: Readonly<Record<string, string>> = {
  "1 -> 1": "([i])->([i])",
  "2 -> 2": "([i,j])->([i,j])",
  "1 1 -> 1": "([i],[i])->([i])",
  "1 0 -> 1": "([i],[])->([i])",
  "0 1 -> 1": "([],[i])->([i])",
  "2 2 -> 2": "([i,j],[i,j])->([i,j])",
  "2 0 -> 2": "([i,j],[])->([i,j])",
  "0 2 -> 2": "([],[i,j])->([i,j])",
  "0 0 0 -> 0": "([],[],[])->([])",
  "1 1 1 -> 1": "([i],[i],[i])->([i])",
  "0 1 0 -> 1": "([],[i],[])->([i])",
  "1 0 1 -> 1": "([i],[],[i])->([i])",
  "1 1 1 1 -> 1 1": "([i],[i],[i],[i])->([i],[i])",
};

/** The rule of every other op for each of its cases. A `1` is a dim that cannot be split. */
const golden: { readonly [K in Exclude<FactoredOp, ElementwiseOp>]: readonly string[] } = {
  optimizationBarrier: ["([i],[])->([i],[])"],
  iota: ["()->([i,j])"],
  broadcastInDim: ["([j,1])->([i,j,k])", "([])->([i])"],
  reshape: ["([1,1])->([1,1])"],
  transpose: ["([i,j,k])->([k,i,j])"],
  reverse: ["([i,j,k])->([i,j,k])"],
  slice: ["([i,j])->([k,l]) whole={i,j,k,l}", "([i,j])->([1,k]) whole={i,j,k}"],
  pad: [
    "([i,j],[])->([k,l]) whole={i,j,k,l}",
    "([i],[])->([j]) whole={i,j}",
    "([j,i],[])->([k,i]) whole={j,k}",
  ],
  concatenate: ["([i,j],[i,1],[i,k])->([i,l]) whole={j,k,l}"],
  dynamicSlice: [
    "([i,j],[],[])->([k,l]) reduction={i} whole={j,k,l}",
    "([i,j],[],[])->([1,j]) reduction={i}",
    "([i,j],[],[])->([i,j])",
    "([i,j],[],[])->([i,k]) whole={j,k}",
  ],
  dynamicUpdateSlice: [
    "([i,j],[k,l],[],[])->([i,j]) whole={k,l}",
    "([i,j],[1,j],[],[])->([i,j])",
    "([i],[i],[])->([i])",
  ],
  gather: [
    "([i,j,k],[l])->([i,l,k]) reduction={j}",
    "([i,j,k],[i,l,m])->([i,j,l,m]) reduction={k}",
    "([i],[])->([]) reduction={i}",
  ],
  scatter: [
    "([i,j,k],[l],[i,l,k])->([i,j,k]) reduction={l}",
    "([i,j,k],[i,l],[i,j,l])->([i,j,k]) whole={l}",
    "([i,j],[],[i])->([i,j])",
  ],
  reduceSum: ["([i,j,k])->([j]) reduction={i,k}"],
  reduceMax: ["([i,j,k])->([i,k]) max={j}"],
  reduceMin: ["([i,j])->([]) min={i,j}", "([i,j,k])->([j]) min={i,k}"],
  argmax: ["([i,j])->([j]) index={i}"],
  argmin: ["([i,j])->([i]) index={j}"],
  cumsum: ["([i,j])->([i,j])"],
  sort: ["([i,j],[i,j])->([i,j],[i,j]) whole={j}"],
  dotGeneral: [
    "([i,j],[j,k])->([i,k]) reduction={j}",
    "([i,j,k,l],[l,j,m])->([j,i,k,m]) reduction={l}",
    "([i],[i])->([]) reduction={i}",
  ],
  raggedDot: [
    "([i,j],[l,j,k],[l])->([i,k]) reduction={j} whole={l}",
    "([i,j,k],[i,j,l],[i,m])->([i,m,k,l]) reduction={j} whole={m}",
  ],
  attention: [
    "([i,l,jk,1],[i,m,j,1],[i,m,j,1])->([i,l,jk,1],[i,jk,l]) whole={m}",
    "([1,j,i,l],[1,k,i,l],[1,k,i,l])->([1,j,i,l],[1,i,j]) whole={k,l}",
    "([i,l,jk,1],[i,m,j,1],[i,m,j,1],[1,jk,l,1],[i,1,1,m],[1,jk])->([i,l,jk,1],[i,jk,l]) whole={m}",
    "([i,l,jk,1],[i,m,j,1],[i,m,j,1],[i,l],[i,m],[i,jk])->([i,l,jk,1],[i,jk,l]) whole={m}",
    "([i,l,jk,1],[i,m,j,1],[i,m,j,1],[i,l],[i,m],[1,jk])->([i,l,jk,1],[i,jk,l]) whole={m}",
    "([i,l,jk,1],[i,m,j,1],[i,m,j,1],[i,jk,1,m],[i,jk,n])->([i,l,jk,1],[i,jk,l]) whole={m,n}",
  ],
  attentionBackward: [
    "([i,l,jk,1],[i,m,j,1],[i,m,j,1],[i,jk,l],[i,l,jk,1],[i,l,jk,1])->([i,l,jk,1],[i,m,j,1],[i,m,j,1]) reduction={k,l} whole={m}",
    "([i,l,jk,1],[i,m,j,1],[i,m,j,1],[i,jk,l],[i,l,jk,1],[i,l,jk,1],[1,jk,l,1],[i,jk,l])->([i,l,jk,1],[i,m,j,1],[i,m,j,1],[i,jk,l,1]) reduction={k,l} whole={m}",
    "([i,l,jk,1],[i,m,j,1],[i,m,j,1],[i,jk,l],[i,l,jk,1],[i,l,jk,1],[1,jk])->([i,l,jk,1],[i,m,j,1],[i,m,j,1],[i,jk]) reduction={k,l} whole={m}",
  ],
  callback: ["([i,j])->([k,l],[m]) whole={i,j,k,l,m}"],
  psum: ["([i])->([i])"],
  pmax: ["([i])->([i])"],
  pmin: ["([i])->([i])"],
  allGather: ["([i,j])->([i,k]) whole={j,k}"],
  psumScatter: ["([i,j])->([i,k]) whole={j,k}"],
  ppermute: ["([i])->([i])"],
  allToAll: ["([i,j])->([k,l]) whole={i,j,k,l}"],
  raggedAllToAll: ["([j,i],[k,i],[l,m],[n,o])->([k,i]) whole={j,k,l,m,n,o}"],
  axisIndex: ["()->([])"],
  shardingConstraint: ["([i,j])->([i,j])"],
};

function only(eqn: Eqn): Eqn<FactoredOp> {
  if (hasPrograms(eqn)) throw new Error(`${eqn.op} has no factors`);
  return eqn;
}

/** The equations of an op's cases. */
const eqnsOf = <K extends FactoredOp>(op: K): Eqn<FactoredOp>[] =>
  opCases[op].map((entry: OpCase<K>) => only(at(caseProgram(op, entry).eqns, 0)));

const ranksOf = ({ ins, outs }: Eqn): string =>
  [ins, outs].map((atoms) => atoms.map(({ type }) => type.shape.length).join(" ")).join(" -> ");

describe("the factors of every op", () => {
  test.each(opsOf(...elementwiseFamilies))("%s", (op) => {
    for (const eqn of eqnsOf(op)) expect(formatRule(factorRule(eqn))).toBe(elementwiseGolden[ranksOf(eqn)]);
  });

  test.each(Object.entries(golden) as [FactoredOp, readonly string[]][])("%s", (op, rules) => {
    expect(eqnsOf(op).map((eqn) => formatRule(factorRule(eqn)))).toEqual(rules);
  });
});

test("the factors of a dim multiply to its size", () => {
  const product = (sizes: readonly number[]) => sizes.reduce((a, b) => a * b, 1);
  for (const op of Object.keys(golden) as FactoredOp[]) {
    for (const eqn of eqnsOf(op)) {
      const { factors, operands, results } = factorRule(eqn);
      [...eqn.ins, ...eqn.outs].forEach(({ type }, i) => {
        const dims = at([...operands, ...results], i);
        dims.forEach((list, d) => {
          const size = product(list.map((f) => at(factors, f).size));
          if (list.length > 0) expect(size, `dim ${d} of value ${i} of ${op}`).toBe(type.shape[d]);
        });
      });
    }
  }
});

describe("the factors of a reshape", () => {
  const rule = (from: Shape, to: Shape) => {
    const { program } = traceFlat(([x]) => (x ? [ops.reshape(x, to)] : []), [tensorType("float32", from)]);
    return formatRule(factorRule(only(at(program.eqns, 0))));
  };

  test.each([
    ["a split dim", [8, 3], [2, 4, 3], "([ij,k])->([i,j,k])"],
    ["merged dims", [2, 4, 3], [8, 3], "([i,j,k])->([ij,k])"],
    ["dims of size 1", [4, 1, 3], [1, 4, 3], "([i,1,j])->([1,i,j])"],
    ["dims that regroup", [6, 4], [2, 12], "([ij,k])->([i,jk])"],
    ["dims without common divisors after the first", [4, 6], [6, 4], "([i,1])->([i,1])"],
    ["a flattened tensor", [2, 3, 4], [24], "([i,j,k])->([ijk])"],
    ["no elements", [2, 0, 6], [0, 4, 3], "([1,1,1])->([1,1,1])"],
  ] as const)("%s", (_, from, to, text) => {
    expect(rule(from, to)).toBe(text);
  });
});

test("looking up booleans in a split table combines by maximum, because they cannot be summed", () => {
  const types = [tensorType("bool", [4, 2]), tensorType("int32", [3])];
  const { program } = traceFlat(
    ([x, ids]) => (x && ids ? [ops.gather(x, ids, { dim: 0, batchDims: 0 })] : []),
    types,
  );
  expect(formatRule(factorRule(only(at(program.eqns, 0))))).toBe("([i,j],[k])->([k,j]) max={i}");
});
