/** Every function that the entry points of the package give to users. */
import * as engines from "../../src/engines/index.js";
import * as shardwise from "../../src/index.js";
import * as nn from "../../src/nn/index.js";
import * as optim from "../../src/optim/index.js";
import * as parallel from "../../src/parallel/index.js";
import * as random from "../../src/random/index.js";
import * as train from "../../src/train/index.js";

/** A function of the surface. */
export interface SurfaceFunction {
  readonly name: string;
  /** How many arguments it lists. */
  readonly length: number;
  call(args: readonly unknown[]): unknown;
}

const entries: readonly (readonly [name: string, loaded: object])[] = [
  ["", shardwise],
  ["nn", nn],
  ["optim", optim],
  ["parallel", parallel],
  ["engines", engines],
  ["train", train],
  ["random", random],
];

/** What is called in ways of its own, each with the reason. */
const left: Readonly<Record<string, string>> = {
  "engines.createMpiEngine": "joins the processes of a job, which a process does once",
  "train.calibrate": "measures the machine, which takes its time",
  "new Mesh": "private",
  "new engines.EngineShell": "abstract",
  "Tensor.traced": "internal",
  "Tensor.literal": "internal",
  "Tensor.scalar": "internal",
  "Tensor.stored": "internal",
  "Tensor.fromHost": "internal",
};

type AnyFunction = (...args: readonly unknown[]) => unknown;
type AnyClass = new (...args: readonly unknown[]) => unknown;

const isClass = (value: unknown): value is AnyClass =>
  typeof value === "function" && /^class\b/.test(Function.prototype.toString.call(value));

/** The functions of all entry points, with those of namespaces and static ones of classes, by name. */
export function surface(): SurfaceFunction[] {
  const found = new Map<string, SurfaceFunction>();
  const seen = new Set<unknown>();
  const add = (name: string, value: unknown, self: unknown): void => {
    if (seen.has(value) || Object.hasOwn(left, name)) return;
    // The constructors of errors are called by who throws them.
    if (isClass(value) && value.prototype instanceof Error) return;
    if (isClass(value)) {
      seen.add(value);
      if (!Object.hasOwn(left, `new ${name}`))
        found.set(`new ${name}`, {
          name: `new ${name}`,
          length: value.length,
          call: (args) => new value(...args),
        });
      for (const key of Object.getOwnPropertyNames(value)) {
        const member = Object.getOwnPropertyDescriptor(value, key)?.value;
        if (typeof member === "function") add(`${name}.${key}`, member, value);
      }
    } else if (typeof value === "function") {
      seen.add(value);
      const fn = value as AnyFunction;
      found.set(name, { name, length: fn.length, call: (args) => fn.apply(self, [...args]) });
      for (const [key, member] of Object.entries(value)) add(`${name}.${key}`, member, value);
    } else if (typeof value === "object" && value !== null) {
      seen.add(value);
      for (const [key, member] of Object.entries(value))
        add(name === "" ? key : `${name}.${key}`, member, value);
    }
  };
  for (const [name, loaded] of entries) add(name, loaded, undefined);
  const tensors = shardwise.Tensor.prototype;
  for (const key of Object.getOwnPropertyNames(tensors)) {
    const member = Object.getOwnPropertyDescriptor(tensors, key)?.value;
    if (typeof member !== "function" || key === "constructor") continue;
    const call: SurfaceFunction["call"] = (args) => member.apply(shardwise.np.ones([2, 3]), [...args]);
    found.set(`Tensor#${key}`, { name: `Tensor#${key}`, length: member.length, call });
  }
  return [...found.values()];
}
