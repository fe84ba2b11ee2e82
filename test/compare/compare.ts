import type { DeviceBuffer, Engine } from "../../src/ir/engine.js";
import { reasonOf } from "../../src/ir/errors.js";
import { axesSize } from "../../src/ir/mesh.js";
import { range } from "../../src/ir/shape.js";
import { type Allowances, differences } from "../conformance/engine/differences.js";
import { oracleFor } from "../support/agreement.js";
import type { ComparedCase } from "./cases.js";

/**
 * Runs a program on an engine and on the interpreter: results, errors, and what becomes of the inputs.
 *
 * @returns what differs, or undefined
 */
export async function differenceOn(
  engine: Engine,
  one: ComparedCase,
  allowances: Allowances = {},
): Promise<string | undefined> {
  try {
    const [difference] = await differences(engine, one, allowances);
    return difference ?? (await donationDifference(engine, one));
  } catch (error) {
    return errorDifference(engine, one, reasonOf(error));
  }
}

/** Whether an engine that did not give results does what the interpreter does. @param reason why it gave none */
async function errorDifference(
  engine: Engine,
  one: ComparedCase,
  reason: string,
): Promise<string | undefined> {
  const refusal = refusalOf(one);
  if (refusal === undefined) return `${one.name}: it fails with "${reason}" instead of results`;
  try {
    await bitsOf(engine, run(engine, one, uploaded(engine, one)));
    return `${one.name}: it gives results instead of the error "${refusal}"`;
  } catch (error) {
    const said = reasonOf(error);
    return said.includes(refusal)
      ? undefined
      : `${one.name}: it fails with "${said}" instead of "${refusal}"`;
  }
}

type Rows = readonly (readonly DeviceBuffer[])[];

function uploaded(engine: Engine, { inputs }: ComparedCase): Rows {
  return inputs.map((row) => row.map(({ type, data }, device) => engine.upload(type, data, device)));
}

function run(engine: Engine, one: ComparedCase, buffers: Rows, donated?: readonly boolean[]): Rows {
  const { name, program, mesh } = one;
  const devices = range(axesSize(mesh.axes));
  return engine.compile(program, { mesh, devices, name, ...(donated && { donated }) }).execute(buffers);
}

async function bitsOf(engine: Engine, rows: Rows): Promise<string> {
  const found: string[] = [];
  for (const block of rows.flat()) {
    const { buffer, byteOffset, byteLength } = await engine.download(block);
    found.push(new Uint8Array(buffer, byteOffset, byteLength).join(" "));
  }
  return found.join();
}

/** The error that the interpreter ends with, or undefined. */
function refusalOf({ program, mesh, inputs }: ComparedCase): string | undefined {
  try {
    oracleFor(program, mesh, inputs);
    return undefined;
  } catch (error) {
    return reasonOf(error);
  }
}

/** Whether results are the same with some inputs donated, the others keep their bits, and those are gone. */
async function donationDifference(engine: Engine, one: ComparedCase): Promise<string | undefined> {
  const { name, donated } = one;
  if (!donated.includes(true)) return undefined;
  const [kept, given] = [uploaded(engine, one), uploaded(engine, one)];
  const plain = run(engine, one, kept);
  const outputs = run(engine, one, given, donated);
  const notDonated = (rows: Rows) => rows.filter((_, i) => !donated[i]);
  const isSame = async (a: Rows, b: Rows) => (await bitsOf(engine, a)) === (await bitsOf(engine, b));
  const hasSameResults = await isSame(plain, outputs);
  const hasSameInputs = await isSame(notDonated(kept), notDonated(given));
  const isLive = given.some((row, i) => donated[i] && row.some((buffer) => buffer.isLive));
  for (const buffer of [...kept, ...plain, ...outputs, ...notDonated(given)].flat()) engine.release(buffer);
  if (!hasSameResults) return `${name}: donation of ${donated} changes its results`;
  if (!hasSameInputs) return `${name}: donation of ${donated} changes another input`;
  return isLive ? `${name}: a donated input is still live` : undefined;
}
