/** The page of the everyday test: what a reader tries first, with every engine that the page can have. */
import {
  devicePut,
  engineInfo,
  grad,
  jit,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  random,
  shardMap,
  type Tensor,
  tree,
} from "shardwise";
import { createOneThreadEngine, createThreadsEngine, createWebGpuEngine } from "shardwise/engines";
import * as nn from "shardwise/nn";
import {
  checkpointsIn,
  encodeSafetensors,
  formatTokenizer,
  openOriginFiles,
  parseSafetensors,
  parseTokenizer,
  readBytes,
  readExamples,
  readRunConfig,
  trainBpe,
  trainRun,
} from "shardwise/train";
import { lossesOn } from "./training.js";

const loss = (w: Tensor) => np.sum(np.tanh(np.matmul(w, w)));

/** A compiled program without a mesh. */
async function withoutMesh(): Promise<unknown> {
  return jit(loss)(np.eye(4)).js();
}

/** Values that Node computes, too. */
export async function values(): Promise<Record<string, unknown>> {
  const w = random.normal(random.key(0), [128, 128]);
  const mesh = Mesh.create({ data: 2 });
  const total = shardMap((x: Tensor) => lax.psum(np.sum(x), "data"), {
    mesh,
    inSpecs: [P("data")],
    outSpecs: P(),
  });
  return {
    eager: await loss(w).js(),
    gradient: await np.sum(grad(loss)(w)).js(),
    jitted: await np.sum(jit(grad(loss))(w)).js(),
    psum: await total(w).js(),
    mesh: await jit((a: Tensor, b: Tensor) => np.sum(np.matmul(a, b)), {
      inShardings: [P("data"), P()],
      mesh,
    })(w, w).js(),
  };
}

/** The losses of a few steps of a small language model over a mesh. */
export function train(axes: Readonly<Record<string, number>>): Promise<number[]> {
  return lossesOn(Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...axes }));
}

/** Values that the GPU computes, on two devices that share it, and what threads compute. */
async function onWebGpu(): Promise<Record<string, unknown>> {
  const engine = createWebGpuEngine({ numDevices: 2 });
  await engine.opened;
  const there = Mesh.create({ data: 2 }, { engine });
  const w = random.normal(random.key(0), [32, 32]);
  const results = async (mesh: Mesh) => {
    const centred = shardMap((x: Tensor) => nn.softmax(x.sub(lax.pmean(x, "data"))), {
      mesh,
      inSpecs: [P("data")],
      outSpecs: P("data"),
    });
    const draw = jit((key: Tensor) => random.normal(key, [64]), { mesh });
    const values = [jit(grad(loss), { mesh })(w), centred(w), draw(random.key(7))];
    return Promise.all(values.map(async (value) => [...(await value.data())]));
  };
  const [got, want] = [await results(there), await results(Mesh.create({ data: 2 }))];
  const wide = jit((x: Tensor) => np.sin(x.astype("float64")).astype("float32"), { mesh: there });
  const refused = await Promise.resolve()
    .then(() => wide(w))
    .catch((error: Error) => error.message);
  const { deviceKind, features } = engine.info();
  await engine.close();
  return { got, want, refused, deviceKind, features };
}

/** Whether a tree survives the safetensors format in memory. */
function roundTrip(): boolean {
  const data = Float32Array.from([1, 2, 3, 4]);
  const bytes = encodeSafetensors([["w", { dtype: "float32", shape: [2, 2], data }]]);
  return parseSafetensors(bytes).tensors.get("w")?.data.join() === data.join();
}

/** How often a timer of the page ran while workers computed, and the engine's answer after its end. */
async function whileBusy(): Promise<{ readonly ticks: number; readonly closed: string }> {
  const engine = createThreadsEngine({ numDevices: 1 });
  const mesh = Mesh.create({ data: 1 }, { engine });
  const busy = jit((x: Tensor) => lax.foriLoop(0, 60, (_, y: Tensor) => np.tanh(np.matmul(y, y)), x), {
    mesh,
  });
  const x = random.normal(random.key(1), [256, 256]);
  let ticks = 0;
  const timer = setInterval(() => ticks++, 5);
  await busy(x).data();
  clearInterval(timer);
  await engine.close();
  const closed = await Promise.resolve()
    .then(() => busy(x).data())
    .then(
      () => "ran",
      (error: Error) => error.name,
    );
  return { ticks, closed };
}

/** How often the page's event loop came round during an action. */
async function turnsDuring(action: Promise<unknown>): Promise<number> {
  const { port1, port2 } = new MessageChannel();
  let turns = 0;
  port1.onmessage = () => {
    turns++;
    port2.postMessage(0);
  };
  port2.postMessage(0);
  await action;
  port1.close();
  return turns;
}

