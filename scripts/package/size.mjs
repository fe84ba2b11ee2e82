// Measures the compressed size of typical imports of the built package, as Vite bundles them, and fails if one
// has grown. Lower a limit when something was saved; never raise one without a reason in the commit.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "vite";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Programs by what they import, and the kilobytes that each may take. */
const programs = [
  {
    name: "np, grad and jit",
    limit: 164,
    code: 'import { grad, jit, np } from "shardwise"; globalThis.f = jit(grad((x) => np.sum(np.tanh(np.matmul(x, x)))));',
  },
  {
    name: "a mesh and a shard map",
    limit: 173,
    code: 'import { lax, Mesh, np, P, shardMap } from "shardwise"; globalThis.f = [Mesh.create, shardMap, lax.psum, np.sum, P];',
  },
  {
    name: "modules and an optimiser",
    limit: 180,
    code: 'import { grad, jit, np } from "shardwise"; import * as nn from "shardwise/nn"; import { adamw } from "shardwise/optim"; globalThis.f = [jit, grad, np.mean, nn.Dense, nn.LayerNorm, adamw];',
  },
];

const folder = mkdtempSync(join(tmpdir(), "shardwise-size-"));
try {
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(root, join(folder, "node_modules", "shardwise"), "junction");
  for (const [i, { name, limit, code }] of programs.entries()) {
    const input = join(folder, `program${i}.js`);
    writeFileSync(input, code);
    const { output } = await build({
      root: folder,
      configFile: false,
      logLevel: "error",
      build: { write: false, target: "es2022", rollupOptions: { input } },
    });
    const kilobytes =
      output.reduce((sum, chunk) => sum + gzipSync(chunk.code ?? "", { level: 9 }).length, 0) / 1000;
    console.log(`${name}: ${kilobytes.toFixed(0)} kB compressed, at most ${limit}`);
    if (kilobytes > limit) process.exitCode = 1;
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
