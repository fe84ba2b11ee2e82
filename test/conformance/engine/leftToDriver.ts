import { hostTensor, numbersOf } from "../../../src/engines/reference/hostTensor.js";
import type { Engine } from "../../../src/ir/engine.js";
import { at, tensorType } from "../../../src/ir/shape.js";
import { buildProgram } from "../../support/interpreting.js";
import type { Allowances } from "./differences.js";

/** What WGSL leaves to a driver: whether it fuses a product with a sum, and keeps numbers below 2⁻¹²⁶. */
export async function leftToDriver(engine: Engine): Promise<Allowances> {
  const types = Array.from({ length: 3 }, () => tensorType("float32", [1]));
  const program = buildProgram(types, (emit, x, y, z) =>
    emit("add", [at(emit("mul", [x, y], {}), 0), z], {}),
  );
  const executable = engine.compile(program, { mesh: { axes: [] }, devices: [0], name: "driver" });
  const compute = async (...values: number[]): Promise<number> => {
    const ins = values.map((value) => {
      const { type, data } = hostTensor("float32", [1], [value]);
      return [engine.upload(type, data, 0)];
    });
    const outs = executable.execute(ins);
    const buffer = at(at(outs, 0), 0);
    const data = await engine.download(buffer);
    for (const one of [...ins, ...outs].flat()) engine.release(one);
    return at(numbersOf({ type: buffer.type, data }), 0);
  };
  const third = Math.fround(1 / 3);
  return {
    joinsOps: (await compute(third, third, -Math.fround(third * third))) !== 0,
    flushesTiny: (await compute(2 ** -100, 2 ** -30, 0)) === 0,
  };
}
