// The same kernels in other libraries, where they are installed: `npm install --prefix bench`. Plain JavaScript,
// because their types are not installed with this package.
import { createRequire } from "node:module";
import { performance } from "node:perf_hooks";
import { pathToFileURL } from "node:url";

const require = createRequire(new URL("./package.json", import.meta.url));

async function optional(name) {
  try {
    return await import(pathToFileURL(require.resolve(name)).href);
  } catch {
    return null;
  }
}

async function best(run) {
  await run();
  await run();
  let fastest = Number.POSITIVE_INFINITY;
  const end = performance.now() + 1500;
  for (let i = 0; i < 3 || performance.now() < end; i++) {
    const start = performance.now();
    await run();
    fastest = Math.min(fastest, performance.now() - start);
  }
  return fastest;
}

async function tensorflowJs(rows, columns) {
  const core = await optional("@tensorflow/tfjs-core");
  const wasm = await optional("@tensorflow/tfjs-backend-wasm");
  if (!core || !wasm) return null;
  const tf = core.default ?? core;
  await optional("@tensorflow/tfjs");
  const folder = new URL("./node_modules/@tensorflow/tfjs-backend-wasm/wasm-out/", import.meta.url).pathname;
  (wasm.setWasmPaths ?? wasm.default.setWasmPaths)(folder);
  await tf.setBackend("wasm");
  await tf.ready();
  const uniform = () => tf.randomUniform([rows, columns]);
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
  const works = {
    "tanh-gelu": [1, gelu],
    "tanh-gelu backward": [2, backward(gelu)],
    softmax: [1, softmax],
    "softmax backward": [2, backward(softmax)],
    "layer norm": [1, layerNorm],
    "layer norm backward": [2, backward(layerNorm)],
    "AdamW update": [4, adamw],
  };
  return {
    name: "tfjs-wasm",
    async time(name) {
      const [count, run] = works[name] ?? [];
      if (!run) return null;
      const inputs = Array.from({ length: count }, uniform);
      try {
        return await best(async () => tf.dispose(run(...inputs)));
      } catch (error) {
        console.error(`tfjs-wasm cannot do ${name}: ${error.message}`);
        return null;
      } finally {
        tf.dispose(inputs);
      }
    },
  };
}

async function jaxJs(rows, columns) {
  const jax = await optional("@jax-js/jax");
  if (!jax) return null;
  await jax.init("wasm");
  jax.defaultDevice("wasm");
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
  const works = {
    "tanh-gelu": [1, gelu],
    "tanh-gelu backward": [2, backward(gelu)],
    softmax: [1, softmax],
    "softmax backward": [2, backward(softmax)],
    "layer norm": [1, layerNorm],
    "layer norm backward": [2, backward(layerNorm)],
    "AdamW update": [4, adamw],
  };
  return {
    name: "jax-js",
    async time(name) {
      const [count, run] = works[name] ?? [];
      if (!run) return null;
      try {
        const inputs = Array.from({ length: count }, (_, i) =>
          random.uniform(random.key(i), [rows, columns]),
        );
        const compiled = jit(run);
        return await best(async () => {
          const results = [compiled(...inputs.map((x) => x.ref))].flat();
          for (const result of results) {
            await result.blockUntilReady();
            result.dispose();
          }
        });
      } catch (error) {
        console.error(`jax-js cannot do ${name}: ${error.message}`);
        return null;
      }
    },
  };
}

/** The libraries that are installed. */
export async function otherLibraries(rows, columns) {
  const found = [await tensorflowJs(rows, columns), await jaxJs(rows, columns)];
  return found.filter((library) => library !== null);
}
