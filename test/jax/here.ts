/** Computes programs with shardwise, on the engine that `SHARDWISE_ENGINE` names, and writes what they give to files. */
import { writeFileSync } from "node:fs";
import { grad, jit, jvp, np, type Synchronous, type Tensor, vmap } from "shardwise";
import { encode, isFloat } from "../../src/ir/dtype.js";
import { at } from "../../src/ir/shape.js";
import { encodeSafetensors, type StoredArray } from "../../src/train/files/safetensors/safetensorsBytes.js";
import {
  evaluate,
  type JaxProgram,
  lossOf,
  makePrograms,
  storedArray,
  tangentOf,
  toTensor,
  transformOf,
  wantedInputs,
  weightOf,
} from "./programs.js";

/** What is computed of a program, by name. */
function partsOf(program: JaxProgram, number: number, seed: number): Map<string, () => [string, Tensor][]> {
  // Half of the programs run op by op, the other half compiled.
  const compiled = <R>(f: ((...args: Tensor[]) => R) & Synchronous<R>) => (number % 2 === 0 ? f : jit(f));
  const inputs = program.inputs.map(toTensor);
  const fn = (...args: Tensor[]) => evaluate(program, args);
  const parts = new Map<string, () => [string, Tensor][]>();
  let value: Tensor | undefined;
  parts.set("value", () => {
    value = compiled(fn)(...inputs);
    return [["value", value]];
  });
  const wanted = wantedInputs(program);
  const transform = transformOf(program, number, seed);
  parts.set("grad", () => {
    if (transform !== "grad" || !value || !isFloat(value.dtype) || wanted.length === 0) return [];
    const loss = lossOf(program, toTensor(weightOf(number, value)));
    const gradients = compiled((...args: Tensor[]) => grad(loss, { argnums: wanted })(...args) as Tensor[]);
    return gradients(...inputs).map((gradient, i) => [`grad/${wanted[i]}`, gradient]);
  });
  parts.set("jvp", () => {
    if (transform !== "jvp" || !value || !isFloat(value.dtype) || wanted.length === 0) return [];
    const chosen = wanted.map((i) => at(inputs, i));
    const along = wanted.map((i) => toTensor(tangentOf(number, i, at(program.inputs, i))));
    const ofChosen = (...xs: Tensor[]) => fn(...inputs.map((x, i) => xs[wanted.indexOf(i)] ?? x));
    return [["jvp", jvp(ofChosen, chosen, along)[1] as Tensor]];
  });
  parts.set("vmap", () => {
    if (transform !== "vmap") return [];
    return [["vmap", compiled(vmap(fn))(...inputs.map((x) => np.stack([x, np.flip(x)])))]];
  });
  return parts;
}

const [seedText = "", only = "", outputsPath = "", errorsPath = ""] = process.argv.slice(2);
const seed = Number(seedText);
const results = new Map<string, StoredArray>();
const errors: Record<string, string> = {};
for (const [number, program] of makePrograms(seed, only === "" ? undefined : only).entries()) {
  for (const [part, compute] of partsOf(program, number, seed)) {
    try {
      for (const [name, tensor] of compute()) {
        const data = encode(tensor.dtype, await tensor.data());
        results.set(`${number}/${name}`, storedArray(tensor.type, data));
      }
    } catch (error) {
      errors[`${number}/${part}`] = String(error).slice(0, 300);
    }
  }
}
writeFileSync(outputsPath, encodeSafetensors(results));
writeFileSync(errorsPath, JSON.stringify({ errors }));
process.exit(0);
