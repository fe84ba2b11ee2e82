import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createInlineEngine, type InlineEngine } from "../../src/engines/inline/engine.js";
import type { DeviceBuffer, Engine } from "../../src/ir/engine.js";
import type { Eqn, Program } from "../../src/ir/program.js";
import { range } from "../../src/ir/shape.js";
import { parseProgram } from "../../src/ir/text/parse.js";
import { type ComparedCase, caseOf } from "./cases.js";
import { differenceOn } from "./compare.js";
import { minimise, printCase } from "./minimise.js";

let engine: InlineEngine;
beforeAll(() => {
  engine = createInlineEngine({ numDevices: 4 });
});
afterAll(() => engine.close());

const cases = range(40).map((i) => caseOf(i + 1, { callbacks: "all" }));

/** The engine with another way to compile. */
const compiling = (compile: Engine["compile"]): Engine =>
  new Proxy<Engine>(engine, {
    get: (target, name) => {
      const found: unknown = name === "compile" ? compile : Reflect.get(target, name);
      return typeof found === "function" ? found.bind(target) : found;
    },
  });

/** The first case that differs on an engine, and what `minimise` makes of it. */
async function smallestOn(broken: Engine): Promise<ComparedCase> {
  for (const one of cases) {
    if ((await differenceOn(broken, one)) === undefined) continue;
    return minimise(one, async (next) => (await differenceOn(broken, next)) !== undefined);
  }
  throw new Error("no case differs");
}

describe("random programs", () => {
  test("agree with the interpreter in results, errors and donated inputs", async () => {
    for (const one of cases) expect(await differenceOn(engine, one)).toBeUndefined();
  });

  test("have control flow, collectives, callbacks and donated inputs", () => {
    const opsIn = ({ eqns }: Program): string[] => eqns.map(({ op }) => op);
    const ops = new Set(cases.flatMap(({ program }) => opsIn(program)));
    for (const op of ["scan", "while", "cond", "psum", "ppermute", "callback", "dotGeneral"])
      expect(ops).toContain(op);
    expect(cases.some(({ donated }) => donated.includes(true))).toBe(true);
  });
});

describe("a program that differs", () => {
  test("is made as small as the equation that is wrong, and can be read", async () => {
    // Maxima are minima.
    const swap = (eqn: Eqn): Eqn => (eqn.op === "max" ? { ...eqn, op: "min" } : eqn);
    const broken = compiling((program, options) =>
      engine.compile({ ...program, eqns: program.eqns.map(swap) }, options),
    );
    const { program, ...rest } = await smallestOn(broken);
    expect(program.eqns.map(({ op }) => op)).toEqual(["max"]);
    const [text = ""] = printCase({ program, ...rest }).split("\nmesh: ");
    expect(parseProgram(text).eqns.map(({ op }) => op)).toEqual(["max"]);
  });

  test("may do so because inputs are donated that are not", async () => {
    const broken = compiling((program, options) =>
      engine.compile(
        program,
        options.donated ? { ...options, donated: program.inputs.map(() => true) } : options,
      ),
    );
    await expect(smallestOn(broken)).resolves.toMatchObject({ donated: expect.arrayContaining([true]) });
  });

  test("may fail where it should not, or not fail where it should", async () => {
    const deaf = compiling((program, options) => {
      const heard = program.eqns.map((eqn): Eqn => {
        if (eqn.op !== "callback" || eqn.params.kind !== "io") return eqn;
        return { ...eqn, op: "optimizationBarrier", params: {} } as Eqn;
      });
      return engine.compile({ ...program, eqns: heard }, options);
    });
    const refused: string[] = [];
    for (const seed of range(120)) {
      const found = await differenceOn(deaf, caseOf(seed, { callbacks: "all" }));
      if (found !== undefined) refused.push(found);
    }
    expect(refused[0]).toContain('it gives results instead of the error "[picky] refuses this operand"');
    const failing = compiling((program, options) => ({
      ...engine.compile(program, options),
      execute: (): DeviceBuffer[][] => {
        throw new Error("no");
      },
    }));
    const [first] = cases;
    expect(first && (await differenceOn(failing, first))).toContain('fails with "no" instead of');
  });
});
