/**
 * Training steps on meshes of eight simulated devices, compared with one device; on all meshes with
 * `SHARDWISE_ALL_MESHES=1`.
 */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Runs the tests in a process of its own, whose engine is that of jaxlib. */
export function runMeshes(print: (line: string) => void): { passed: number; failed: number } {
  const imports = ["../../scripts/typescript.mjs", "../mpi/hooks.mjs"].flatMap((file) => [
    "--import",
    here(file),
  ]);
  const files = [here("../mpi/suite.ts"), here("../../src/train/step/everyMesh.test.ts")];
  const { stdout, stderr } = spawnSync(process.execPath, [...imports, ...files], {
    encoding: "utf8",
    env: { ...process.env, SHARDWISE_ENGINE: here("jaxEngine.ts") },
  });
  const [, passed = "0", failed = "1"] = /(\d+) passed, (\d+) failed\s*$/.exec(stdout) ?? [];
  if (Number(failed) > 0) print(`${stdout}${stderr}`);
  print(`meshes: ${passed} passed, ${failed} failed`);
  return { passed: Number(passed), failed: Number(failed) };
}
