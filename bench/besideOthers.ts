/**
 * The same work in other libraries on the same GPU, each after the other, where they are installed
 * (`npm install --prefix bench`). Runs follow each other; a time ends when a value of the last one has been read.
 */
import { devicePut, jit, type Mesh, NamedSharding, np, P, random, Tensor, tree } from "shardwise";
import {
  type DecoderSize,
  initDecoder,
  initState,
  loss,
  makeStep,
  makeTokens,
  type TrainState,
} from "./decoder.js";
import { announce, best, type Report, type Row } from "./measure.js";
import { type HostWeight, type OtherDecoder, type OtherLibrary, otherLibrariesOnGpu } from "./others.mjs";

const REPEATS = 10;

/** Opens the other libraries on the GPU. @param numRows of large inputs */
export async function openOthers(numRows: number, numColumns: number): Promise<Others> {
  const name = "webgpu";
  const dawn: unknown = await import(name).catch(() => undefined);
  if (!isDawn(dawn)) return { libraries: [], square: [numRows, numColumns] };
  const gpu = dawn.create(["enable-dawn-features=disable_robustness"]);
  const libraries = await otherLibrariesOnGpu(gpu, dawn.globals, numRows, numColumns, REPEATS);
  return { libraries, square: [numRows, numColumns] };
}

interface Others {
  readonly libraries: readonly OtherLibrary[];
  /** The shape of large inputs. */
  readonly square: readonly number[];
}

interface Dawn {
  create(flags: readonly string[]): object;
  readonly globals: object;
}

function isDawn(found: unknown): found is Dawn {
  return typeof found === "object" && found !== null && "create" in found && "globals" in found;
}

interface Work {
  readonly name: string;
  readonly inputs: number;
  readonly run: (...inputs: Tensor[]) => unknown;
}

/** Products and kernels. */
export async function worksBesideOthers(
  mesh: Mesh,
  works: readonly Work[],
  { libraries, square }: Others,
): Promise<Report> {
  if (libraries.length === 0) return {};
  const there = new NamedSharding(mesh, P());
  const matmuls = [512, 1024, 2048, 4096, 8192].map((n) => ({
    name: `matmul ${n}`,
    shapes: [0, 1].map(() => [n, n]),
    run: (...[a, b]: Tensor[]) => np.matmul(a ?? 0, b ?? 0),
  }));
  const same = works
    .filter(({ name }) => ["tanh-gelu", "softmax", "layer norm", "AdamW update"].includes(name))
    .map(({ name, inputs, run }) => ({ name, shapes: Array.from({ length: inputs }, () => square), run }));
  const rows: Row[] = [];
  for (const { name, shapes, run } of [...matmuls, ...same]) {
    const inputs = await Promise.all(
      shapes.map((shape, i) => devicePut(random.uniform(random.key(i), shape), there)),
    );
    const compiled = jit((...xs: Tensor[]) => run(...xs), { mesh, name });
    const sum = jit((x: Tensor) => np.sum(x), { mesh, name: "read back" });
    const once = () => tree.leaves(compiled(...inputs)).filter((leaf) => leaf instanceof Tensor);
    const total = await best(async () => {
      for (let i = 1; i < REPEATS; i++) for (const result of once()) result.dispose();
      const results = once();
      if (results[0]) await sum(results[0]).data();
      for (const result of results) result.dispose();
    });
    const row: Record<string, string | number> = { work: name, "ours ms": total / REPEATS };
    for (const other of libraries) row[`${other.name} ms`] = (await other.time(name, 500)) ?? "none";
    for (const x of inputs) x.dispose();
    rows.push(announce(row));
  }
  return { "Beside other libraries on the same GPU, results read back": rows };
}

/** Training steps of decoders, all from the same weights; their losses after a few steps show that all do the same. */
export async function decodersBesideOthers(
  mesh: Mesh,
  sizes: readonly DecoderSize[],
  { libraries }: Others,
): Promise<Report> {
  if (libraries.length === 0) return {};
  const rows: Row[] = [];
  for (const size of sizes) {
    const params = initDecoder(size);
    const { embed, layers, norm, head } = params;
    const ordered = layers.flatMap((layer) => [
      ...[layer.norm1, layer.qkv, layer.out],
      ...[layer.norm2, layer.up, layer.down],
    ]);
    const weights = await Promise.all([embed, ...ordered, norm, head].map(toHost));
    const tokens = Int32Array.from(await makeTokens(size).data(), Number);
    const ours = await timeSteps(await ourDecoder(mesh, size));
    rows.push(announce({ model: size.name, library: "ours", ...ours, "times ours": 1 }));
    for (const { name, decoder } of libraries) {
      try {
        const theirs = await timeSteps(decoder(size, weights, tokens));
        const times = theirs["step ms"] / ours["step ms"];
        rows.push(announce({ model: size.name, library: name, ...theirs, "times ours": times }));
      } catch (error) {
        console.error(`${name} cannot train ${size.name}: ${error}`);
      }
    }
  }
  return { "One AdamW step of a decoder beside other libraries on the same GPU": rows };
}

async function timeSteps(decoder: OtherDecoder) {
  for (let i = 0; i < 3; i++) decoder.step();
  const loss = await decoder.loss();
  const total = await best(async () => {
    for (let i = 0; i < REPEATS; i++) decoder.step();
    await decoder.read();
  });
  decoder.dispose();
  return { "step ms": total / REPEATS, "loss after 3 steps": loss };
}

async function ourDecoder(mesh: Mesh, size: DecoderSize): Promise<OtherDecoder> {
  const there = new NamedSharding(mesh, P());
  let state: TrainState = await devicePut(initState(initDecoder(size)), there);
  const tokens = await devicePut(makeTokens(size), there);
  const step = makeStep(size);
  return {
    step() {
      state = step(state, tokens);
    },
    read: () => state.params.norm.data(),
    loss: async () => Number(await loss(state.params, tokens, size).item()),
    dispose: () => tree.map((x: Tensor) => x.dispose(), [state, tokens]),
  };
}

async function toHost(weight: Tensor): Promise<HostWeight> {
  return { shape: weight.shape, data: Float32Array.from(await weight.data(), Number) };
}
