import type { HostTensor } from "../../../src/engines/reference/hostTensor.js";
import type { DeviceBuffer, Engine } from "../../../src/ir/engine.js";
import { axesSize } from "../../../src/ir/mesh.js";
import { at, range } from "../../../src/ir/shape.js";
import { oracleFor } from "../../support/agreement.js";
import type { EngineCase } from "./cases.js";
import { withoutTiny, withTinyResults, withZeroSigns } from "./tiny.js";

/** What an engine may do otherwise than the interpreter. */
export interface Allowances {
  /** Whether it may take numbers below 2⁻¹²⁶ for 0, among operands and results. */
  readonly flushesTiny?: boolean;
  /** Whether it may join ops, as XLA does, instead of rounding each for itself. */
  readonly joinsOps?: boolean;
  /** Whether it may give a zero of the other sign. */
  readonly ignoresZeroSigns?: boolean;
}

/** The differences of a case, or the error that running it gives. */
export async function failuresOf(
  engine: Engine,
  one: EngineCase,
  allowances?: Allowances,
): Promise<string[]> {
  try {
    return await differences(engine, one, allowances);
  } catch (error) {
    return [`${one.name}: ${error instanceof Error ? error.message.slice(0, 400) : error}`];
  }
}

/** Runs a case and says where the results differ from the interpreter's. */
export async function differences(
  engine: Engine,
  one: EngineCase,
  { flushesTiny = false, joinsOps = false, ignoresZeroSigns = false }: Allowances = {},
): Promise<string[]> {
  const { program, mesh, inputs } = flushesTiny ? withoutTiny(one) : one;
  const oracle = oracleFor(program, mesh, inputs, { joinsOps });
  const devices = range(axesSize(mesh.axes)).reverse();
  const executable = engine.compile(program, { mesh, devices, name: one.name });
  const buffers = inputs.map((row) =>
    row.map((tensor, position) => engine.upload(tensor.type, tensor.data, at(devices, position))),
  );
  const outputs = executable.execute(buffers);
  const found: string[] = [];
  for (const [o, row] of outputs.entries()) {
    for (const [position, buffer] of row.entries()) {
      const got = await fetch(engine, buffer);
      const expected = at(at(oracle.expected, o), position);
      const large = flushesTiny ? withTinyResults(got, expected) : got;
      const allowed = ignoresZeroSigns ? withZeroSigns(large, expected) : large;
      const difference = oracle.difference(o, position, allowed);
      if (difference) found.push(`${one.name}: output ${o} at position ${position}: ${difference}`);
    }
  }
  for (const buffer of [...buffers, ...outputs].flat()) engine.release(buffer);
  return found;
}

async function fetch(engine: Engine, buffer: DeviceBuffer): Promise<HostTensor> {
  return { type: buffer.type, data: await engine.download(buffer) };
}
