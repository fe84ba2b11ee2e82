import { Mesh, NamedSharding, P, Tensor } from "shardwise";
import { expect, test } from "vitest";
import { openProcesses } from "../../../test/support/processes.js";
import { tinyConfig } from "../../../test/support/runs.js";
import { range } from "../../ir/shape.js";
import { type TokenSource, tokensInMemory } from "../data/tokens/tokens.js";
import { batchPart, openRunBatches, type RunBatch } from "./runBatches.js";

function tensorOf({ tokens }: RunBatch): Tensor {
  if (tokens instanceof Tensor) return tokens;
  throw new Error("the batch has documents");
}

const batchSpec = P(["data", "fsdp"]);

/** The parts that four processes of one device each read of every batch. */
const partsOn = (axes: Readonly<Record<string, number>>, devices?: readonly number[]) =>
  openProcesses(4, 1).map((engine) => {
    const mesh = Mesh.create({ data: 1, fsdp: 1, ...axes }, { engine, ...(devices ? { devices } : {}) });
    const { rank, numRanks } = batchPart(new NamedSharding(mesh, batchSpec));
    return `${rank} of ${numRanks}`;
  });

test("a process reads the rows that its devices need", () => {
  expect(partsOn({ data: 4 })).toEqual(["0 of 4", "1 of 4", "2 of 4", "3 of 4"]);
  expect(partsOn({ data: 2, fsdp: 2 })).toEqual(["0 of 4", "1 of 4", "2 of 4", "3 of 4"]);
  // Stages of a pipeline and devices of axis model need the rows of all others along the axis.
  expect(partsOn({ data: 2, model: 2 })).toEqual(["0 of 2", "0 of 2", "1 of 2", "1 of 2"]);
  expect(partsOn({ pipe: 4 })).toEqual(["0 of 1", "0 of 1", "0 of 1", "0 of 1"]);
  expect(partsOn({ data: 4 }, [3, 2, 1, 0])).toEqual(["3 of 4", "2 of 4", "1 of 4", "0 of 4"]);
});

test("rows that are no neighbours are read as a whole batch", () => {
  const [engine] = openProcesses(2, 2);
  if (engine === undefined) throw new Error("no engine");
  const mesh = Mesh.create({ data: 4, fsdp: 1 }, { engine, devices: [0, 2, 1, 3] });
  expect(batchPart(new NamedSharding(mesh, batchSpec))).toEqual({ rank: 0, numRanks: 1 });
});

test("two processes read every row of a batch once, and together it is the batch of one", async () => {
  const config = tinyConfig("/nowhere", { "mesh.data": 2, "data.batch": 4, "data.sequence": 8 });
  const whole = tokensInMemory(
    Int32Array.from(range(400), (i) => (i * 7) % 50),
    50,
  );
  const blocks = await Promise.all(
    openProcesses(2, 1).map(async (engine) => {
      let numRead = 0;
      const counted: TokenSource = {
        ...whole,
        numTokens: whole.numTokens,
        vocabSize: whole.vocabSize,
        fingerprint: whole.fingerprint,
        read: (start, length) => {
          numRead += length;
          return whole.read(start, length);
        },
      };
      const mesh = Mesh.create({ data: 2, fsdp: 1 }, { engine });
      const training = { batchSharding: new NamedSharding(mesh, batchSpec) };
      const tokens = tensorOf(
        await openRunBatches({ sources: [counted] }, training, config, { seed: 3 }).next(),
      );
      // Two of four rows, and those of the next batch, which is read meanwhile.
      expect(numRead).toBeLessThanOrEqual(2 * 2 * 9);
      expect(tokens.shape).toEqual([4, 9]);
      const [shard] = tokens.addressableShards;
      return [...((await shard?.data.data()) ?? [])];
    }),
  );
  const mesh = Mesh.create({ data: 1, fsdp: 1 });
  const alone = { batchSharding: new NamedSharding(mesh, batchSpec) };
  const tokens = tensorOf(await openRunBatches({ sources: [whole] }, alone, config, { seed: 3 }).next());
  expect(blocks.flat()).toEqual([...(await tokens.data())]);
});
