/**
 * Training steps by schedules against the same model without a pipeline. `SCHEDULES=all` (`npm run test:schedules`)
 * tries every schedule with 2, 4 and 8 stages, every number of microbatches from p to 4p, and 1, 2 and 3 chunks.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { agreement, expectTreeClose } from "../../../test/support/goldens.js";
import {
  chunksOf,
  inTurn,
  model,
  modelSizes,
  type StepCase,
  stepArguments,
  stepOf,
} from "../../../test/support/pipelinedModel.js";
import { randomNumbers, randomSchedule } from "../../../test/support/randomSchedule.js";
import { compileProgram } from "../../compiler/compile.js";
import { forEachStep } from "../../compiler/stepTree.js";
import { createThreadsEngine, simulateDevices, type ThreadsEngine } from "../../engines/index.js";
import {
  jit,
  lax,
  Mesh,
  makeProgram,
  NamedSharding,
  np,
  P,
  remat,
  shardMap,
  type Tensor,
  withShardingConstraint,
} from "../../index.js";
import { forEachEqn } from "../../ir/program.js";
import { range } from "../../ir/shape.js";
import { partitionCall } from "../../spmd/run/call.js";
import { checkSchedule, most } from "./check.js";
import { makeSchedule, type ScheduleName, scheduleNames } from "./makers.js";
import type { PipelineSchedule } from "./schedule.js";
import { neighbours, type SlotTable, slotTable } from "./slots.js";
import { pipelineTrainStep, placeParts } from "./trainStep.js";

const { width, hidden, rows } = modelSizes;

interface Case extends StepCase {
  /** How many devices split the rows. */
  readonly ways?: number;
}

async function expectSameGradients(schedule: PipelineSchedule, mesh: Mesh, given: Case = {}): Promise<void> {
  const args = stepArguments(schedule, given.ways);
  const got = jit(stepOf(schedule, mesh, given), { mesh })(...args);
  // On the same engine: a tanh that is a few units off in its last place shows in the gradients of many layers.
  const alone = Mesh.create({ whole: 1 }, { engine: mesh.engine });
  await expectTreeClose(got, jit(inTurn, { mesh: alone })(...args), agreement.gradient);
}

const all = process.env.SCHEDULES === "all";
const cases = (all ? [2, 4, 8] : [2]).flatMap((numStages) =>
  (all ? range(3 * numStages + 1).map((i) => numStages + i) : [2 * numStages]).flatMap((numMicrobatches) =>
    scheduleNames.flatMap((name) => {
      const chunks = Object.keys(chunksOf(name, 1)).length === 0 ? [1] : all ? [1, 2, 3] : [2];
      return chunks.map((numChunks) =>
        makeSchedule(name, { numStages, numMicrobatches, ...chunksOf(name, numChunks) }),
      );
    }),
  ),
);

const meshOf = (numStages: number) =>
  Mesh.create({ pipe: numStages }, { engine: simulateDevices(numStages) });

describe("loss and gradients are those of the model without a pipeline", () => {
  test.each(cases)(
    "by $name with $numMicrobatches microbatches and $numChunks chunks",
    { timeout: 300_000 },
    async (schedule) => expectSameGradients(schedule, meshOf(schedule.stages.length)),
  );

  test("by random schedules", { timeout: 600_000 }, async () => {
    for (const seed of range(all ? 60 : 2)) {
      const random = randomNumbers(seed + 1);
      const numStages = all ? 2 + Math.floor(random() * 3) : 2;
      const placement = seed % 2 === 0 ? ("loop" as const) : ("v" as const);
      const layout = { numStages, numChunks: placement === "v" ? 2 : 1 + (seed % 3), placement };
      await expectSameGradients(randomSchedule(layout, 3, random), meshOf(numStages));
    }
  });

  test("with messages that travel while the next action is computed", async () => {
    for (const name of ["1f1b", "zb-v"] as const) {
      const schedule = makeSchedule(name, { numStages: 3, numMicrobatches: 4 });
      await expectSameGradients(schedule, meshOf(3), { options: { overlapSends: true } });
    }
  });

  test("beside data and tensor parallelism, with recomputation", async () => {
    const mesh = Mesh.create({ data: 2, pipe: 2, model: 2 }, { engine: simulateDevices(8) });
    const split = (x: Tensor) => withShardingConstraint(x, new NamedSharding(mesh, P(null, "model")));
    const functions = {
      ...model,
      stage: remat(
        (w: { up: Tensor; down: Tensor }, x: Tensor) =>
          lax.scan(
            (h: Tensor, own: { up: Tensor; down: Tensor }): [Tensor, null] => [
              h.add(np.matmul(split(np.tanh(np.matmul(h, own.up))), own.down)),
              null,
            ],
            x,
            w,
          )[0],
      ),
    };
    const schedule = makeSchedule("zb-h1", { numStages: 2, numMicrobatches: 4 });
    await expectSameGradients(schedule, mesh, { functions, options: { batchAxes: ["data"] }, ways: 2 });
  });
});

