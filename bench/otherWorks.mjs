// The same work in other libraries, given the library, in Node and in a page. Plain JavaScript, because their types are not
// installed with this package.

import { jaxJsDecoder, tensorflowDecoder } from "./otherDecoders.mjs";

/** The shortest of several runs, in milliseconds. */
export async function best(run, milliseconds = 1500) {
  await run();
  await run();
  let fastest = Number.POSITIVE_INFINITY;
  const end = performance.now() + milliseconds;
  for (let i = 0; i < 3 || performance.now() < end; i++) {
    const start = performance.now();
    await run();
    fastest = Math.min(fastest, performance.now() - start);
  }
  return fastest;
}

/** Inputs and targets, two weights of a perceptron of width 256, and both moments of each. */
export const stepShapes = [
  [512, 256],
  [512, 256],
  ...[0, 1, 2].flatMap(() => [
    [256, 1024],
    [1024, 256],
  ]),
];

/** What is timed, by name: the shapes of its inputs, and a library's function. @param square the shape of large inputs */
function worksOf({ gelu, softmax, layerNorm, backward, adamw, trainingStep, matmul }, square) {
  const products = [256, 512, 1024, 2048, 4096, 8192].map((n) => [
    `matmul ${n}`,
    [Array(2).fill([n, n]), matmul],
  ]);
  return {
    "tanh-gelu": [[square], gelu],
    "tanh-gelu backward": [[square, square], backward(gelu)],
    softmax: [[square], softmax],
    "softmax backward": [[square, square], backward(softmax)],
    "layer norm": [[square], layerNorm],
    "layer norm backward": [[square, square], backward(layerNorm)],
    "AdamW update": [[square, square, square, square], adamw],
    ...Object.fromEntries(products),
    "training step": [stepShapes, trainingStep],
  };
}

/**
 * TensorFlow.js, whose backend is ready.
 *
 * @param repeats on a GPU, runs that follow each other before a value of the last one is read: nothing else waits for it
 */
export function tensorflowLibrary(tf, rows, columns, repeats = 0) {
  const backend = tf.getBackend();
  const gelu = (x) =>
    tf.tidy(() => {
      const inner = tf.mul(tf.add(x, tf.mul(tf.mul(tf.mul(x, x), x), 0.044715)), Math.sqrt(2 / Math.PI));
      return tf.mul(tf.mul(x, tf.add(tf.tanh(inner), 1)), 0.5);
    });
  const layerNorm = (x) =>
    tf.tidy(() => {
      const centred = tf.sub(x, tf.mean(x, -1, true));
      return tf.mul(centred, tf.rsqrt(tf.add(tf.mean(tf.mul(centred, centred), -1, true), 1e-6)));
    });
  const softmax = (x) => tf.softmax(x);
  const backward = (f) => (x, ct) => tf.tidy(() => tf.grad((y) => f(y))(x, ct));
  const adamw = (p, m, v, g) =>
    tf.tidy(() => {
      const mean = tf.add(tf.mul(m, 0.9), tf.mul(g, 0.1));
      const square = tf.add(tf.mul(v, 0.95), tf.mul(tf.mul(g, g), 0.05));
      const update = tf.div(tf.mul(mean, 1.1), tf.add(tf.sqrt(tf.mul(square, 1.2)), 1e-8));
      return [tf.sub(p, tf.mul(tf.add(update, tf.mul(p, 0.1)), 3e-4)), mean, square];
    });
  const loss = (x, y) => (a, b) => tf.mean(tf.square(tf.sub(tf.matMul(gelu(tf.matMul(x, a)), b), y)));
  const trainingStep = (x, y, a, b, ...moments) =>
    tf.tidy(() => {
      const { grads } = tf.valueAndGrads(loss(x, y))([a, b]);
      return [a, b].flatMap((weight, i) => adamw(weight, moments[i], moments[i + 2], grads[i]));
    });
  const functions = { gelu, softmax, layerNorm, backward, adamw, trainingStep, matmul: tf.matMul };
  const works = worksOf(functions, [rows, columns]);
  return {
    name: `tfjs-${backend}`,
    decoder: (size, weights, tokens) => tensorflowDecoder(tf, size, weights, tokens),
    async time(name, milliseconds) {
      const [shapes, run] = works[name] ?? [];
      if (!run) return null;
      const inputs = shapes.map((shape) => tf.randomUniform(shape));
      try {
        if (repeats === 0) return await best(async () => tf.dispose(run(...inputs)), milliseconds);
        const total = await best(async () => {
          for (let i = 1; i < repeats; i++) tf.dispose(run(...inputs));
          const results = [run(...inputs)].flat();
          await tf.tidy(() => tf.sum(results[0])).data();
          tf.dispose(results);
        }, milliseconds);
        return total / repeats;
      } catch (error) {
        console.error(`tfjs-${backend} cannot do ${name}: ${error.message}`);
        return null;
      } finally {
        tf.dispose(inputs);
      }
    },
  };
}

