import { describe } from "../../ir/describe.js";
import { formatType } from "../../ir/shape.js";
import { foldIn } from "../../random/index.js";
import { Tensor } from "../../trace/tensor.js";
import { ModuleError } from "./errors.js";
import { sha1Word } from "./sha1.js";

/** The keys of `init` and `apply` by name, such as `{ params, dropout }`; one key alone is that of `params`. */
export type Rngs = Tensor | Readonly<Record<string, Tensor>>;

/** A key with the names and numbers that will be folded into it once it is used. */
export interface RngSequence {
  readonly key: Tensor;
  readonly suffix: readonly (string | number)[];
}

/** The sequences that a scope draws keys from, by name. */
export type RngSequences = ReadonlyMap<string, RngSequence>;

/** The sequences that start from the given keys. */
export function toSequences(rngs: Rngs | undefined, caller: string): RngSequences {
  if (rngs !== undefined && (typeof rngs !== "object" || rngs === null)) {
    throw new ModuleError(
      "missing-rng",
      `[${caller}] the keys must be a key, or keys by name such as { params, dropout }, got ${describe(rngs)}: make a key with random.key(seed)`,
    );
  }
  const named = rngs instanceof Tensor ? { params: rngs } : (rngs ?? {});
  return new Map(
    Object.entries(named).map(([name, key]) => {
      checkKey(key, name, caller);
      return [name, { key, suffix: [] }];
    }),
  );
}

function checkKey(key: unknown, name: string, caller: string): void {
  if (key instanceof Tensor && key.dtype === "uint32" && key.ndim === 1 && key.shape[0] === 2) return;
  const what = key instanceof Tensor ? formatType(key.type) : typeof key;
  throw new ModuleError(
    "missing-rng",
    `[${caller}] the key "${name}" must be one key, u32[2], made with random.key(seed); it is ${what}`,
  );
}

/** The sequences of a child: its name is folded into every one. */
export function extendSequences(rngs: RngSequences, name: string): RngSequences {
  return new Map([...rngs].map(([rng, { key, suffix }]) => [rng, { key, suffix: [...suffix, name] }]));
}

/** The key number `count` of a sequence. */
export function drawKey({ key, suffix }: RngSequence, count: number): Tensor {
  return foldIn(key, sha1Word(encodePath([...suffix, count])));
}

const encoder = new TextEncoder();

/** Names as UTF-8 and numbers as their bytes, highest first, one after the other. */
function encodePath(parts: readonly (string | number)[]): Uint8Array {
  return Uint8Array.from(
    parts.flatMap((part) => (typeof part === "string" ? [...encoder.encode(part)] : numberBytes(part))),
  );
}

function numberBytes(value: number): number[] {
  return value === 0 ? [] : [...numberBytes(Math.floor(value / 256)), value % 256];
}
