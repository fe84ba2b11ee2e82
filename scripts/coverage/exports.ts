/** Whether a name such as `np.linalg.norm`, `Tensor.shape` or a type such as `Device` is exported by the package. */
import { readFileSync } from "node:fs";
import * as shardwise from "../../src/index.js";
import * as nn from "../../src/nn/index.js";
import * as optim from "../../src/optim/index.js";
import type { Exists } from "./page.js";

/** Types do not exist at run time, so they are looked up in the frozen list of public names. */
const frozen: Readonly<Record<string, { readonly types: readonly string[] }>> = JSON.parse(
  readFileSync(new URL("../../test/publicApi.json", import.meta.url), "utf8"),
);
const types = new Set([
  ...(frozen["."]?.types ?? []),
  ...(frozen["./nn"]?.types ?? []).map((name) => `nn.${name}`),
  ...(frozen["./optim"]?.types ?? []).map((name) => `optim.${name}`),
]);

/** Methods and fields belong to the tensors that programs hold. */
const roots = { ...shardwise, nn, optim, Tensor: shardwise.np.zeros([]) };

const isHolder = (value: unknown): value is object =>
  (typeof value === "object" && value !== null) || typeof value === "function";

/** Whether the package exports what a path names. */
export const exported: Exists = (path) => {
  if (types.has(path) || path === "Tensor") return true;
  let at: unknown = roots;
  for (const part of path.split(".")) {
    if (!isHolder(at) || !(part in at)) return false;
    at = Reflect.get(at, part);
  }
  return true;
};
