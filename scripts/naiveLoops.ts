/**
 * Runs loops as a new user writes them, without `dispose` or `donate`, for `TURNS` (20 000) turns each, and fails
 * when resident or device memory grows: `npm run soak:loops`, or some of them by a word of their names.
 */
import { createThreadsEngine } from "../src/engines/index.js";
import { Mesh } from "../src/index.js";
import { naiveLoops } from "../test/support/naiveLoops.js";

const numTurns = Number(process.env.TURNS ?? 20_000);
const words = process.argv.slice(2);
const MiB = 1024 * 1024;
const engine = createThreadsEngine({ numDevices: 1, memoryBytes: 256 * MiB });
const mesh = Mesh.create({ data: 1 }, { engine });
let failed = false;

for (const [name, loop] of Object.entries(naiveLoops)) {
  if (words.length > 0 && !words.some((word) => name.includes(word))) continue;
  const samples: number[] = [];
  let mostOnDevice = 0;
  const begin = performance.now();
  const turn = (i: number): void => {
    mostOnDevice = Math.max(mostOnDevice, engine.memoryUsage(0).used);
    if ((i + 1) % Math.ceil(numTurns / 20) !== 0) return;
    samples.push(process.memoryUsage().rss);
    process.stderr.write(
      `\r${name}: ${i + 1} of ${numTurns}, rss ${(process.memoryUsage().rss / MiB).toFixed(0)} MiB `,
    );
  };
  await loop({ mesh, numTurns, elements: MiB / 4, turn });
  const perTurn = (performance.now() - begin) / numTurns;
  // The first quarter is for warming up: compiled code, the collector's own sizes.
  const warm = Math.max(...samples.slice(0, samples.length / 4));
  const later = Math.max(...samples.slice(samples.length / 4));
  const grows = later > warm + 32 * MiB;
  failed ||= grows;
  process.stderr.write("\r");
  process.stdout.write(
    `${name}: ${numTurns} turns of ${perTurn.toFixed(2)} ms, rss ${(warm / MiB).toFixed(0)} → ${(later / MiB).toFixed(0)} MiB, ` +
      `device at most ${(mostOnDevice / MiB).toFixed(0)} of 256 MiB${grows ? ": memory grows" : ""}\n`,
  );
}
await engine.close();
process.exitCode = failed ? 1 : 0;
