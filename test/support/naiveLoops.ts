import { grad, jit, type Mesh, np, random, type Tensor } from "../../src/index.js";

/**
 * Loops as a new user writes them: right in JAX, without `dispose`, `donate` or `using`, most of them without ever
 * leaving their task. Each turn makes tensors of `elements` float32 elements and calls `turn`.
 */
export type NaiveLoop = (on: LoopPlace) => Promise<void>;

/** How long a loop runs, and on how much. */
export interface LoopLength {
  readonly numTurns: number;
  readonly elements: number;
  readonly turn: (i: number) => void;
}

/** Where a loop runs and for how long. */
export interface LoopPlace extends LoopLength {
  readonly mesh: Mesh;
}

const shapeOf = (elements: number): [number, number] => [elements / 64, 64];

function meanLoss(w: Tensor, x: Tensor): Tensor {
  return np.matmul(x, w).mean();
}

/** Every naive loop by what it does. */
export const naiveLoops: Readonly<Record<string, NaiveLoop>> = {
  async "an undonated training step"({ mesh, numTurns, elements, turn }) {
    const [rows, columns] = shapeOf(elements);
    const x = np.ones([columns, rows]);
    const step = jit((w: Tensor, batch: Tensor) => w.sub(grad(meanLoss)(w, batch)), { mesh });
    let w: Tensor = np.zeros([rows, columns]);
    for (let i = 0; i < numTurns; i++) {
      w = step(w, x);
      turn(i);
    }
    const expected = -numTurns / columns;
    const value = await w.mean().item();
    if (Math.abs(value / expected - 1) > 1e-3) throw new Error(`trained to ${value} instead of ${expected}`);
  },

  async "discarded results"({ mesh, numTurns, elements, turn }) {
    const add = jit((x: Tensor) => x.add(1), { mesh });
    const x = add(np.zeros(shapeOf(elements)));
    for (let i = 0; i < numTurns; i++) {
      add(x);
      turn(i);
    }
  },

  async "host tensors, awaiting only what is ready"({ mesh, numTurns, elements, turn }) {
    const sum = jit((x: Tensor) => x.sum(), { mesh });
    for (let i = 0; i < numTurns; i++) {
      sum(np.array(new Float32Array(elements)));
      await null;
      turn(i);
    }
  },

  async "eager ops"({ mesh, numTurns, elements, turn }) {
    let x = jit((y: Tensor) => y.add(1), { mesh })(np.zeros(shapeOf(elements)));
    for (let i = 0; i < numTurns; i++) {
      x = x.mul(0.5).add(0.5);
      turn(i);
    }
    const value = await x.mean().item();
    if (value !== 1) throw new Error(`the mean is ${value} instead of 1`);
  },

  async "a jit made anew in every turn"({ mesh, numTurns, elements, turn }) {
    const x = np.ones(shapeOf(elements));
    for (let i = 0; i < numTurns; i++) {
      const closedOver = np.full([64], i);
      // The number is a part of the code, so that every turn has a kernel of its own.
      jit(
        (y: Tensor) =>
          y
            .mul(i + 0.5)
            .add(closedOver)
            .sum(),
        { mesh },
      )(x);
      turn(i);
    }
  },
};

/** Loops without any mesh or `jit`, by what they do. */
export const hostLoops: Readonly<Record<string, (on: LoopLength) => Promise<void>>> = {
  async arithmetic({ numTurns, elements, turn }) {
    let x: Tensor = np.zeros(shapeOf(elements));
    for (let i = 0; i < numTurns; i++) {
      x = x.mul(0.5).add(0.5);
      turn(i);
    }
    const value = await x.mean().item();
    if (value !== 1) throw new Error(`the mean is ${value} instead of 1`);
  },

  async "gradients, awaiting only what is ready"({ numTurns, elements, turn }) {
    const [rows, columns] = shapeOf(elements);
    const x = np.ones([4, rows]);
    let w: Tensor = np.zeros([rows, columns]);
    for (let i = 0; i < numTurns; i++) {
      w = w.sub(grad(meanLoss)(w, x));
      await null;
      turn(i);
    }
    const value = await w.mean().item();
    if (Math.abs(value / (-numTurns / columns) - 1) > 1e-3) throw new Error(`trained to ${value}`);
  },

  async "discarded random numbers"({ numTurns, elements, turn }) {
    const key = random.key(0);
    for (let i = 0; i < numTurns; i++) {
      random.normal(key, shapeOf(elements));
      turn(i);
    }
  },
};
