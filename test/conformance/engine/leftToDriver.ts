import { hostTensor, numbersOf } from "../../../src/engines/reference/hostTensor.js";
import type { Engine } from "../../../src/ir/engine.js";
import { newLiteral } from "../../../src/ir/program.js";
import { at, tensorType } from "../../../src/ir/shape.js";
import { buildProgram } from "../../support/interpreting.js";
import type { Allowances } from "./differences.js";

/**
 * What WGSL leaves to a driver: whether it fuses a product with a sum, keeps numbers below 2⁻¹²⁶, and keeps the signs of
 * zeros where it knows that a factor is 0.
 */
export async function leftToDriver(engine: Engine): Promise<Allowances> {
  const compute = async (factor: number | undefined, ...values: number[]): Promise<number> => {
    const types = values.map(() => tensorType("float32", [1]));
    const program = buildProgram(types, (emit, x, y, z = y) => {
      const product = emit("mul", [x, factor === undefined ? y : newLiteral(factor, "float32")], {});
      return emit("add", [at(product, 0), z], {});
    });
    const executable = engine.compile(program, { mesh: { axes: [] }, devices: [0], name: "driver" });
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
    joinsOps: (await compute(undefined, third, third, -Math.fround(third * third))) !== 0,
    flushesTiny: (await compute(undefined, 2 ** -100, 2 ** -30, 0)) === 0,
    ignoresZeroSigns: Object.is(await compute(0, 2.5, -0), -0),
  };
}
