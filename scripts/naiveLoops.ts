/**
 * Runs loops as a new user writes them, without `dispose` or `donate`, for `TURNS` (20 000) iterations each, and fails
 * if memory grows: `npm run soak:loops`, or some of them by a word of their names. Memory is measured after garbage
 * collection, and what counts is its slope over the second half of the iterations: that of JavaScript's own memory,
 * which is exact, and that of the process outside of JavaScript's heap, so that the heap's size, which changes in large
 * steps, does not blur it. Tensors are small compared with a megabyte for the same reason: data in transit to a device
 * varies. `LEAK=1024` leaks this many bytes per iteration, to check that leaks are detected.
 */
import { createThreadsEngine } from "../src/engines/index.js";
import { jit, Mesh, np, type Tensor, tree } from "../src/index.js";
import { reclaim } from "../src/ir/reclaim.js";
import { growthPerTurn, type Sample } from "../test/support/growth.js";
import { naiveLoops } from "../test/support/naiveLoops.js";

const numTurns = Number(process.env.TURNS ?? 20_000);
const leak = Number(process.env.LEAK ?? 0);
const words = process.argv.slice(2);
const MiB = 1024 * 1024;
/** Maximum growth per iteration of JavaScript's memory and of the process in bytes: less than a leaked kilobyte. */
const bounds = { script: 256, process: 768 } as const;
/** The memory of the device, which the tensors of one loop would fill twenty times over. */
const memoryBytes = 64 * MiB;
const elements = 16 * 1024;
const engine = createThreadsEngine({ numDevices: 1, memoryBytes });
const mesh = Mesh.create({ data: 1 }, { engine });
const kept: Buffer[] = [];
let failed = false;

// Pages of the devices' memory become physical when they are first used, up to its limit: that is not a leak.
const increment = jit((x: Tensor) => x.add(1), { mesh });
const all = Array.from({ length: 52 }, () => increment(np.zeros([MiB / 4])));
await Promise.all(all.map((tensor) => tensor.ready()));
tree.dispose(all);

for (const [name, loop] of Object.entries(naiveLoops)) {
  if (words.length > 0 && !words.some((word) => name.includes(word))) continue;
  const inScript: Sample[] = [];
  const inProcess: Sample[] = [];
  let maxOnDevice = 0;
  const begin = performance.now();
  const turn = (i: number): void => {
    maxOnDevice = Math.max(maxOnDevice, engine.memoryUsage(0).used);
    if (leak > 0) kept.push(Buffer.alloc(leak, 1));
    if ((i + 1) % Math.ceil(numTurns / 200) !== 0) return;
    reclaim();
    const { rss, heapUsed, heapTotal, external } = process.memoryUsage();
    inScript.push({ turn: i, bytes: heapUsed + external });
    inProcess.push({ turn: i, bytes: rss - heapTotal });
    // On a terminal the line is overwritten; a log gets every tenth, with the measurements so far.
    const text = `${name}: ${i + 1} of ${numTurns}, rss ${(rss / MiB).toFixed(0)} MiB`;
    if (process.stderr.isTTY) process.stderr.write(`\r${text} `);
    else if (inProcess.length % 20 === 0) process.stderr.write(`${text}\n`);
  };
  await loop({ mesh, numTurns, elements, turn });
  const perTurn = (performance.now() - begin) / numTurns;
  const growth = { script: growthPerTurn(inScript), process: growthPerTurn(inProcess) };
  const grows = growth.script > bounds.script || growth.process > bounds.process;
  failed ||= grows;
  const half = inProcess.slice(inProcess.length / 2).map(({ bytes }) => bytes / MiB);
  if (process.stderr.isTTY) process.stderr.write("\r");
  process.stdout.write(
    `${name}: ${numTurns} turns of ${perTurn.toFixed(2)} ms, in the second half ${growth.script.toFixed(0)} B of JavaScript's memory ` +
      `and ${growth.process.toFixed(0)} B outside of its heap a turn (${Math.min(...half).toFixed(0)} to ${Math.max(...half).toFixed(0)} MiB), ` +
      `device at most ${(maxOnDevice / MiB).toFixed(0)} of ${memoryBytes / MiB} MiB${grows ? ": memory grows" : ""}\n`,
  );
}
await engine.close();
process.exitCode = failed ? 1 : 0;
