import { afterAll, beforeAll, expect, test } from "vitest";
import { describeWith, webGpu } from "../../../test/support/optional.js";
import { constantsOf, type Gpu, openGpu, runShader } from "../../engines/webgpu/gpu.js";
import { functionsCode, type WgslFunctionName } from "./wgslFunctions.js";

const COUNT = 1 << 16;

/** Bits of floats at which a function changes its ways. */
const special = [0, 1, 0x7fffff, 0x800000, 0x3f7fffff, 0x3f800000, 0x7f7fffff, 0x7f800000, 0x7fc00000];

/** Bits of floats: special ones, any, those around 1, and small ones. */
function words(): Uint32Array<ArrayBuffer> {
  let state = 1;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state ^ (state >>> 13)) >>> 0;
  };
  const kinds = [
    () => (special[next() % special.length] ?? 0) | (next() & 0x80000000),
    () => next(),
    () => 0x3f000000 + (next() & 0x1ffffff),
    () => next() & 0x80ffffff,
  ];
  // Both operands of a pair are of one kind, but for every eighth.
  return Uint32Array.from(
    { length: 2 * COUNT },
    (_, i) => kinds[((i >> 1) + (i % 16 === 1 ? 1 : 0)) % 4]?.() ?? 0,
  );
}

describeWith(webGpu, "functions on a GPU", () => {
  let gpu: Gpu;
  beforeAll(async () => {
    gpu = await openGpu();
  });
  afterAll(() => gpu.device.destroy());

  const pairs = words();

  /** The bits of an expression of the floats x and y, for all pairs. */
  async function bitsOf(name: WgslFunctionName, expression: string): Promise<Uint32Array> {
    const code = `${functionsCode([name])}
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let x = bitcast<f32>(words[2u * id.x]);
  let y = bitcast<f32>(words[2u * id.x + 1u]);
  words[2u * id.x] = bitcast<u32>(${expression});
}`;
    const constants = constantsOf(code, gpu.facts);
    return new Uint32Array(await runShader(gpu.device, { code, groups: COUNT / 64, constants }, pairs));
  }

  test.each([
    ["f_div", "f_div(x, y)", (x: number, y: number) => x / y],
    ["f_sqrt", "f_sqrt(x)", (x: number) => Math.sqrt(x)],
    ["f_rem", "f_rem(x, y)", (x: number, y: number) => x % y],
    ["is_nan", "select(0.0, 1.0, is_nan(x))", (x: number) => Number(Number.isNaN(x))],
  ] as const)("%s is rounded correctly, whatever the driver does", async (name, expression, expected) => {
    const got = await bitsOf(name, expression);
    const floats = new Float32Array(pairs.buffer);
    const word = new Uint32Array(1);
    const float = new Float32Array(word.buffer);
    const isNan = (bits = 0) => (bits & 0x7fffffff) > 0x7f800000;
    const hex = (bits = 0) => bits.toString(16);
    const wrong: string[] = [];
    for (let i = 0; i < 2 * COUNT; i += 2) {
      float[0] = expected(floats[i] ?? 0, floats[i + 1] ?? 0);
      if (got[i] === word[0] || (isNan(got[i]) && isNan(word[0]))) continue;
      wrong.push(`${hex(pairs[i])}, ${hex(pairs[i + 1])}: ${hex(got[i])} instead of ${hex(word[0])}`);
    }
    expect(wrong.length, wrong.slice(0, 5).join("; ")).toBe(0);
  });
});
