// Other libraries in Node, where they are installed: `npm install --prefix bench`.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { jaxJsLibrary, tensorflowLibrary } from "./otherWorks.mjs";

const require = createRequire(new URL("./package.json", import.meta.url));

async function optional(name) {
  try {
    return await import(pathToFileURL(require.resolve(name)).href);
  } catch {
    return null;
  }
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
  return tensorflowLibrary(tf, rows, columns);
}

async function jaxJs(rows, columns) {
  const jax = await optional("@jax-js/jax");
  if (!jax) return null;
  await jax.init("wasm");
  jax.defaultDevice("wasm");
  return jaxJsLibrary(jax, rows, columns);
}

/** The libraries that are installed, on the GPU that WebGPU offers. @param gpu as the package `webgpu` gives it */
export async function otherLibrariesOnGpu(gpu, globals, rows, columns, repeats) {
  Object.assign(globalThis, globals);
  Object.defineProperty(globalThis, "navigator", { value: { gpu, userAgent: "" }, configurable: true });
  const libraries = [];
  const tf = await optional("@tensorflow/tfjs-core");
  if (tf && (await optional("@tensorflow/tfjs-backend-webgpu"))) {
    const core = tf.default ?? tf;
    await optional("@tensorflow/tfjs");
    await core.setBackend("webgpu");
    await core.ready();
    libraries.push(tensorflowLibrary(core, rows, columns, repeats));
  }
  const jax = await optional("@jax-js/jax");
  if (jax) {
    await jax.init("webgpu");
    jax.defaultDevice("webgpu");
    libraries.push(jaxJsLibrary(jax, rows, columns, repeats));
  }
  return libraries;
}

/** The libraries that are installed. */
export async function otherLibraries(rows, columns) {
  const found = [await tensorflowJs(rows, columns), await jaxJs(rows, columns)];
  return found.filter((library) => library !== null);
}