/** The gradient of a deep model on two devices, and its arguments. */
function deepModel(depth: number) {
  const mesh = Mesh.create({ data: 2 });
  const x = random.normal(random.key(1), [8, 16]);
  const layers = Array.from({ length: depth }, () => [nn.Dense({ features: 16 }), nn.LayerNorm(), nn.gelu]);
  const net = nn.Sequential({ layers: layers.flat() });
  const variables = net.init(random.key(0), x);
  const step = jit(
    grad((v: typeof variables, x: Tensor) => np.sum(net.apply(v, x) as Tensor)),
    { mesh, inShardings: [P(), P("data")] },
  );
  return { mesh, step, variables, x };
}

/** How often a page can do something else while a deep model is compiled on the side. */
async function compileDeep(depth: number): Promise<number> {
  const { mesh, step, variables, x } = deepModel(depth);
  // The engine, and what a first compilation loads.
  await jit((x: Tensor) => x.add(1), { mesh }).compile(x);
  return turnsDuring(step.compile(variables, x));
}

/**
 * The longest time in milliseconds for which a page stands still while a deep model is called for the first time, and the
 * sum of its result. @param isAtOnce whether the page asks where a result is, which compiles the program on its thread
 */
async function firstCall(
  depth: number,
  isAtOnce: boolean,
): Promise<{ readonly pause: number; readonly sum: number }> {
  const { step, variables, x } = deepModel(depth);
  const { port1, port2 } = new MessageChannel();
  let [pause, last] = [0, performance.now()];
  port1.onmessage = () => {
    const now = performance.now();
    pause = Math.max(pause, now - last);
    last = now;
    port2.postMessage(0);
  };
  port2.postMessage(0);
  const gradient = tree.leaves(step(variables, x)).at(-1) as Tensor;
  if (isAtOnce) gradient.sharding;
  const sum = await np.sum(gradient).item();
  await new Promise((resolve) => setTimeout(resolve));
  port1.close();
  return { pause, sum };
}

/** A loop without end on the workers that the page can have. */
function neverEnds(signal?: AbortSignal): Tensor {
  const open = crossOriginIsolated ? createThreadsEngine : createOneThreadEngine;
  const engine = open({ numDevices: 2, signal });
  const forever = (x: Tensor) =>
    lax.whileLoop(
      (x: Tensor) => np.less(np.sum(x), 100),
      (x: Tensor) => np.tanh(x),
      x,
    );
  return jit(forever, { mesh: Mesh.create({ data: 2 }, { engine }) })(np.ones([8]));
}

/** What comes of a run whose signal is aborted. */
async function abortRun(): Promise<string> {
  const controller = new AbortController();
  const running = neverEnds(controller.signal);
  await new Promise((resolve) => setTimeout(resolve, 300));
  controller.abort();
  return running.data().then(
    () => "ended",
    (error: Error) => error.name,
  );
}

/** Starts a run without end, and returns once its workers are there. */
async function startForever(): Promise<void> {
  neverEnds();
  await new Promise((resolve) => setTimeout(resolve, 300));
}

/** Starts compiling a deep model, and returns once a worker does. */
async function startCompiling(): Promise<void> {
  const { step, variables, x } = deepModel(32);
  step.compile(variables, x).catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 300));
}

/** What comes of a compilation whose engine is closed. */
async function closeWhileCompiling(): Promise<string> {
  const { mesh, step, variables, x } = deepModel(32);
  const compiled = step.compile(variables, x).then(
    () => "compiled",
    (error: Error) => error.name,
  );
  await new Promise((resolve) => setTimeout(resolve, 300));
  await mesh.engine.close();
  return compiled;
}

/** What a page says of more memory than it has, and of a pattern that nothing could stop. */
async function limits(): Promise<string[]> {
  const said = (action: () => unknown) =>
    Promise.resolve()
      .then(action)
      .then(
        () => "nothing",
        (error: Error) => `${error.name}: ${error.message}`,
      );
  const mesh = Mesh.create({ data: 2 });
  const wide = jit((x: Tensor) => np.broadcastTo(x, [2 ** 30]).add(1), { mesh });
  const own = JSON.parse(formatTokenizer(trainBpe("low lower lowest", { vocabSize: 260 })));
  const split = { type: "Split", pattern: { Regex: "(a+)+b" }, behavior: "Isolated", invert: false };
  const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
  const pattern = parseTokenizer(
    JSON.stringify({ ...own, pre_tokenizer: { type: "Sequence", pretokenizers: [split, bytes] } }),
  );
  return [
    await said(() => np.zeros([2 ** 35]).data()),
    await said(() => wide(np.ones([1])).data()),
    await said(() => pattern.encode("a".repeat(64))),
  ];
}

