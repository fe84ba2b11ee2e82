/**
 * A training step on every mesh of eight devices is that of one device, on every engine: runs
 * `src/train/step/everyMesh.test.ts` mesh by mesh, in processes of their own.
 *
 *   npm run test:everyMesh [-- --engine reference,threads,mpi,xla] [--devices 2,4,8] [--mesh "data=2 model=4"] [--processes 2]
 *
 * Without `--engine` it takes all that this machine has: `mpi` needs a launcher, and `xla`, simulated devices of jaxlib,
 * a Python that `SHARDWISE_PYTHON` names. `--processes` is for `mpi`.
 */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type Ended, ended, findLaunchers, launch, noLauncher } from "../support/launchers.js";
import { meshesOf, meshName } from "../support/meshes.js";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** A mesh may take this long on a machine with fewer cores than processes. */
const LIMIT_MS = 900_000;

const imports = ["../../scripts/typescript.mjs", "../mpi/hooks.mjs"].flatMap((file) => [
  "--import",
  here(file),
]);
const files = [here("../mpi/suite.ts"), here("../../src/train/step/everyMesh.test.ts")];

const { values } = parseArgs({
  options: {
    engine: { type: "string" },
    devices: { type: "string", default: "8" },
    mesh: { type: "string" },
    processes: { type: "string", default: "2" },
  },
});
const [launcher] = findLaunchers();

/** Runs the test of one mesh. */
type Runner = (mesh: string) => Promise<Ended>;

function inOneProcess(engine: string): Runner {
  return (mesh) => {
    const env = { ...process.env, MESH: mesh, SHARDWISE_ENGINE: engine };
    return ended(spawn(process.execPath, [...imports, ...files], { env }), LIMIT_MS);
  };
}

const runners: Readonly<Record<string, Runner>> = {
  reference: inOneProcess("reference"),
  threads: inOneProcess("threads"),
  mpi: (mesh) => {
    if (!launcher) throw new Error(noLauncher);
    const env = { MESH: mesh, SHARDWISE_ENGINE: here("../mpi/wholeEngine.ts"), SHARDWISE_FLIGHT: "" };
    return ended(launch(launcher, Number(values.processes), [...imports, ...files], env), LIMIT_MS);
  },
  xla: inOneProcess(here("../stablehlo/jaxEngine.ts")),
};
const present = [
  "reference",
  "threads",
  ...(launcher ? ["mpi"] : []),
  ...(process.env.SHARDWISE_PYTHON ? ["xla"] : []),
];

let [passed, failed] = [0, 0];
const sizes = values.devices.split(",").map(Number);
const known = sizes.flatMap((size) => meshesOf(size).map(meshName));
const meshes = values.mesh ? [values.mesh] : known;
if (values.mesh && !known.includes(values.mesh)) {
  throw new Error(`no mesh "${values.mesh}" of ${values.devices} devices: use one of\n${known.join("\n")}`);
}
for (const engine of values.engine?.split(",") ?? present) {
  const run = runners[engine];
  if (!run) throw new Error(`unknown engine: ${engine} (use ${Object.keys(runners).join(", ")})`);
  for (const mesh of meshes) {
    const { code, out, err, milliseconds } = await run(mesh);
    // The other test of the file counts the meshes: one that passes alone says that there is no such mesh.
    const isGood = code === 0 && /^2 passed, 0 failed$/m.test(out);
    if (isGood) passed++;
    else failed++;
    console.log(`${engine}, ${mesh}: ${isGood ? "passed" : "FAILED"} (${Math.round(milliseconds / 1000)} s)`);
    if (!isGood) console.log(`${out}${err}`);
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