describe("on worker threads", () => {
  let engine: ThreadsEngine | undefined;
  beforeAll(() => {
    engine = createThreadsEngine({ numDevices: 4 });
  });
  afterAll(() => engine?.close());

  test.each([
    ["1f1b", 2],
    ["dualpipev", 2],
    ["interleaved", 2],
    ["1f1b", 4],
    ["zb-h1", 4],
  ] as const)("%s gives the same gradients on %d stages", async (name, numStages) => {
    if (!engine) throw new Error("the engine is not open");
    const sizes = { numStages, numMicrobatches: numStages + 3, ...chunksOf(name, 2) };
    await expectSameGradients(makeSchedule(name, sizes), Mesh.create({ pipe: numStages }, { engine }));
  });

  test("what goes along a line arrives as it was sent, though who sends runs ahead", async () => {
    const mesh = Mesh.create({ pipe: 2 }, { engine: engine ?? simulateDevices(2) });
    const [numMessages, size] = [7, 300];
    const body = (x: Tensor) => {
      const slow = (y: Tensor) => np.tanh(np.matmul(y, y)).mul(0);
      const send = (sum: Tensor, i: Tensor): [Tensor, Tensor] => {
        const own = x.add(i.astype("float32"));
        const there = lax.ppermute(own, "pipe", [[0, 1]]);
        // Only who reads has something to do, so that messages wait for it.
        const busy = lax.cond(lax.axisIndex("pipe").eq(1), slow, np.zerosLike, there);
        return [sum.add(there).add(busy), np.max(there)];
      };
      return lax.scan(send, np.zerosLike(x), np.arange(numMessages))[1];
    };
    const mapped = shardMap(body, { mesh, inSpecs: P(), outSpecs: P("pipe"), checkReplication: false });
    const got = await jit(mapped, { mesh })(np.ones([size, size])).data();
    const zeros = range(numMessages).map(() => 0);
    expect([...got]).toEqual([...zeros, ...range(numMessages).map((i) => i + 1)]);
  });
});

