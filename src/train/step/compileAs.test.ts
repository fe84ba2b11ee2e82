import { expect, test } from "vitest";
import { createThreadsEngine } from "../../engines/threads/engine.js";
import { jit, Mesh, random, type Tensor } from "../../index.js";
import { attention } from "../../nn/functions/attention.js";
import { compileAs } from "./compileAs.js";

test("the steps of a mesh are those that its engine runs", async () => {
  const engine = createThreadsEngine({ numDevices: 1 });
  try {
    const mesh = Mesh.create({ data: 1 }, { engine });
    const mix = jit((x: Tensor) => attention(x, x, x, { causal: true }).output.mul(2), { mesh });
    const x = random.normal(random.key(0), [2, 64, 2, 16]);
    const { program } = mix.lower(x);
    const { steps, infos } = compileAs(mesh, program, {});
    await mix(x).ready();
    engine.tracer.start();
    await mix(x).ready();
    const events = await engine.tracer.stop();
    expect(events.map(({ ops }) => ops)).toEqual(steps.map(({ info }) => infos[info]?.ops));
  } finally {
    await engine.close();
  }
});
