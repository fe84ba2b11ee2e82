/** Random schedules that can run: the actions of all stages in some order in which everything is there when it is read. */
import { at, range } from "../../src/ir/shape.js";
import type {
  PipelineAction,
  PipelineLayout,
  PipelineSchedule,
} from "../../src/parallel/schedule/schedule.js";
import { needsOf } from "../../src/parallel/schedule/timeline.js";

/** Numbers from 0 up to 1 that a seed decides. */
export function randomNumbers(seed: number): () => number {
  let state = (seed * 2654435761 + 1) >>> 0;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 2 ** 32;
  };
}

/** A random schedule of the given sizes; some backward passes are whole, some are split. */
export function randomSchedule(
  layout: PipelineLayout,
  numMicrobatches: number,
  random: () => number,
): PipelineSchedule {
  const open = range(layout.numStages).flatMap((stage) =>
    range(layout.numChunks).flatMap((chunk) =>
      range(numMicrobatches).flatMap((microbatch) => {
        const kinds = random() < 0.4 ? (["F", "B"] as const) : (["F", "I", "W"] as const);
        return kinds.map((kind) => ({ stage, action: { kind, chunk, microbatch } }));
      }),
    ),
  );
  const stages: PipelineAction[][] = range(layout.numStages).map(() => []);
  while (open.length > 0) {
    const ready = open.filter(({ stage, action }) =>
      needsOf(layout, stage, action).every((need) =>
        at(stages, need.stage).some(
          (done) =>
            done.chunk === need.chunk &&
            done.microbatch === need.microbatch &&
            need.kinds.includes(done.kind),
        ),
      ),
    );
    const chosen = at(ready, Math.floor(random() * ready.length));
    open.splice(open.indexOf(chosen), 1);
    at(stages, chosen.stage).push(chosen.action);
  }
  return {
    name: "random",
    numMicrobatches,
    numChunks: layout.numChunks,
    placement: layout.placement,
    stages,
  };
}