describe("messages", () => {
  const numbers = randomNumbers(7);
  const schedules = [
    ...cases,
    ...[3, 4].flatMap((numStages) =>
      scheduleNames.map((name) =>
        makeSchedule(name, { numStages, numMicrobatches: 2 * numStages, ...chunksOf(name, 2) }),
      ),
    ),
    randomSchedule({ numStages: 3, numChunks: 2, placement: "v" }, 4, numbers),
    randomSchedule({ numStages: 3, numChunks: 3, placement: "loop" }, 4, numbers),
  ];

  /** The messages between neighbours, with the slot after which they are handed over. */
  const handedOver = (table: SlotTable) =>
    table.links.flatMap(({ right, exchanges, bySlot }) =>
      bySlot.flatMap((number, slot) =>
        (exchanges[number - 1] ?? []).map(([from, to]) => {
          const way = to === right ? ("fromLeft" as const) : ("fromRight" as const);
          return { slot, from, to, way };
        }),
      ),
    );

  test("travel only after slots that have one for a neighbour", () => {
    for (const schedule of schedules) {
      const table = slotTable(schedule, false);
      const expected = table.slots.flatMap((row, slot) =>
        row.flatMap((cell, to) =>
          neighbours.filter((way) => cell[way] >= 0).map((way) => `${slot} ${to} ${way}`),
        ),
      );
      const got = handedOver(table).map(({ slot, to, way }) => `${slot} ${to} ${way}`);
      expect(got.sort(), schedule.name).toEqual(expected.sort());
      for (const { exchanges, bySlot } of table.links)
        expect(new Set(bySlot.filter((number) => number > 0)).size).toBe(exchanges.length);
    }
  });

  test("are handed over right before they are read, or before their sender's next action but for weight gradients", () => {
    for (const schedule of schedules) {
      const table = slotTable(schedule, false);
      const actionOf = (slot: number, stage: number) => {
        const cell = table.slots[slot]?.[stage];
        return { cell, branch: cell && table.branches[cell.branch - 1] };
      };
      const isUrgent = (slot: number, stage: number) => (actionOf(slot, stage).branch?.kind ?? "W") !== "W";
      for (const { slot, from, to, way } of handedOver(table)) {
        const stored = table.slots[slot]?.[to]?.[way];
        const { cell, branch } = actionOf(slot + 1, to);
        const isRead = branch !== undefined && branch.kind !== "W" && cell?.arrived === stored;
        expect(isRead || isUrgent(slot + 1, from), `${schedule.name}, slot ${slot}, ${from} to ${to}`).toBe(
          true,
        );
      }
    }
  });

  test("go both ways between two stages at once only where both have one", () => {
    const { links } = slotTable(makeSchedule("zb-h1", { numStages: 2, numMicrobatches: 2 }), false);
    expect(links).toEqual([
      {
        left: 0,
        right: 1,
        exchanges: [
          [[0, 1]],
          [
            [0, 1],
            [1, 0],
          ],
          [[1, 0]],
        ],
        bySlot: [1, 0, 2, 0, 3, 0, 0],
      },
    ]);
  });
});

/** By shape without its first dim, how many rows the buffers have that a step carries from slot to slot. */
function carriedRows(schedule: PipelineSchedule): Map<string, number> {
  const step = stepOf(schedule, meshOf(schedule.stages.length));
  const program = makeProgram(step)(...stepArguments(schedule));
  const found = new Map<string, number>();
  forEachEqn(program, (eqn) => {
    if (eqn.op !== "scan" || !eqn.params.body.eqns.some(({ op }) => op === "cond")) return;
    for (const { type } of eqn.params.body.inputs.slice(eqn.params.numConsts)) {
      const [count = 0, ...rest] = type.shape;
      if (rest.length > 0) found.set(`${rest}`, Math.max(count, found.get(`${rest}`) ?? 0));
    }
  });
  return found;
}

/** What the compiler makes of a step on two stages. */
function compiled(name: ScheduleName, numMicrobatches: number) {
  const schedule = makeSchedule(name, { numStages: 2, numMicrobatches, ...chunksOf(name, 2) });
  const mesh = meshOf(2);
  const { program } = partitionCall(stepOf(schedule, mesh), stepArguments(schedule), { mesh });
  return compileProgram(program, { mesh });
}

/** The bytes that a device needs for the intermediate values of a step, as the compiler plans them. */
const plannedBytes = (name: ScheduleName, numMicrobatches: number) =>
  compiled(name, numMicrobatches).arenaBytes;

