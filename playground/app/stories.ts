/** What the functions of `shardwise/parallel` do to what devices hold, moment by moment. */
import type { Frame, Held } from "./player.js";

/** A function, in a sentence, with its moments and the program that shows it. */
export interface Story {
  readonly title: string;
  readonly text: string;
  /** The file of its program, without its ending. */
  readonly program: string;
  readonly frames: readonly Frame[];
}

const size = 4;
const all = [...Array(size).keys()];
const held = (text: string, from: number): Held => ({ text, from });
const ring = all.map((d) => [d, (d + 1) % size] as const);
const pairs = all.flatMap((from) => all.filter((to) => to !== from).map((to) => [from, to] as const));
const whole = (name: string) => all.map(() => all.map((block) => held(`${name}${block}`, block)));
const only = (name: string) =>
  all.map((d) => all.map((block) => (block === d ? held(`${name}${block}`, block) : undefined)));

/** Blocks that have come round a ring after some hops. */
const arrived = (hops: number) =>
  all.map((d) =>
    all.map((place) => {
      const block = (d - place + size) % size;
      return place <= hops ? held(`x${block}`, block) : undefined;
    }),
  );

/** The partial sum on its way to block b, after some hops. */
const sums = (hops: number) =>
  all.map((d) => {
    const block = (d + size - 1 - hops + size) % size;
    const members = all.slice(0, hops + 1).map((i) => (d - hops + i + size) % size);
    return [held(`Σ${block}: ${members.join("+")}`, block)];
  });

/** Which microbatch each stage works on, the round it is in behind the dot. */
function pipelineFrames(numMicrobatches: number, rounds: number): Frame[] {
  const last = numMicrobatches * rounds + size - 1;
  return Array.from({ length: last }, (_, t) => {
    const work = all.map((stage) => {
      const item = t - stage;
      if (item < 0 || item >= numMicrobatches * rounds) return [undefined];
      const [round, micro] = [Math.floor(item / numMicrobatches), item % numMicrobatches];
      return [held(rounds > 1 ? `m${micro}, part ${round * size + stage}` : `m${micro}`, micro)];
    });
    const busy = work.filter(([cell]) => cell).length;
    return {
      caption:
        busy < size
          ? `slot ${t}: ${size - busy} of ${size} stages wait (the bubble)`
          : `slot ${t}: all stages work`,
      devices: work,
      sends:
        t < last - 1
          ? all
              .slice(0, rounds > 1 ? size : size - 1)
              .flatMap((s) => (work[s]?.[0] ? [[s, (s + 1) % size] as const] : []))
          : [],
    };
  });
}

export const stories: readonly Story[] = [
  {
    title: "shardParams",
    text: "Splits each large parameter over an axis, so that a device keeps only its part.",
    program: "shardParams",
    frames: [
      { caption: "every device has made the whole parameter", devices: whole("w") },
      { caption: "each keeps its own part and frees the others; nothing is sent", devices: only("w") },
    ],
  },
  {
    title: "gatherParams, gatherArrayWithMeanGrads",
    text: "Gathers parameters just before they are used. Gradients come back as means, one part to each device.",
    program: "gatherParams",
    frames: [
      { caption: "each device has its part", devices: only("w"), sends: pairs },
      {
        caption: "forward: all-gather; all devices have the whole parameter while they need it",
        devices: whole("w"),
      },
      {
        caption: "backward: each has a gradient of the whole parameter from its own part of the batch",
        devices: all.map((d) => all.map((b) => held(`g${b} of ${d}`, d))),
        sends: pairs,
      },
      {
        caption: "reduce-scatter: each gets the mean for its own part",
        devices: all.map((d) => all.map((b) => (b === d ? held(`mean g${b}`, b) : undefined))),
      },
    ],
  },
  {
    title: "syncGradients",
    text: "Makes gradients of replicated parameters the mean over an axis.",
    program: "syncGradients",
    frames: [
      {
        caption: "each device has the gradient of its part of the batch",
        devices: all.map((d) => [held(`g of ${d}`, d)]),
        sends: pairs,
      },
      { caption: "after that all have the mean", devices: all.map((d) => [held("mean g", d)]) },
    ],
  },
  {
    title: "foldRngOverAxis",
    text: "Gives every device along an axis a random key of its own, made from a common one.",
    program: "foldRngOverAxis",
    frames: [
      { caption: "all devices have the same key", devices: all.map(() => [held("key", 0)]) },
      {
        caption: "each has folded its place into it; nothing was sent",
        devices: all.map((d) => [held(`key + ${d}`, d)]),
      },
    ],
  },
  {
    title: "asyncGather",
    text: "Gathers blocks round a ring. A product with the block that is there hides the message that brings the next one.",
    program: "asyncGather",
    frames: all.map((hops) => ({
      caption:
        hops === 0
          ? "each device has its own block and sends it on"
          : hops < size - 1
            ? `after ${hops} ${hops === 1 ? "hop" : "hops"}: compute with what came, send it on`
            : "all blocks have come",
      devices: arrived(hops),
      sends: hops < size - 1 ? ring : [],
    })),
  },
  {
    title: "asyncScatter",
    text: "Adds up blocks round a ring: partial sums travel, and each device adds its part as they pass.",
    program: "asyncScatter",
    frames: all.map((hops) => ({
      caption:
        hops === 0
          ? "each device starts a sum with its own part"
          : hops < size - 1
            ? `after ${hops} ${hops === 1 ? "hop" : "hops"}: each adds its part to the sum that came`
            : "every sum is complete, on the device that keeps it",
      devices: sums(hops),
      sends: hops < size - 1 ? ring : [],
    })),
  },
  {
    title: "TPDense",
    text: "A dense layer whose matrix is split over an axis: one layer gathers its inputs, the next scatters its sums.",
    program: "tensorParallel",
    frames: [
      { caption: "each device has a part of the features", devices: only("x"), sends: pairs },
      {
        caption: "gather: all have all features, and multiply them with their own columns",
        devices: whole("x"),
      },
      { caption: "each has its own hidden features", devices: only("h") },
      {
        caption: "multiplied with its own rows: a contribution to every output",
        devices: all.map((d) => all.map((b) => held(`y${b} of ${d}`, d))),
        sends: pairs,
      },
      { caption: "scatter: each gets the sum for its own outputs", devices: only("y") },
    ],
  },
  {
    title: "executePipeline",
    text: "GPipe: each device is a stage. Microbatches follow each other through the stages; at the ends some stages wait.",
    program: "executePipeline",
    frames: pipelineFrames(6, 1),
  },
  {
    title: "CircularPipeline",
    text: "Each stage has several parts of the model: microbatches go round more than once, and the bubble is shared by more work.",
    program: "circularPipeline",
    frames: pipelineFrames(4, 2),
  },
];
