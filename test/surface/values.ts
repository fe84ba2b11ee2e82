/** Arguments as somebody may pass them who did not read the types: right ones, wrong ones, hostile ones. */
import { np, P, random as rng, Tensor } from "../../src/index.js";

/** Random numbers from 0 to 1. */
export type Random = () => number;

/** What a callback of an argument throws, and what calls may therefore throw as well. */
export class CallbackError extends Error {}

/** One of a list. */
export function pick<T>(random: Random, list: readonly T[]): T {
  return list[Math.floor(random() * list.length)] as T;
}

const cyclicList: unknown[] = [];
cyclicList.push(cyclicList);
const cyclicObject: Record<string, unknown> = { a: 1 };
cyclicObject.self = cyclicObject;

/** An object of a thousand levels and one of no prototype. */
const deep = Array.from({ length: 3000 }).reduce<unknown>((inner) => [inner], 1);
const bare: object = Object.assign(Object.create(null), { a: 1 });

/** Numbers that no size, dim, count or rate may be, and some that may. */
const numbers = [0, 1, 2, 3, -1, -2, 7, 0.5, -0, Number.NaN, Infinity, -Infinity, 2 ** 53, 1e300, -(2 ** 40)];

const texts = [
  "",
  "x",
  "data",
  "float32",
  "int32",
  "bool",
  "float8",
  "ij,jk->ik",
  "params",
  "__proto__",
  "constructor",
  "i",
  "\u0000",
  "[",
  "relu",
  "{}",
  "sum",
  "SAME",
];

/** Functions that are passed as arguments; they fail only with {@link CallbackError}. */
const callbacks: readonly ((...args: unknown[]) => unknown)[] = [
  () => undefined,
  (x) => x,
  () => 1,
  () => [1, null],
  () => {
    throw new CallbackError("from a callback");
  },
  (x) => (x instanceof Tensor ? x.mul(2) : x),
  (x) => (x instanceof Tensor ? np.sum(x) : np.array(0)),
  (...all) => all,
  async () => 1,
];

/** An object that has every property somebody may ask for, with arguments as values. */
function anything(random: Random): object {
  const known = new Map<string, unknown>();
  return new Proxy(
    {},
    {
      get(_, name) {
        if (typeof name === "symbol" || name === "then" || name === "toJSON") return undefined;
        if (!known.has(name)) known.set(name, random() < 0.3 ? undefined : argument(random, 2));
        return known.get(name);
      },
    },
  );
}

const optionNames = [
  "axis",
  "dtype",
  "keepdims",
  "dim",
  "name",
  "length",
  "learningRate",
  "features",
  "mesh",
  "argnums",
  "staticArgnums",
  "shape",
  "size",
  "numDevices",
  "seed",
  "misspelt",
];

function tensor(random: Random): Tensor {
  return pick(random, [
    () => np.ones([2, 3]),
    () => np.ones([3]),
    () => np.array(1.5),
    () => np.array([1, 0, 2], "int32"),
    () => np.ones([2, 2]),
    () => np.array([true, false]),
    () => np.zeros([0, 3]),
    () => np.ones([2, 3, 4, 5]),
    () => np.ones([2, 3], "bfloat16"),
    () => np.array([Number.NaN, Infinity]),
    () => rng.key(0),
  ])();
}

const likely: readonly ((random: Random, depth: number) => unknown)[] = [
  tensor,
  tensor,
  tensor,
  (random) => pick(random, [0, 1, 2, -1, 0.5]),
  (random) => pick(random, [[2, 3], [0, 1], [1], [], [3, 2, 1], 2]),
  (random) => pick(random, ["float32", "int32", "x", "i", "ij,jk->ik", "params"]),
  (random) => pick(random, callbacks),
  (random) => [tensor(random), tensor(random)],
  (random) => ({ a: tensor(random), b: [tensor(random)] }),
  (random) => pick(random, [P("i"), P(), undefined, {}, true, false, null]),
];

const wrong: readonly ((random: Random, depth: number) => unknown)[] = [
  (random) => pick(random, [undefined, null, undefined]),
  (random) => pick(random, numbers),
  (random) => pick(random, texts),
  (random) => pick(random, [cyclicList, cyclicObject, deep, bare]),
  (random) =>
    pick(random, [Symbol("s"), 7n, true, new Date(0), /x/, new Map([[1, 2]]), new Set([1]), new Error("e")]),
  (random) =>
    pick(random, [
      new Float32Array(3),
      new Uint8Array([1, 2]),
      new ArrayBuffer(4),
      new BigInt64Array(1),
      Promise.resolve(1),
    ]),
  (random) => pick(random, callbacks),
  (random, depth) => Array.from({ length: Math.floor(random() * 4) }, () => argument(random, depth - 1)),
  (random, depth) =>
    Object.fromEntries(
      Array.from({ length: 1 + Math.floor(random() * 2) }, () => [
        pick(random, optionNames),
        argument(random, depth - 1),
      ]),
    ),
  () => Object.assign(new Array<number>(3), { 0: 1, 2: 3 }),
  anything,
  (random) => ({ dtype: pick(random, ["float32", 7]), shape: pick(random, [[2], 7]) }),
];

/** A random argument as functions take it. */
export const likelyArgument = (random: Random): unknown => pick(random, likely)(random, 2);

/** A random argument as hardly a function takes it. */
export const wrongArgument = (random: Random): unknown => pick(random, wrong)(random, 2);

/** A random argument. */
export function argument(random: Random, depth = 2): unknown {
  if (depth <= 0)
    return random() < 0.5 ? pick(random, numbers) : pick(random, [undefined, null, "x", [], {}]);
  return pick(random, random() < 0.55 ? likely : wrong)(random, depth);
}
