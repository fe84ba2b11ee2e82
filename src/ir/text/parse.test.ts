import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { randomProgram } from "../../../test/compiler/randomProgram.js";
import { opCases as engineCases } from "../../../test/conformance/engine/opCases.js";
import { programCases } from "../../../test/conformance/engine/programCases.js";
import { findDifference } from "../../../test/support/comparePrograms.js";
import { buildProgram } from "../../../test/support/interpreting.js";
import { caseProgram, type OpCase, opCases } from "../../../test/support/opCases.js";
import {
  around,
  bodyFunction,
  randomBody,
  randomLayers,
  shape,
} from "../../../test/support/randomFunctions.js";
import { grad, makeProgram, np, ShardwiseError, simplify, type Tensor } from "../../index.js";
import { switchWithRole } from "../../transforms/control/cond.js";
import { scanWithRole } from "../../transforms/control/scan.js";
import { dtypes, type RealDType } from "../dtype.js";
import { ParseError } from "../errors.js";
import type { OpName, RematPolicy } from "../ops.js";
import { makeEqn, newLiteral, newVar, type Program } from "../program.js";
import { range } from "../shape.js";
import { parseProgram } from "./parse.js";
import { printProgram } from "./print.js";

/** Prints and reads a program, and gives the text. */
function roundTrip(program: Program): string {
  const text = printProgram(program);
  const again = parseProgram(text);
  expect(findDifference(program, again)).toBeUndefined();
  expect(printProgram(again)).toBe(text);
  return text;
}

const type = { dtype: "float32", shape: [2] } as const;
const identity = buildProgram([type], (_, x) => [x]);