/** jax-js, whose default device is set. @param repeats as above */
export function jaxJsLibrary(jax, rows, columns, repeats = 0) {
  const { numpy: np, random, jit, grad } = jax;
  const gelu = (x) => {
    const inner = x.ref.add(x.ref.mul(x.ref).mul(x.ref).mul(0.044715)).mul(Math.sqrt(2 / Math.PI));
    return x.mul(np.tanh(inner).add(1)).mul(0.5);
  };
  const softmax = (x) => jax.nn.softmax(x, -1);
  const layerNorm = (x) => {
    const centred = x.ref.sub(np.mean(x, -1, { keepdims: true }));
    const variance = np.mean(centred.ref.mul(centred.ref), -1, { keepdims: true });
    return centred.div(np.sqrt(variance.add(1e-6)));
  };
  const backward = (f) => (x, ct) => grad((y) => f(y).mul(ct).sum())(x);
  const adamw = (p, m, v, g) => {
    const mean = m.mul(0.9).add(g.ref.mul(0.1));
    const square = v.mul(0.95).add(g.ref.mul(g).mul(0.05));
    const update = mean.ref.mul(1.1).div(np.sqrt(square.ref.mul(1.2)).add(1e-8));
    return [p.ref.sub(update.add(p.mul(0.1)).mul(3e-4)), mean, square];
  };
  const trainingStep = (x, y, a, b, ...moments) => {
    const loss = ([a, b]) => {
      const error = np.matmul(gelu(np.matmul(x, a)), b).sub(y);
      return error.ref.mul(error).mean();
    };
    const grads = grad(loss)([a.ref, b.ref]);
    return [a, b].flatMap((weight, i) => adamw(weight, moments[i], moments[i + 2], grads[i]));
  };
  const functions = {
    gelu,
    softmax,
    layerNorm,
    backward,
    adamw,
    trainingStep,
    matmul: (a, b) => np.matmul(a, b),
  };
  const works = worksOf(functions, [rows, columns]);
  return {
    name: "jax-js",
    decoder: (size, weights, tokens) => jaxJsDecoder(jax, size, weights, tokens),
    async time(name, milliseconds) {
      const [shapes, run] = works[name] ?? [];
      if (!run) return null;
      try {
        const inputs = shapes.map((shape, i) => random.uniform(random.key(i), shape));
        const compiled = jit(run);
        const runOnce = () => [compiled(...inputs.map((x) => x.ref))].flat();
        if (repeats > 0) {
          const total = await best(async () => {
            for (let i = 1; i < repeats; i++) for (const result of runOnce()) result.dispose();
            const [first, ...others] = runOnce();
            await np.sum(first).data();
            for (const result of others) result.dispose();
          }, milliseconds);
          return total / repeats;
        }
        return await best(async () => {
          for (const result of runOnce()) {
            await result.blockUntilReady();
            result.dispose();
          }
        }, milliseconds);
      } catch (error) {
        console.error(`jax-js cannot do ${name}: ${error.message}`);
        return null;
      }
    },
  };
}
