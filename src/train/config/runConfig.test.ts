import { expect, test } from "vitest";
import { defaultBatch, engineSettings, modelConfig, readRunConfig } from "./runConfig.js";

const problems = (settings: Readonly<Record<string, unknown>>) =>
  readRunConfig(
    { mesh: { data: 2 }, data: { batch: 16 } },
    Object.entries(settings).map(([path, value]) => ({ path, value })),
  ).violations;

test("a batch has to split over devices, parts and microbatches; the nearest that do are named", () => {
  expect(problems({ "optimizer.accumulate": 4 })).toEqual([]);
  expect(problems({ "optimizer.accumulate": 3 })).toEqual([
    expect.stringContaining("16, which does not split 6 ways (data x fsdp x accumulate: 16 / 6 = 2.67"),
  ]);
  expect(problems({ "optimizer.accumulate": 3 })[0]).toMatch(/: use 12 or 18$/);
  const pipelined = { "optimizer.accumulate": 4, "mesh.pipe": 2, "data.batch": 16 };
  expect(problems(pipelined)).toEqual([
    "data.batch is 16, which does not split 32 ways (data x fsdp x accumulate x microbatches: 16 / 32 = 0.5): use 32",
  ]);
  expect(problems({ ...pipelined, "data.batch": 64 })).toEqual([]);
});

test("types are float32, bfloat16 or float16", () => {
  for (const dtype of ["float32", "bfloat16", "float16"]) {
    expect(problems({ "model.dtype": dtype, "model.paramDtype": dtype })).toEqual([]);
  }
  expect(problems({ "model.paramDtype": "float64" })).toEqual([
    'model.paramDtype is "float64": use float32 | bfloat16 | float16; did you mean float32?',
  ]);
});

test("the default batch suits any number of cores", () => {
  for (let cores = 1; cores <= 256; cores++) {
    const batch = defaultBatch(cores);
    expect(batch).toBeGreaterThanOrEqual(16);
    expect(batch % cores, `${cores} cores`).toBe(0);
    expect(batch % 8, `${cores} cores`).toBe(0);
    expect(batch / cores).toBeLessThanOrEqual(16);
  }
});

test("where an axis of the mesh is named, those that are not have one device", () => {
  const meshOf = (json: unknown, settings: Readonly<Record<string, unknown>> = {}) =>
    readRunConfig(
      json,
      Object.entries(settings).map(([path, value]) => ({ path, value })),
    ).config.mesh;
  const alone = { data: 1, fsdp: 1, expert: 1, pipe: 1, context: 1, model: 1 };
  expect(meshOf({ mesh: { model: 2 } })).toEqual({ ...alone, model: 2 });
  expect(meshOf({}, { "mesh.pipe": 2 })).toEqual({ ...alone, pipe: 2 });
  expect(meshOf({ mesh: { data: 4 } }, { "mesh.pipe": 2 })).toEqual({ ...alone, data: 4, pipe: 2 });
});

test("devices that are given stand along data, unless the mesh is said", () => {
  const read = (json: unknown, devices: number) => readRunConfig(json, [], devices).config;
  expect(read({}, 3).mesh).toEqual({ data: 3, fsdp: 1, expert: 1, pipe: 1, context: 1, model: 1 });
  expect(read({}, 3).data.batch).toBe(defaultBatch(3));
  expect(read({ data: { batch: 6 } }, 3).data.batch).toBe(6);
  expect(read({ mesh: { fsdp: 2 } }, 3).mesh).toEqual({
    data: 1,
    fsdp: 2,
    expert: 1,
    pipe: 1,
    context: 1,
    model: 1,
  });
});

test("sums of several processes have the bits of worker threads unless a run says otherwise", () => {
  expect(engineSettings(readRunConfig({ reduction: "fast" }).config)).toEqual({ reduction: "fast" });
  expect(problems({ reduction: "quick" })).toEqual([expect.stringContaining("use exact | fast")]);
});

test("float32 is multiplied as float32 unless a run says otherwise", () => {
  expect(engineSettings(readRunConfig({}).config)).toEqual({});
  expect(engineSettings(readRunConfig({ precision: "tf32" }).config)).toEqual({ products: "tf32" });
  expect(problems({ precision: "half" })).toEqual([expect.stringContaining("use float32 | tf32 | float8")]);
});

test("float8 is what the model multiplies, not the engine, and does not go with float16", () => {
  const { config } = readRunConfig({ precision: "float8" });
  expect(engineSettings(config)).toEqual({});
  expect(modelConfig(config, 256).products).toBe("float8");
  expect(modelConfig(readRunConfig({}).config, 256).products).toBeUndefined();
  expect(problems({ precision: "float8", "model.dtype": "float16" })).toEqual([
    "precision float8 scales by powers of two that model.dtype float16 cannot hold: use bfloat16",
  ]);
});

test("sequences split over context where they have equal parts", () => {
  const problems = (json: object) => readRunConfig({ mesh: { context: 4 }, ...json }).violations;
  expect(problems({})).toEqual([]);
  expect(problems({ data: { sequence: 12 } })).toEqual([
    "data.sequence is 12, which does not split 8 ways (mesh.context x two chunks for each device: 12 / 8 = 1.5): use 8 or 16",
  ]);
  expect(problems({ context: "gather", data: { sequence: 12 } })).toEqual([]);
  expect(problems({ context: "allToAll", model: { numHeads: 2, numKvHeads: 2 } })).toEqual([
    "model.numHeads is 2, which does not split 4 ways (mesh.context x mesh.model: 2 / 4 = 0.5): use 4",
  ]);
  expect(problems({ context: "allToAll", model: { numKvHeads: 2 } })).toEqual([]);
  for (const kind of ["mlstm", "xlstm", "moe"]) expect(problems({ model: { kind } })).toEqual([]);
  expect(problems({ model: { kind: "mlstm" }, data: { sequence: 12 }, context: "allToAll" })).toEqual([]);
  expect(problems({ model: { decoder: { window: 8, layers: "LG" } } })).toEqual([]);
});