describe("a printed program is read back as it is", () => {
  test.each(Object.keys(opCases) as OpName[])("with %s", (op) => {
    const check = <K extends OpName>(name: K, cases: readonly OpCase<K>[]) => {
      for (const one of cases) roundTrip(caseProgram(name, one));
    };
    check<OpName>(op, opCases[op]);
    for (const { program } of engineCases[op]) roundTrip(program);
  });

  test("with elements that are promised to be written before they are read", () => {
    const { dtype, shape } = type;
    const zero = newLiteral(0, dtype);
    const out = newVar(type);
    const eqns = [makeEqn("broadcastInDim", [zero], [out], { shape, dims: [], unset: true })];
    expect(roundTrip({ inputs: [], eqns, outputs: [out] })).toContain("{shape: [2], dims: [], unset: true}");
  });

  test("with loops and choices that have a role", () => {
    const program = makeProgram((x: Tensor) =>
      scanWithRole(
        { kind: "slots", numStages: 2, numMicrobatches: 4, numRepeats: 1 },
        (sum: Tensor, y: Tensor) => [
          switchWithRole(
            { kind: "link", link: 3 },
            y.gt(0),
            [(z: Tensor) => z, (z: Tensor) => z.mul(2)],
            sum.add(y),
          ),
          null,
        ],
        np.sum(x),
        x,
      ),
    )(np.ones([4]));
    const text = roundTrip(program);
    expect(text).toContain("numCarry: 1, role: slots(2, 4, 1)}");
    expect(text).toContain("{role: link(3)}");
  });

  test.each(programCases.map((one) => [one.name, one.program] as const))("as in %s", (_, program) => {
    roundTrip(program);
  });

  test("whatever constants it holds", () => {
    const values = [
      0,
      -0,
      1,
      -1.5,
      0.1,
      1e-45,
      3.4e38,
      2 ** 31,
      1e21,
      1e300,
      Infinity,
      -Infinity,
      Number.NaN,
    ];
    for (const dtype of dtypes) {
      const program = { inputs: [], eqns: [], outputs: values.map((value) => newLiteral(value, dtype)) };
      roundTrip(program);
      const known = new Set(program.outputs.map(({ value }) => value));
      expect(known.size).toBe(dtype === "bool" ? 2 : known.size);
    }
    const texts: { readonly [D in RealDType]: string } = {
      float32: "-0.0, 2.0, 0.10000000149011612",
      float64: "-0.0:float64, 2.0:float64, 0.1:float64",
      float16: "-0.0:float16, 2.0:float16, 0.0999755859375:float16",
      bfloat16: "-0.0:bfloat16, 2.0:bfloat16, 0.10009765625:bfloat16",
      int8: "0:int8, 2:int8, 0:int8",
      int16: "0:int16, 2:int16, 0:int16",
      int32: "0, 2, 0",
      uint8: "0:uint8, 2:uint8, 0:uint8",
      uint16: "0:uint16, 2:uint16, 0:uint16",
      uint32: "0u, 2u, 0u",
      bool: "false, true, true",
    };
    for (const dtype of dtypes) {
      const outputs = [-0, 2, 0.1].map((value) => newLiteral(value, dtype));
      expect(roundTrip({ inputs: [], eqns: [], outputs })).toBe(`() {\n  return ${texts[dtype]}\n}`);
    }
  });

  test("with every policy, also in each other, and names of any characters", () => {
    const names = ["a", "a, b", 'quo"te\n', "π →"];
    const policies: RematPolicy[] = [
      { kind: "everything" },
      { kind: "names", names },
      { kind: "exceptNames", names: [] },
      {
        kind: "either",
        policies: [{ kind: "dots" }, { kind: "either", policies: [{ kind: "names", names }] }],
      },
    ];
    for (const policy of policies) {
      roundTrip(buildProgram([type], (emit, x) => emit("remat", [x], { body: identity, policy })));
    }
    for (const name of names) roundTrip(buildProgram([type], (emit, x) => emit("name", [x], { name })));
  });

  test("with meshes of several axes, their sizes each, and axis names of any characters", () => {
    const axes = [
      { name: "data", size: 2 },
      { name: "a: 2, b", size: 3 },
      { name: "π", size: 1 },
    ];
    const manual = ["π", "data"];
    const program = buildProgram([{ dtype: "float32", shape: [12, 2] }], (emit, x) => {
      const [sum] = emit("psum", [x], { axes });
      const [split] = emit("shardingConstraint", [sum ?? x], {
        mesh: { axes },
        spec: [["data", "a: 2, b"], "unconstrained"],
      });
      const body = buildProgram([{ dtype: "float32", shape: [6, 2] }], (_, block) => [block]);
      const specs = [[["data"], []]];
      return emit("shardMap", [split ?? x], {
        mesh: { axes },
        manual,
        inSpecs: specs,
        outSpecs: specs,
        checked: false,
        body,
      });
    });
    const text = roundTrip(program);
    expect(text).toContain('{axes: {data: 2, "a: 2, b": 3, "π": 1}}');
    expect(text).toContain('spec: P(["data","a: 2, b"], UNCONSTRAINED)');
    expect(text).toContain('manual: ["π", "data"]');
  });

  test("when programs inside it share their values", () => {
    const shared = buildProgram([type], (emit, x) => emit("neg", [x], {}));
    roundTrip(
      buildProgram([type], (emit, x) =>
        emit("cond", [newLiteral(0, "int32"), x], { branches: [shared, shared] }),
      ),
    );
    roundTrip(
      buildProgram([type], (emit, x) => emit("cond", [newLiteral(0, "int32"), x], { branches: [shared] })),
    );
  });

  test("with no inputs, equations or outputs", () => {
    expect(roundTrip({ inputs: [], eqns: [], outputs: [] })).toBe("() {\n  return\n}");
  });

  test("when it is random, of all data types", () => {
    for (const seed of range(150)) roundTrip(randomProgram({ seed, numEqns: 4 + (seed % 20) }));
  });

  test("when it is a random function under random transforms", () => {
    const zeros = np.zeros(shape);
    fc.assert(
      fc.property(randomBody, randomLayers, (body, layers) => {
        const fn = around(bodyFunction(body), layers);
        const derivative = grad((...args: Parameters<typeof fn>) => np.sum(fn(...args)));
        for (const one of [fn, derivative]) roundTrip(simplify(makeProgram(one)(zeros, zeros)));
      }),
      { numRuns: 20 },
    );
  });
});

describe("findDifference", () => {
  test("tells apart what differs in one thing", () => {
    const x = newVar(type);
    const program = (value: number, dims: readonly number[], name: string) =>
      buildProgram([type], (emit, input) => {
        const [named] = emit("name", [input], { name });
        const [turned] = emit("reverse", [named ?? input], { dims });
        return emit("add", [turned ?? input, newLiteral(value, "float32")], {});
      });
    const one = program(0, [0], "a");
    expect(findDifference(one, program(0, [0], "a"))).toBeUndefined();
    expect(findDifference(one, program(-0, [0], "a"))).toMatch(/operands of .*add/);
    expect(findDifference(one, program(0, [], "a"))).toMatch(/parameters of .*reverse/);
    expect(findDifference(one, program(0, [0], "b"))).toMatch(/parameters of .*name/);
    expect(findDifference(one, identity)).toBe("3 and 0 equations");
    expect(findDifference(identity, { inputs: [x, x], eqns: [], outputs: [x] })).toBe("the inputs differ");
    expect(findDifference(identity, { inputs: [x], eqns: [], outputs: [] })).toBe("the outputs differ");
  });
});

