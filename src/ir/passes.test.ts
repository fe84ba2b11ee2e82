import { describe, expect, test } from "vitest";
import { buildProgram } from "../../test/support/interpreting.js";
import { checkText } from "../../test/support/readBack.js";
import { atomKind, textKind } from "../../test/support/textKind.js";
import { InternalError } from "./errors.js";
import type { Stage } from "./opFacts.js";
import type { OpName, OpParams } from "./ops.js";
import { afterPass } from "./passes.js";
import { makeEqn, newLiteral, newVar, type Program, type Var } from "./program.js";
import { at } from "./shape.js";
import { printProgram } from "./text/print.js";
import { verify } from "./verify.js";

const type = { dtype: "float32", shape: [2] } as const;
const right = buildProgram([type], (emit, x) => emit("tanh", emit("neg", [x], {}), {}));
const double = buildProgram([type], (emit, x) => emit("add", [x, x], {}));

/** An equation with something that is more than its data, as a mesh of real devices would be. */
function smuggling(x: Var) {
  class Devices {
    readonly axes = [];
  }
  return makeEqn("shardingConstraint", [x], [newVar(x.type)], { mesh: new Devices(), spec: [[]] });
}

/** Passes that break a program, each in its own way, and what is said of it. */
const broken: readonly (readonly [name: string, pass: (program: Program) => Program, message: string])[] = [
  [
    "forgets",
    ({ eqns, ...rest }) => ({ ...rest, eqns: eqns.slice(1) }),
    "reads a value before it is defined",
  ],
  [
    "repeats",
    ({ eqns, ...rest }) => ({ ...rest, eqns: [...eqns, ...eqns] }),
    "defines a value a second time",
  ],
  [
    "loses",
    (program) => ({ ...program, outputs: [newVar(type)] }),
    "return reads a value before it is defined",
  ],
  [
    "mistypes",
    ({ inputs, eqns }) => {
      const out = newVar({ dtype: "int32", shape: [2] });
      return { inputs, eqns: [...eqns, makeEqn("exp", inputs, [out], {})], outputs: [out] };
    },
    "result 0 should be f32[2]",
  ],
  [
    "smuggles",
    ({ inputs }) => {
      const eqn = smuggling(at(inputs, 0));
      return { inputs, eqns: [eqn], outputs: eqn.outs };
    },
    "it is read back differently (parameters of ",
  ],
];

describe("with passes checked, as under the tests", () => {
  test.each(broken)("a pass that %s is named where it broke the program", (name, pass, message) => {
    // Texts are read back in the second run of `.ci/run`.
    const check = name === "smuggles" ? checkText : afterPass;
    const run = () => check(name, pass(right), "traced");
    expect(run).toThrow(InternalError);
    expect(run).toThrow(`the pass "${name}" made an invalid program: `);
    expect(run).toThrow(message);
  });

  test.each([
    ["", type],
    [", differing along an axis", { ...type, varying: [{ name: "x", size: 2 }] }],
  ])("what was read back before hides nothing that is new beside it or in a loop%s", (_, varied) => {
    const { inputs, eqns, outputs } = buildProgram([varied], (emit, x) =>
      emit("neg", emit("neg", [x], {}), {}),
    );
    const known = { inputs, eqns, outputs };
    checkText("known", known);
    const added = smuggling(at(at(eqns, 0).outs, 0));
    const more = { inputs, eqns: [...eqns, added], outputs: added.outs };
    const loop = (body: Program) =>
      buildProgram([varied], (emit, x) =>
        emit("scan", [x], { body, length: 2, reverse: false, numConsts: 0, numCarry: 1 }),
      );
    checkText("loop", loop(known));
    for (const program of [more, loop(more)]) {
      expect(() => checkText("more", program)).toThrow("it is read back differently");
    }
  });

  test("what only reads like something that was read back before is not taken for it", () => {
    const honest = buildProgram([type], (emit, x) =>
      emit("shardingConstraint", [x], { mesh: { axes: [] }, spec: [[]] }),
    );
    checkText("honest", honest);
    const eqn = smuggling(at(honest.inputs, 0));
    const program = { inputs: honest.inputs, eqns: [eqn], outputs: eqn.outs };
    expect(printProgram(program)).toBe(printProgram(honest));
    expect(() => checkText("smuggles", program)).toThrow("it is read back differently");
  });

  test("what differs in more than sizes is read back however often its like was", () => {
    const kinds = new Set<string | undefined>();
    const mesh = { axes: ["x", "y"].map((name) => ({ name, size: 2 })) };
    const constrained = (spec: readonly (readonly string[])[], shape: readonly number[]) => {
      const { eqns } = buildProgram([{ dtype: "float32", shape }], (emit, x) =>
        emit("shardingConstraint", [x], { mesh, spec }),
      );
      return textKind(at(eqns, 0));
    };
    expect(constrained([["x"]], [4])).toBe(constrained([["x"]], [8]));
    for (const spec of [
      [[], []],
      [["x"], []],
      [["y"], []],
      [["x", "y"], []],
    ])
      kinds.add(constrained(spec, [4, 4]));
    const literals = [0, -0, 1, -1, 2, 0.5, -0.5, 1e-9, 1e30, Number.NaN, Number.POSITIVE_INFINITY];
    for (const value of literals) kinds.add(atomKind(newLiteral(value, "float32")));
    kinds.add(atomKind(newLiteral(0, "int32")));
    expect(kinds.size).toBe(4 + literals.length + 1);
    expect(textKind(smuggling(newVar(type)))).toBeUndefined();
  });

  test("a right program goes through as it is", () => {
    expect(afterPass("keep", right, "lowered")).toBe(right);
  });
});