describe("memory", () => {
  const sized = all
    ? cases
    : scheduleNames.flatMap((name) =>
        (name === "zb-v" || name === "1f1b" ? [2, 4] : [2]).map((numStages) =>
          makeSchedule(name, { numStages, numMicrobatches: 2 * numStages + 1, ...chunksOf(name, 2) }),
        ),
      );

  test("is kept for as many activations as the check counts", { timeout: 3_000_000 }, () => {
    for (const schedule of sized) {
      const { activations, postponed } = checkSchedule(schedule);
      const carried = carriedRows(schedule);
      // What the second half reads of the forward pass: the layers' inputs and hidden values.
      expect(carried.get(`2,${rows},${hidden}`), schedule.name).toBe(most(activations));
      expect(most(postponed)).toBeLessThanOrEqual(most(activations));
    }
  });

  test("is used by every stage for as many activations as the check counts there", () => {
    for (const schedule of sized) {
      const { activations } = checkSchedule(schedule);
      const { slots, branches } = slotTable(schedule, false);
      const used = schedule.stages.map((_, stage) => {
        const own = slots.flatMap((cells) => cells.slice(stage, stage + 1));
        const forward = own.filter(({ branch }) => branches[branch - 1]?.kind === "F");
        return new Set(forward.map(({ kept }) => kept.stage.weight)).size;
      });
      expect(used, `${schedule.name} with ${schedule.numMicrobatches} microbatches`).toEqual(activations);
    }
  });

  test("is kept for weight gradients only where these are actions of their own", () => {
    const postponed = (name: ScheduleName, overlap: boolean) =>
      slotTable(makeSchedule(name, { numStages: 2, numMicrobatches: 4 }), overlap).rows.stage.postponed;
    expect(postponed("1f1b", false)).toBe(0);
    expect(postponed("zb-h1", false)).toBeGreaterThan(0);
    // All stages end a slot together, so that a backward pass is two halves.
    expect(postponed("1f1b", true)).toBe(1);
  });

  test("is never copied as a whole", () => {
    const name = "breadth-first";
    const sizes = { numStages: 2, numMicrobatches: 6, ...chunksOf(name, 2) };
    const { numArrived } = slotTable(makeSchedule(name, sizes), false);
    const stream = rows * width * 4;
    const largest = Math.max(stream, 2 * rows * hidden * 4);
    expect(numArrived * stream, "larger than a row of anything").toBeGreaterThan(largest);
    const { steps } = compiled(name, 6);
    forEachStep(steps, (outer) => {
      if (outer.op !== "loop" || !outer.body.some(({ op }) => op === "cond")) return;
      forEachStep(outer.body, (step) => {
        if (step.op === "copy") expect(step.bytes).toBeLessThanOrEqual(largest);
      });
    });
  });

  test("does not grow with the number of microbatches by 1F1B, as it does by GPipe", () => {
    // The table of slots grows, by some numbers for every slot.
    const table = (m: number) => 64 * (4 * m + 2);
    for (const m of [4, 8]) {
      const grown = (name: ScheduleName) => plannedBytes(name, 2 * m) - plannedBytes(name, m);
      expect(grown("1f1b")).toBeLessThan(table(2 * m));
      // Two layers of inputs and hidden values of every further microbatch.
      expect(grown("gpipe")).toBeGreaterThan(m * 2 * rows * (width + hidden) * 4);
    }
  });
});

describe("what does not fit is refused", () => {
  const schedule = makeSchedule("1f1b", { numStages: 2, numMicrobatches: 4 });
  const mesh = meshOf(2);
  const [inOrder, x, y] = stepArguments(schedule);
  const weights = { ...inOrder, stages: placeParts(schedule, inOrder.stages) };

  test("a mesh of another size, and axes that it does not have", () => {
    expect(() => pipelineTrainStep(schedule, model, { mesh: meshOf(4) })).toThrow(
      'the schedule "1f1b" has 2 stages, the mesh {pipe: 4} has 4 devices along "pipe": make the schedule with numStages 4',
    );
    expect(() => pipelineTrainStep(schedule, model, { mesh, batchAxes: ["data"] })).toThrow(
      'batchAxes names "data", which is no axis of the mesh',
    );
  });

  test("weights and rows in the wrong form", () => {
    const step = pipelineTrainStep(schedule, model, { mesh });
    expect(() => step(inOrder, x, y)).toThrow(
      'the weights of the stages at "down" are [2,2,6,4], but "1f1b" has 1 chunks on 2 stages: give [1,2,…]',
    );
    expect(() => step(weights, np.zeros([6, 3]), y)).toThrow(
      "the 6 rows of the inputs do not split into 4 microbatches (6 / 4 = 1.50): use a multiple of 4",
    );
  });

  test("stages that change the stream, and losses that are not numbers", () => {
    const narrow = { ...model, stage: (_: unknown, h: Tensor) => lax.sliceInDim(h, 0, 2, 1, 1) };
    expect(() => pipelineTrainStep(schedule, narrow, { mesh })(weights, x, y)).toThrow(
      "[pipelineTrainStep] the stage turns f32[2,4] into f32[2,2]",
    );
    const vector = { ...model, last: (w: { head: Tensor }, h: Tensor) => np.matmul(h, w.head) };
    expect(() => pipelineTrainStep(schedule, vector, { mesh })(weights, x, y)).toThrow(
      "last must return one float, the mean loss of the microbatch, it returned f32[2,2]",
    );
  });
});
