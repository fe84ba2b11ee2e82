// Bundles typical imports of the built package with Vite, and fails if one has grown, lacks a part it needs, or contains
// one it does not. Lower a limit when something was saved; never raise one without a reason in the commit.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "vite";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Parts of the package by what their paths begin with. */
const workers = "engines/workers/";
const partitioner = "spmd/partition/partition.js";
const gradients = "transforms/derivatives/vjpRules.js";

/** What none of the programs below uses. */
const unused = ["engines/mpi/", "engines/xla/", "parallel/", "scipy/", "train/run/", "numpy/fft/fft.js"];

/** Programs by what they import, the kilobytes that each may take, and what each uses and does not use. */
const programs = [
  {
    name: "np, grad and jit",
    limit: 150,
    code: 'import { grad, jit, np } from "shardwise"; globalThis.f = jit(grad((x) => np.sum(np.tanh(np.matmul(x, x)))));',
    has: ["engines/inline/", gradients, "numpy/elementwise/elementwise.js"],
    lacks: [workers, partitioner, "nn/", "optim/", "transforms/batching/vmap.js"],
  },
  {
    name: "a mesh and a shard map",
    limit: 213,
    code: 'import { lax, Mesh, np, P, shardMap } from "shardwise"; globalThis.f = [Mesh.create, shardMap, lax.psum, np.sum, P];',
    has: [workers, partitioner, "spmd/run/shardMap.js"],
    // A GPU's compiler comes with the GPU, and the workers that compile and that run all devices when they are needed.
    lacks: [
      gradients,
      "nn/",
      "optim/",
      "compiler/wgsl/",
      "engines/webgpu/gpu",
      "engines/oneThread/worker",
      "spmd/mesh/compileWorker",
    ],
  },
  {
    name: "modules and an optimiser",
    limit: 165.5,
    code: 'import { grad, jit, np } from "shardwise"; import * as nn from "shardwise/nn"; import { adamw } from "shardwise/optim"; globalThis.f = [jit, grad, np.mean, nn.Dense, nn.LayerNorm, adamw];',
    has: ["nn/", "optim/", gradients],
    lacks: [workers, partitioner, "nn/layers/conv.js", "transforms/batching/vmap.js"],
  },
];

/** The chunks that a program loads at its start, as Vite makes them. */
async function bundle(folder, code) {
  const input = join(folder, "program.js");
  writeFileSync(input, code);
  const { output } = await build({
    root: folder,
    configFile: false,
    logLevel: "error",
    build: { write: false, target: "es2022", rollupOptions: { input } },
  });
  const chunks = new Map(
    output.filter(({ type }) => type === "chunk").map((chunk) => [chunk.fileName, chunk]),
  );
  const loaded = new Set([...chunks.values()].filter(({ isEntry }) => isEntry));
  for (const { imports } of loaded) for (const name of imports) loaded.add(chunks.get(name));
  return [...loaded];
}

/** The files of the package that have code in a bundle. */
function filesIn(chunks) {
  const modules = chunks.flatMap((chunk) => Object.entries(chunk.modules));
  const used = modules.filter(([, { renderedLength }]) => renderedLength > 0);
  return used.map(([path]) => path.replace(/^.*?\/dist\//, ""));
}

const folder = mkdtempSync(join(tmpdir(), "shardwise-size-"));
try {
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(root, join(folder, "node_modules", "shardwise"), "junction");
  for (const { name, limit, code, has, lacks } of programs) {
    const chunks = await bundle(folder, code);
    const bytes = chunks.reduce((sum, chunk) => sum + gzipSync(chunk.code, { level: 9 }).length, 0);
    const files = filesIn(chunks);
    const isIn = (part) => files.some((file) => file.startsWith(part));
    const wrong = [
      ...(bytes > 1000 * limit ? [`at most ${limit} kB`] : []),
      ...has.filter((part) => !isIn(part)).map((part) => `${part} is missing`),
      ...[...unused, ...lacks].filter(isIn).map((part) => `${part} is not used and yet in it`),
    ];
    console.log(
      `${name}: ${(bytes / 1000).toFixed(1)} kB compressed${wrong.map((text) => `; ${text}`).join("")}`,
    );
    if (wrong.length > 0) process.exitCode = 1;
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