describe("a stage", () => {
  const mesh = { axes: [{ name: "x", size: 2 }] };
  const one = <K extends OpName>(
    op: K,
    params: OpParams[K],
    dtype: "float32" | "bfloat16" | "int32" = "float32",
  ) => buildProgram([{ dtype, shape: [2] }], (emit, x) => emit(op, op === "clamp" ? [x, x, x] : [x], params));
  const halves = { body: double, forward: double, backward: double, numCaptures: 0, numResiduals: 0 };
  const product = { lhsContract: [0], rhsContract: [0], lhsBatch: [], rhsBatch: [] };
  const dot = (from: "float32" | "bfloat16" | "int32", dtype: typeof from = from) =>
    buildProgram([{ dtype: from, shape: [2] }], (emit, x) =>
      emit("dotGeneral", [x, x], { ...product, dtype }),
    );
  const inLoop = (body: Program) =>
    buildProgram([type], (emit, x) =>
      emit("scan", [x], { body, length: 2, reverse: false, numConsts: 0, numCarry: 1 }),
    );

  /** Programs with the stages that accept them. */
  const accepted: readonly (readonly [what: string, program: Program, stages: readonly Stage[]])[] = [
    ["tanh", right, ["traced", "partitioned", "lowered"]],
    [
      "shardMap",
      one("shardMap", {
        mesh,
        manual: ["x"],
        checked: false,
        inSpecs: [[[]]],
        outSpecs: [[[]]],
        body: double,
      }),
      ["traced"],
    ],
    ["shardingConstraint", one("shardingConstraint", { mesh, spec: [["x"]] }), ["traced"]],
    ["remat", one("remat", { body: double, policy: { kind: "nothing" } }), ["traced"]],
    ["customVjp", one("customVjp", halves), ["traced"]],
    ["remat in a loop", inLoop(one("remat", { body: double, policy: { kind: "nothing" } })), ["traced"]],
    ["name", one("name", { name: "a" }), ["traced", "partitioned"]],
    ["stopGradient", one("stopGradient", {}), ["traced", "partitioned"]],
    ["optimizationBarrier", one("optimizationBarrier", {}), ["traced", "partitioned"]],
    ["clamp", one("clamp", {}), ["traced", "partitioned"]],
    ["a sum of bfloat16", one("reduceSum", { dims: [0] }, "bfloat16"), ["traced", "partitioned"]],
    ["a sum of float32", one("reduceSum", { dims: [0] }), ["traced", "partitioned", "lowered"]],
    [
      "running sums of bfloat16",
      one("cumsum", { dim: 0, reverse: false }, "bfloat16"),
      ["traced", "partitioned"],
    ],
    ["a product of bfloat16", dot("bfloat16"), ["traced", "partitioned"]],
    [
      "a product of bfloat16 that is float32",
      dot("bfloat16", "float32"),
      ["traced", "partitioned", "lowered"],
    ],
    ["a product of int32", dot("int32"), ["traced", "partitioned"]],
    ["a product of float32", dot("float32"), ["traced", "partitioned", "lowered"]],
  ];

  const stages: readonly Stage[] = ["traced", "partitioned", "lowered"];

  test.each(accepted)("accepts or refuses %s", (_, program, expected) => {
    const found = stages.filter((stage) => {
      try {
        return verify(program, stage) === program;
      } catch (error) {
        expect(String(error)).toContain("must not occur in a ");
        return false;
      }
    });
    expect(found).toEqual(expected);
  });

  test("is named by the check of a pass", () => {
    const [, program] = at(accepted, 3);
    expect(() => afterPass("partition", program, "partitioned")).toThrow(
      'the pass "partition" made an invalid program: [verify] remat must not occur in a partitioned program',
    );
  });
});