/** Files of a page: kept by the browser, read by URL with progress, picked, and refused. */
async function files(): Promise<Record<string, unknown>> {
  const kept = await openOriginFiles("runs/test");
  await kept.write("a.bin", Uint8Array.of(1, 2, 3));
  await kept.write("a.bin", Uint8Array.of(4, 5));
  const again = await openOriginFiles("runs/test");
  const names = await again.names();
  const read = [...((await again.read("a.bin")) ?? [])];
  await again.remove("a.bin");
  const steps: [number, number | undefined][] = [];
  const fetched = await readBytes("page.js", { progress: (bytes, total) => void steps.push([bytes, total]) });
  const picked = await readBytes(new File([Uint8Array.of(7)], "picked.bin"));
  const refused = await readBytes("missing.bin").catch((error: Error) => error.message);
  const threads = await Promise.resolve()
    .then(() => createThreadsEngine({ numDevices: 1, threadsPerDevice: 2 }))
    .catch((error: Error) => error.message);
  const isWhole =
    steps.at(-1)?.[0] === fetched.length && (steps.at(-1)?.[1] ?? fetched.length) === fetched.length;
  return { names, read, gone: await again.read("a.bin"), isWhole, picked: [...picked], refused, threads };
}

/** The texts behind each address, or what is wrong with it. */
async function textsBehind(sources: readonly string[]): Promise<unknown[]> {
  const textsOf = async (source: string) => {
    const found: unknown[] = [];
    for await (const example of readExamples(source, { fields: { text: "text" } }))
      found.push("text" in example && example.text);
    return found;
  };
  return Promise.all(sources.map((source) => textsOf(source).catch((error: Error) => error.message)));
}

/** The losses of a short run on data behind an address. */
async function trainFrom(source: string): Promise<number[]> {
  const { config } = readRunConfig({
    model: { width: 16, numLayers: 1, numHeads: 2, numKvHeads: 2, mlpWidth: 16 },
    data: { source, sequence: 16, batch: 4 },
    optimizer: { learningRate: 1e-2, warmup: 0 },
    steps: 16,
    out: `runs/${source.split("/").at(-1)}`,
  });
  const { steps } = await trainRun({ config, stream: { write: () => {} } });
  return steps.map(({ loss }) => loss);
}

/** A run in the origin's files: trained, refused while it trains, and continued; what its folder holds at the end. */
async function trainInFolder(isLong: boolean): Promise<Record<string, unknown>> {
  const [out, source] = ["runs/tab", "texts/short.txt"];
  const texts = await openOriginFiles("texts");
  await texts.write(
    "short.txt",
    new TextEncoder().encode("a run in a tab has the folder of any run. ".repeat(40)),
  );
  const { config, violations } = readRunConfig({
    model: { width: 16, numLayers: 2, numHeads: 2, numKvHeads: 2, mlpWidth: 16 },
    mesh: { data: 2 },
    data: { source, sequence: 16, batch: 4 },
    steps: isLong ? 8 : 4,
    checkpointEvery: 2,
    keep: 2,
    evalEvery: 2,
    sample: 8,
    out,
  });
  const notes: string[] = [];
  const stream = { write: (text: string) => notes.push(text) };
  const running = trainRun({ config, stream, resume: isLong });
  await new Promise((resolve) => setTimeout(resolve, 200));
  const second = await trainRun({ config, stream, resume: isLong }).catch((error: Error) => error.message);
  const { status, step, resumedFrom, steps, checkpoint } = await running;
  const files = await openOriginFiles(out);
  const read = async (name: string) => new TextDecoder().decode(await files.read(name));
  const metrics = (await read("metrics.jsonl"))
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  return {
    violations,
    status,
    step,
    resumedFrom,
    losses: steps.map(({ loss }) => loss),
    second,
    names: await files.names(),
    recorded: metrics.filter((record) => "loss" in record).map((record) => record.step),
    checkpoint: await (await openOriginFiles(checkpoint)).names(),
    report: (await read("report.html")).slice(0, 15),
    notes: notes.join(""),
  };
}

/** A run that is left and taken up again from the page's own files. */
async function checkpoints(): Promise<Record<string, unknown>> {
  const mesh = Mesh.create({ data: 2 });
  const sharded = (w: Tensor) => devicePut(w, new NamedSharding(mesh, P("data")));
  const kept = checkpointsIn(await openOriginFiles("runs/checkpoints"));
  for (const step of [1, 2]) await kept.save(step, { w: await sharded(np.full([4], step)) }, { step });
  const again = checkpointsIn(await openOriginFiles("runs/checkpoints"));
  const found = await again.restore({ w: await sharded(np.zeros([4])) });
  await again.remove(1);
  return { steps: await again.steps(), metadata: found?.metadata, w: await found?.values.w.js() };
}

Object.assign(globalThis, {
  checkpoints,
  onWebGpu,
  abortRun,
  closeWhileCompiling,
  compileDeep,
  engineInfo,
  firstCall,
  files,
  limits,
  roundTrip,
  startCompiling,
  startForever,
  textsBehind,
  train,
  trainFrom,
  trainInFolder,
  values,
  whileBusy,
  withoutMesh,
});
