import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { interpretSpmd } from "../../../src/engines/reference/interpret.js";
import { type HostTensor, numbersOf } from "../../../src/engines/reference/tensor.js";
import type { DType } from "../../../src/ir/dtype.js";
import type { DeviceBuffer, Engine } from "../../../src/ir/engine.js";
import { axesSize } from "../../../src/ir/mesh.js";
import { at, formatType, range } from "../../../src/ir/shape.js";
import type { EngineCase } from "./cases.js";
import { describeContract } from "./contract.js";
import { opCases } from "./opCases.js";
import { programCases } from "./programCases.js";

/** What an engine cannot do yet, and why; a test that is skipped for no reason any more fails. */
export interface Skip {
  readonly reason: string;
  /** Names of cases, or their beginnings. */
  readonly tests: readonly string[];
}

/** How the suite is run on an engine. */
export interface EngineSuiteOptions {
  readonly name: string;
  /** Opens an engine with at least so many devices. */
  readonly newEngine: (numDevices: number) => Engine;
  readonly skip?: readonly Skip[];
}

/** The most devices a case uses. */
const MAX_DEVICES = 4;

/** Runs everything that every engine must do: the contract of the interface, every op, and whole programs. */
export function runEngineSuite({ name, newEngine, skip = [] }: EngineSuiteOptions): void {
  describe(`the ${name} engine conforms`, () => {
    describeContract(newEngine);
    const engine: { current: Engine | undefined } = { current: undefined };
    beforeAll(() => {
      engine.current = newEngine(MAX_DEVICES);
    });
    afterAll(async () => {
      await engine.current?.close();
    });
    const current = (): Engine => {
      if (engine.current === undefined) throw new Error("the engine is not open");
      return engine.current;
    };
    for (const [op, cases] of Object.entries(opCases)) {
      if (cases.length > 0) caseTest(`${op}`, cases, current, skip);
    }
    for (const program of programCases) caseTest(program.name, [program], current, skip);
  });
}

function caseTest(
  name: string,
  cases: readonly EngineCase[],
  engine: () => Engine,
  skip: readonly Skip[],
): void {
  const skipped = (one: EngineCase) =>
    skip.some(({ tests }) => tests.some((begin) => one.name.startsWith(begin)));
  const chosen = cases.filter((one) => !skipped(one));
  test.skipIf(chosen.length === 0)(`computes ${name}`, async () => {
    const wrong: string[] = [];
    for (const one of chosen) {
      try {
        wrong.push(...(await differences(engine(), one)));
      } catch (error) {
        wrong.push(`${one.name}: ${error instanceof Error ? error.message.slice(0, 400) : error}`);
      }
    }
    expect(wrong).toEqual([]);
  });
}

/** Runs a case and says where the results differ from the interpreter's. */
export async function differences(engine: Engine, one: EngineCase): Promise<string[]> {
  const { program, mesh, inputs, tolerance } = one;
  const expected = interpretSpmd(program, mesh, inputs);
  const devices = range(axesSize(mesh.axes)).reverse();
  const executable = engine.compile(program, { mesh, devices, name: one.name });
  const buffers = inputs.map((row) =>
    row.map((tensor, position) => engine.upload(tensor.type, tensor.data, at(devices, position))),
  );
  const outputs = executable.execute(buffers);
  const found: string[] = [];
  for (const [o, row] of outputs.entries()) {
    for (const [position, buffer] of row.entries()) {
      const wanted = at(at(expected, o), position);
      const difference = compare(await fetch(engine, buffer), wanted, tolerance);
      if (difference) found.push(`${one.name}: output ${o} at position ${position}: ${difference}`);
    }
  }
  for (const buffer of [...buffers, ...outputs].flat()) engine.release(buffer);
  return found;
}

async function fetch(engine: Engine, buffer: DeviceBuffer): Promise<HostTensor> {
  return { type: buffer.type, data: await engine.download(buffer) };
}

function compare(got: HostTensor, wanted: HostTensor, tolerance: number): string | undefined {
  if (formatType(got.type) !== formatType(wanted.type)) {
    return `${formatType(got.type)} instead of ${formatType(wanted.type)}`;
  }
  const [a, b] = [numbersOf(got), numbersOf(wanted)];
  if (a.length !== b.length) return `${a.length} elements instead of ${b.length}`;
  const i = a.findIndex((x, k) => !close(x, b[k] ?? Number.NaN, tolerance, wanted.type.dtype));
  return i < 0 ? undefined : `element ${i} of ${a.length} is ${a[i]} instead of ${b[i]}`;
}

function close(x: number, y: number, tolerance: number, dtype: DType): boolean {
  if (Object.is(x, y) || (Number.isNaN(x) && Number.isNaN(y))) return true;
  if (x === y) return tolerance > 0 || !dtype.includes("float");
  return Math.abs(x - y) <= tolerance * Math.max(1, Math.abs(y));
}