describe("a text that is no program", () => {
  const inside = (line: string) => `(%0:f32[2]) {\n  ${line}\n  return %0\n}`;
  const wrong: readonly (readonly [text: string, line: number, column: number, message: string])[] = [
    ["", 1, 1, 'expected "(", found the end'],
    ["(%0:f32[2)", 1, 10, 'expected "," or "]", found ")"'],
    ["(%0:f33[2]) {", 1, 5, "expected a type such as f32[4,8] (f32, bf16,"],
    ["(%0:f32[-2]) {", 1, 9, "expected a size of at least 0"],
    ["(%0:f32[99999999999999999999]) {", 1, 9, "expected the size of a dim of at most 2^53 - 1"],
    ["(%0:f32[2], %0:f32[2]) {", 1, 13, "%0 is defined a second time"],
    ["(%0:f32[2]) {", 1, 14, "expected the end of the line, found the end"],
    [inside("%1:f32[2] = tanh %7"), 2, 20, "%7 is used before it is defined"],
    [inside("%0:f32[2] = tanh %0"), 2, 3, "%0 is defined a second time"],
    [inside("%1:f32[2] = tahn %0"), 2, 15, 'expected the name of an op, found "tahn %0"'],
    [inside("%1:f32[2] = tanh zero"), 2, 20, 'expected the end of the line, found "zero"'],
    [inside("%1:f32[3] = tanh %0"), 2, 3, "result 0 of tanh is f32[2], here it is f32[3]"],
    [inside("%1:f32[2], %2:f32[2] = tanh %0"), 2, 3, "tanh has 1 results, here are 2"],
    [inside("%1:f32[2] = reverse %0"), 2, 25, 'expected the parameter "dims:"'],
    [inside("%1:f32[2] = reverse %0 {dims: [0], more: 1}"), 2, 36, 'expected "}", found ", more: 1}"'],
    [inside("%1:f32[2] = reverse %0 {dims: [5]}"), 2, 3, "reverse"],
    [inside("%1:f32[2] = convert %0 {dtype: float7}"), 2, 34, "expected a data type (float32, bfloat16,"],
    [inside('%1:f32[2] = name %0 {name: "open}'), 2, 30, "expected a name in double quotes"],
    [inside("%1:f32[2] = add %0 3000000000"), 2, 22, "3000000000 is not a valid int32"],
    [inside("%1:f32[2] = add %0 1.0:int32"), 2, 22, "expected a constant of a float type"],
    ["() {\n  return\n} more", 3, 3, 'expected the end of the text, found "more"'],
  ];

  test.each(wrong)("is refused: %j", (text, line, column, message) => {
    let thrown: unknown;
    try {
      parseProgram(text);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(ParseError);
    expect(thrown).toMatchObject({ code: "parse", name: "ParseError", line, column });
    expect(String(thrown)).toContain(`[parseProgram] line ${line}, column ${column}: `);
    expect(String(thrown)).toContain(message);
  });

  test("is refused although programs lie in each other without end", () => {
    const deep = "(%0:f32[2]) {\n%1:f32[2] = remat %0 {policy: nothing} ".repeat(50_000);
    expect(() => parseProgram(deep)).toThrow(/at most 200 nested programs/);
    const policy = "either(".repeat(50_000);
    expect(() => parseProgram(inside(`%1:f32[2] = remat %0 {policy: ${policy}`))).toThrow(
      /at most 64 nested policies/,
    );
    expect(() => parseProgram(`"${"\\".repeat(1_000_000)}`)).toThrow(ParseError);
  });

  test("is refused with an error of its own wherever a character is lost, doubled or another one", () => {
    const texts = range(12).map((seed) => printProgram(randomProgram({ seed, numEqns: 8 })));
    const all = [...texts, ...Object.keys(opCases).map((op) => opText(op as OpName))].join("\0").split("\0");
    const characters = fc.constantFrom(...'%(){}[]:,="- \n0159xPfue→');
    fc.assert(
      fc.property(fc.constantFrom(...all), fc.nat(), fc.nat(3), characters, (text, place, kind, other) => {
        const i = place % (text.length + 1);
        const middle = [other, "", `${text[i] ?? ""}${text[i] ?? ""}`, other + (text[i] ?? "")][kind] ?? "";
        try {
          parseProgram(text.slice(0, i) + middle + text.slice(i + 1));
        } catch (error) {
          if (!(error instanceof ParseError)) throw error;
        }
      }),
      { numRuns: 4000 },
    );
    expect(ParseError.prototype).toBeInstanceOf(ShardwiseError);
  });
});

function opText<K extends OpName>(op: K): string {
  return opCases[op].map((one) => printProgram(caseProgram(op, one))).join("\0");
}
