/** Calls functions of the surface with random arguments and says what they threw that they should not. */
import { ShardwiseError, Tensor } from "../../src/index.js";
import { randomFrom } from "../faults/row.js";
import type { SurfaceFunction } from "./functions.js";
import { argument, CallbackError, likelyArgument, type Random, wrongArgument } from "./values.js";

/** A call that did not end as it should. */
export interface Complaint {
  readonly name: string;
  /** The number that makes the same call again. */
  readonly call: number;
  readonly what: string;
  readonly stack: string;
}

/** How long a call may compute, and how long a promise may take on a machine with other work, in milliseconds. */
const PATIENCE = 5000;
const PATIENCE_OF_PROMISES = 60_000;

function hash(text: string): number {
  let state = 2166136261;
  for (let i = 0; i < text.length; i++) state = Math.imul(state ^ text.charCodeAt(i), 16777619) >>> 0;
  return state;
}

/** Whether an error is one that users are promised. */
function isPromised(error: unknown): boolean {
  if (error instanceof CallbackError) return true;
  return error instanceof ShardwiseError && error.code !== "internal";
}

const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;

/** Calls what a result offers: functions, and methods of what is no tensor. */
async function use(
  result: unknown,
  random: Random,
  given: ReadonlySet<unknown>,
  depth: number,
): Promise<void> {
  if (depth === 0 || given.has(result)) return;
  if (typeof result === "function" && !/^class\b/.test(Function.prototype.toString.call(result))) {
    const args = argumentsOf(random, result.length);
    const next: unknown = await settled(result(...args));
    await use(next, random, new Set([...given, ...args]), depth - 1);
  } else if (isObject(result) && !(result instanceof Tensor) && !Array.isArray(result)) {
    if ("close" in result && typeof result.close === "function") return void (await settled(result.close()));
    const plain = Object.getPrototypeOf(result) === Object.prototype;
    if (!plain) return;
    for (const member of Object.values(result)) {
      if (typeof member !== "function" || given.has(member)) continue;
      const args = argumentsOf(random, member.length);
      await settled(member.apply(result, args));
    }
  }
}

/** Half of the calls miss narrowly: all but one argument are likely ones, so that checks behind others are reached. */
function argumentsOf(random: Random, length: number): unknown[] {
  const count = Math.max(0, length + Math.floor(random() * 4) - 1);
  if (random() < 0.5) return Array.from({ length: count }, () => argument(random));
  const wrong = Math.floor(random() * count);
  return Array.from({ length: count }, (_, i) =>
    i === wrong ? wrongArgument(random) : likelyArgument(random),
  );
}

const late = Symbol("late");

/** What a promise gives, or an error after too long. */
async function settled(value: unknown): Promise<unknown> {
  if (!(value instanceof Promise)) return value;
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise((resolve) => {
    timer = setTimeout(resolve, PATIENCE_OF_PROMISES, late);
  });
  try {
    const first = await Promise.race([value, deadline]);
    if (first === late) throw new Error(`nothing came of it in ${PATIENCE_OF_PROMISES} ms`);
    return first;
  } finally {
    clearTimeout(timer);
  }
}

/** Makes one call; what is wrong with how it ended, if anything. */
export async function callOnce(
  fn: SurfaceFunction,
  seed: number,
  call: number,
): Promise<Complaint | undefined> {
  const random = randomFrom(seed ^ hash(`${fn.name} ${call}`));
  const args = argumentsOf(random, fn.length);
  const begin = process.cpuUsage();
  const complain = (what: string, stack = ""): Complaint => ({ name: fn.name, call, what, stack });
  try {
    const result = await settled(fn.call(args));
    await use(result, random, new Set(args), 2);
  } catch (error) {
    if (!isPromised(error)) {
      return complain(String(error).slice(0, 200), error instanceof Error ? (error.stack ?? "") : "");
    }
  }
  const { user, system } = process.cpuUsage(begin);
  const took = (user + system) / 1000;
  return took > PATIENCE ? complain(`it took ${took.toFixed()} ms of the processor`) : undefined;
}
