import { describe, expect, test } from "vitest";
import { caseProgram, type OpCase, opCases } from "../../../../test/support/opCases.js";
import type { OpName } from "../../../ir/ops.js";
import { at, type Shape, tensorType } from "../../../ir/shape.js";
import { traceFlat } from "../../../trace/builder.js";
import * as ops from "../../../trace/ops.js";
import { factorRule, formatRule } from "./factors.js";

/** The rule of every op for each of its cases. A `1` is a dim that cannot be split, `()->()` an op that the partitioner opens. */
const golden: { readonly [K in OpName]: readonly string[] } = {
  neg: ["([i,j])->([i,j])", "([i])->([i])"],
  exp: ["([i,j])->([i,j])"],
  expm1: ["([i,j])->([i,j])"],
  log: ["([i,j])->([i,j])"],
  log1p: ["([i,j])->([i,j])"],
  tanh: ["([i,j])->([i,j])"],
  sin: ["([i,j])->([i,j])"],
  cos: ["([i,j])->([i,j])"],
  sqrt: ["([i,j])->([i,j])"],
  rsqrt: ["([i,j])->([i,j])"],
  cbrt: ["([i,j])->([i,j])"],
  abs: ["([i,j])->([i,j])"],
  sign: ["([i,j])->([i,j])"],
  floor: ["([i,j])->([i,j])"],
  ceil: ["([i,j])->([i,j])"],
  round: ["([i,j])->([i,j])"],
  erf: ["([i,j])->([i,j])"],
  erfInv: ["([i,j])->([i,j])"],
  logistic: ["([i,j])->([i,j])"],
  not: ["([i])->([i])", "([i])->([i])"],
  isFinite: ["([i,j])->([i,j])"],
  convert: ["([i,j])->([i,j])", "([i,j])->([i,j])", "([i])->([i])"],
  bitcast: ["([i,j])->([i,j])"],
  add: [
    "([i,j],[i,j])->([i,j])",
    "([i,j],[])->([i,j])",
    "([],[i,j])->([i,j])",
    "([i],[i])->([i])",
    "([i],[])->([i])",
    "([],[i])->([i])",
  ],
  sub: ["([i,j],[i,j])->([i,j])", "([i,j],[])->([i,j])", "([],[i,j])->([i,j])"],
  mul: ["([i,j],[i,j])->([i,j])", "([i,j],[])->([i,j])", "([],[i,j])->([i,j])"],
  div: ["([i,j],[i,j])->([i,j])", "([i,j],[])->([i,j])", "([],[i,j])->([i,j])"],
  rem: ["([i,j],[i,j])->([i,j])", "([i,j],[])->([i,j])", "([],[i,j])->([i,j])"],
  pow: ["([i,j],[i,j])->([i,j])", "([i,j],[])->([i,j])", "([],[i,j])->([i,j])"],
  max: ["([i,j],[i,j])->([i,j])", "([i,j],[])->([i,j])", "([],[i,j])->([i,j])"],
  min: ["([i,j],[i,j])->([i,j])", "([i,j],[])->([i,j])", "([],[i,j])->([i,j])"],
  and: ["([i],[i])->([i])", "([i],[])->([i])", "([],[i])->([i])"],
  or: ["([i],[i])->([i])", "([i],[])->([i])", "([],[i])->([i])"],
  xor: ["([i],[i])->([i])", "([i],[])->([i])", "([],[i])->([i])"],
  shl: ["([i],[i])->([i])", "([i],[])->([i])", "([],[i])->([i])"],
  shrLogical: ["([i],[i])->([i])", "([i],[])->([i])", "([],[i])->([i])"],
  shrArithmetic: ["([i],[i])->([i])", "([i],[])->([i])", "([],[i])->([i])"],
  atan2: ["([i,j],[i,j])->([i,j])", "([i,j],[])->([i,j])", "([],[i,j])->([i,j])"],
  compare: ["([i],[i])->([i])", "([],[i])->([i])"],
  select: ["([i],[i],[i])->([i])", "([],[],[])->([])"],
  clamp: ["([i],[i],[i])->([i])", "([],[i],[])->([i])", "([i],[],[i])->([i])"],
  threefry2x32: ["([i],[i],[i],[i])->([i],[i])"],
  name: ["([i])->([i])"],
  stopGradient: ["([i,j])->([i,j])"],
  pvary: ["([i])->([i])"],
  optimizationBarrier: ["([i],[])->([i],[])"],
  iota: ["()->([i,j])"],
  broadcastInDim: ["([j,1])->([i,j,k])", "([])->([i])"],
  reshape: ["([1,1])->([1,1])"],
  transpose: ["([i,j,k])->([k,i,j])"],
  reverse: ["([i,j,k])->([i,j,k])"],
  slice: ["([i,j])->([k,l]) whole={i,j,k,l}"],
  pad: ["([i,j],[])->([k,l]) whole={i,j,k,l}", "([i],[])->([j]) whole={i,j}"],
  concatenate: ["([i,j],[i,1],[i,k])->([i,l]) whole={j,k,l}"],
  dynamicSlice: [
    "([i,j],[],[])->([k,l]) reduction={i} whole={j,k,l}",
    "([i,j],[],[])->([1,j]) reduction={i}",
    "([i,j],[],[])->([i,j])",
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
  scatter: ["([i,j,k],[l],[i,l,k])->([i,j,k]) reduction={l}", "([i,j,k],[i,l],[i,j,l])->([i,j,k]) whole={l}"],
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
  attention: [
    "([i,l,jk,1],[i,m,j,1],[i,m,j,1])->([i,l,jk,1],[i,jk,l]) whole={l,m}",
    "([1,j,i,l],[1,k,i,l],[1,k,i,l])->([1,j,i,l],[1,i,j]) whole={j,k,l}",
  ],
  attentionBackward: [
    "([i,l,jk,1],[i,m,j,1],[i,m,j,1],[i,jk,l],[i,l,jk,1],[i,l,jk,1])->([i,l,jk,1],[i,m,j,1],[i,m,j,1]) whole={k,l,m}",
  ],
  callback: ["([i,j])->([k,l],[m]) whole={i,j,k,l,m}"],
  scan: ["()->()", "()->()"],
  while: ["()->()", "()->()"],
  cond: ["()->()"],
  remat: ["()->()"],
  customVjp: ["()->()"],
  psum: ["([i])->([i])"],
  pmax: ["([i])->([i])"],
  pmin: ["([i])->([i])"],
  allGather: ["([i,j])->([i,k]) whole={j,k}"],
  psumScatter: ["([i,j])->([i,k]) whole={j,k}"],
  ppermute: ["([i])->([i])"],
  allToAll: ["([i,j])->([k,l]) whole={i,j,k,l}"],
  axisIndex: ["()->([])"],
  shardMap: ["()->()"],
  shardingConstraint: ["([i,j])->([i,j])"],
};

const rulesOf = <K extends OpName>(op: K) =>
  opCases[op].map((entry: OpCase<K>) => formatRule(factorRule(at(caseProgram(op, entry).eqns, 0))));

describe("the factors of every op", () => {
  test.each(Object.keys(golden) as OpName[])("%s", (op) => {
    expect(rulesOf(op)).toEqual(golden[op]);
  });
});

describe("the factors of a reshape", () => {
  const rule = (from: Shape, to: Shape) => {
    const { program } = traceFlat(([x]) => (x ? [ops.reshape(x, to)] : []), [tensorType("float32", from)]);
    return formatRule(factorRule(at(program.eqns, 0)));
  };

  test.each([
    ["a split dim", [8, 3], [2, 4, 3], "([ij,k])->([i,j,k])"],
    ["merged dims", [2, 4, 3], [8, 3], "([i,j,k])->([ij,k])"],
    ["dims of size 1", [4, 1, 3], [1, 4, 3], "([i,1,j])->([1,i,j])"],
    ["dims that regroup", [6, 4], [2, 12], "([ij,k])->([i,jk])"],
    ["dims without common divisors after the first", [4, 6], [6, 4], "([i,1])->([i,1])"],
    ["a flattened tensor", [2, 3, 4], [24], "([i,j,k])->([ijk])"],
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
  expect(formatRule(factorRule(at(program.eqns, 0)))).toBe("([i,j],[k])->([k,j]) max={i}");
});
