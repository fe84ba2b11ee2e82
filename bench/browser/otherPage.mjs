// The other libraries in the benchmark's page; `browser.ts` serves their WebAssembly beside it.
import * as jax from "@jax-js/jax";
import { setWasmPaths } from "@tensorflow/tfjs-backend-wasm";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops.js";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import { jaxJsLibrary, tensorflowLibrary } from "../otherWorks.mjs";

async function openOthers(rows, columns) {
  setWasmPaths(new URL(".", location.href).href);
  await tf.setBackend("wasm");
  await tf.ready();
  await jax.init("wasm");
  jax.defaultDevice("wasm");
  return [tensorflowLibrary(tf, rows, columns), jaxJsLibrary(jax, rows, columns)];
}

globalThis.timeOther = async (index, work, rows, columns, milliseconds) => {
  globalThis.others ??= openOthers(rows, columns);
  return (await globalThis.others)[index].time(work, milliseconds);
};
