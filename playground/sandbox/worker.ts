/**
 * Runs one program of the user. It is a worker inside of a frame of no origin, so that a program can neither read what
 * this site stores nor freeze the page. The library's functions that compile are wrapped to report what they do.
 */
import * as main from "shardwise";
import * as engines from "shardwise/engines";
import * as nn from "shardwise/nn";
import * as optim from "shardwise/optim";
import * as parallel from "shardwise/parallel";
import * as random from "shardwise/random";
import * as train from "shardwise/train";
import type { CallReport, FromProgram, PassReport, PlacementReport } from "./messages.js";
import { PROGRAM_FILE, roundCalls } from "./messages.js";

type AnyFunction = (...args: unknown[]) => unknown;
type MeshOf = main.NamedSharding["mesh"];

/** More than this is not sent to the page, so that no program floods it. */
const MAX_PASS_CHARACTERS = 400_000;
const MAX_LOG_CHARACTERS = 200_000;
const MAX_CALLS = 100;
const MAX_PLACEMENTS = 100;

/** What a line costs the page besides its characters, in characters. */
const LINE_CHARACTERS = 50;

const tell = (message: FromProgram): void => postMessage(message);

let logged = 0;
function log(level: "log" | "warn" | "error", values: readonly unknown[]): void {
  if (logged > MAX_LOG_CHARACTERS) return;
  const text = values.map(shown).join(" ");
  logged += text.length + LINE_CHARACTERS;
  tell({ kind: "log", level, text });
  if (logged > MAX_LOG_CHARACTERS)
    tell({ kind: "log", level: "warn", text: "… further output is not shown" });
}

function shown(value: unknown): string {
  if (typeof value === "string") return value;
  if (value instanceof main.Tensor || value instanceof Error) return String(value);
  try {
    return (
      JSON.stringify(
        value,
        (_, one) => (typeof one === "bigint" || typeof one === "function" ? String(one) : one),
        1,
      )?.replace(/\s*\n\s*/g, " ") ?? String(value)
    );
  } catch {
    return String(value);
  }
}

/** The devices that hold each block of a tensor. */
function blocksOf(mesh: MeshOf, spec: main.PartitionSpec): number[][][] {
  const { axes, devices } = mesh.toJSON();
  const [first = [], second = []] = spec.dims(2).map((names) => (names === "unconstrained" ? [] : names));
  const sizeOf = (name: string) => axes.find((axis) => axis.name === name)?.size ?? 1;
  const count = (names: readonly string[]) => names.reduce((n, name) => n * sizeOf(name), 1);
  const blockOf = (position: number, names: readonly string[]) => {
    const coordinates = engines.axesCoordinates(axes, position);
    const along = (name: string) => coordinates[axes.findIndex((axis) => axis.name === name)] ?? 0;
    return names.reduce((index, name) => index * sizeOf(name) + along(name), 0);
  };
  const blocks = Array.from({ length: count(first) }, () =>
    Array.from({ length: count(second) }, (): number[] => []),
  );
  devices.forEach((device, position) => {
    blocks[blockOf(position, first)]?.[blockOf(position, second)]?.push(device);
  });
  return blocks;
}

/** The groups of devices along some axes: those whose coordinates along the others are the same. */
function groupsOf(mesh: MeshOf, over: readonly string[]): number[][] {
  const { axes, devices } = mesh.toJSON();
  const groups = new Map<string, number[]>();
  devices.forEach((device, position) => {
    const coordinates = engines.axesCoordinates(axes, position);
    const key = axes.flatMap(({ name }, i) => (over.includes(name) ? [] : [coordinates[i]])).join();
    groups.set(key, [...(groups.get(key) ?? []), device]);
  });
  return [...groups.values()];
}

function meshOf(options: unknown, args: readonly unknown[]): MeshOf | undefined {
  const named = (options as { readonly mesh?: MeshOf } | undefined)?.mesh;
  if (named) return named;
  for (const leaf of main.tree.leaves(args)) {
    if (leaf instanceof main.Tensor && leaf.sharding) return leaf.sharding.mesh;
  }
  return undefined;
}

/** What the partitioner does to a call, without running it. */
function explain(
  name: string,
  fn: AnyFunction,
  options: never,
  args: never[],
  passes: PassReport[],
): CallReport {
  const mesh = meshOf(options, args);
  const report = main.explainSharding(fn as never, options)(...args);
  const cost = main.costAnalysis(fn as never, options)(...args);
  const placement = ({ path, type, spec }: main.ValueSharding): PlacementReport => ({
    name: path,
    text: `${type.dtype}[${type.shape.join()}] ${spec}`,
    blocks: mesh ? blocksOf(mesh, spec) : [[[0]]],
  });
  return {
    name,
    devices: mesh?.size ?? 1,
    placements: [...report.inputs, ...report.outputs].map(placement),
    collectives: report.collectives.map(({ op, axes, count, bytes }) => ({
      op,
      axes,
      count,
      bytes,
      groups: mesh ? groupsOf(mesh, axes) : [],
    })),
    passes,
    flops: cost.flops,
    peakBytes: cost.peakBytes,
  };
}

/** How many compiled calls are under way: those inside of another are part of it. */
let depth = 0;
let calls = 0;
let placements = 0;
/** When the results of the last call were there: devices run calls one after the other. */
let lastEnd = 0;
/** The last call that was timed. */
let lastRun: Promise<void> = Promise.resolve();

/** Reports how long devices worked on the results of a call that has just returned. */
async function timeRun(id: number, results: unknown): Promise<void> {
  const begin = performance.now();
  const tensors = main.tree.leaves(results).filter((leaf) => leaf instanceof main.Tensor);
  await Promise.all(tensors.map((tensor) => tensor.ready()));
  const end = performance.now();
  tell({ kind: "ran", id, ms: end - Math.max(begin, lastEnd) });
  lastEnd = end;
}

/** Wraps a function that compiles what it is given, so that its first call is reported and all are timed. */
function reported(compile: AnyFunction, kind: string): AnyFunction {
  return (fn, options, ...more) => {
    const compiled = compile(fn, options, ...more) as AnyFunction;
    const id = calls++;
    if (id >= MAX_CALLS) return compiled;
    const line = placeOf(new Error())?.line;
    const name = [kind, (fn as AnyFunction).name, line && `(line ${line})`].filter(Boolean).join(" ");
    let isFirst = true;
    const wrapped: AnyFunction = (...args) => {
      if (depth > 0) return compiled(...args);
      depth++;
      const passes: PassReport[] = [];
      const stop = isFirst ? listen(passes) : () => {};
      const report = isFirst
        ? attempt(() => explained(name, fn, kind === "jit" ? fn : compiled, options, args))
        : undefined;
      const begin = performance.now();
      try {
        const results = compiled(...args);
        if (isFirst) tell({ kind: "compiled", id, ms: performance.now() - begin });
        // Whoever reads the results is told of errors.
        lastRun = timeRun(id, results).catch(() => {});
        return results;
      } finally {
        stop();
        if (report) tell({ kind: "call", id, report: { ...report, passes } });
        isFirst = false;
        depth--;
      }
    };
    return Object.assign(wrapped, compiled);
  };
}

const explained = (name: string, fn: unknown, target: unknown, options: unknown, args: readonly unknown[]) =>
  quietly(() =>
    explain(name, target as AnyFunction, (target === fn ? options : undefined) as never, args as never[], []),
  );

function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    // The call itself fails with the same error, where the user sees it.
    return undefined;
  }
}

/** Runs the user's function once more without what it prints. */
function quietly<T>(work: () => T): T {
  const { console: own } = globalThis;
  const silent = Object.fromEntries(
    ["log", "info", "debug", "warn", "error", "table"].map((name) => [name, () => {}]),
  );
  globalThis.console = silent as unknown as Console;
  try {
    return work();
  } finally {
    globalThis.console = own;
  }
}

/** Collects the program of every pass that changes it, and the first of every stage. */
function listen(passes: PassReport[]): () => void {
  let length = 0;
  return main.debug.onPass((pass, program, stage) => {
    if (length > MAX_PASS_CHARACTERS) return;
    const text = main.printProgram(program, { sources: true });
    if (passes.some((before) => before.stage === stage && before.text === text)) return;
    length += text.length;
    passes.push({ pass, stage, text });
  });
}

const library: Readonly<Record<string, object>> = {
  shardwise: {
    ...main,
    jit: reported(main.jit as AnyFunction, "jit"),
    shardMap: reported(main.shardMap as AnyFunction, "shardMap"),
    visualizeSharding: (tensor: main.Tensor) => {
      const { sharding } = tensor;
      const text = `${tensor.dtype}[${tensor.shape.join()}] ${sharding?.spec ?? "on one device"}`;
      const blocks = sharding ? blocksOf(sharding.mesh, sharding.spec) : [[[0]]];
      if (placements++ < MAX_PLACEMENTS)
        tell({ kind: "placement", placement: { name: "visualizeSharding", text, blocks } });
      return main.visualizeSharding(tensor);
    },
  },
  "shardwise/engines": engines,
  "shardwise/nn": nn,
  "shardwise/optim": optim,
  "shardwise/parallel": parallel,
  "shardwise/random": random,
  "shardwise/train": train,
};

/** What the compiled program calls in the place of its import declarations. */
Object.assign(globalThis, {
  importShardwise: (name: string): object => {
    const found = library[name];
    if (found) return found;
    throw new Error(`this page has no module "${name}": use ${Object.keys(library).join(", ")}`);
  },
});

for (const [name, level] of [
  ["log", "log"],
  ["info", "log"],
  ["debug", "log"],
  ["table", "log"],
  ["warn", "warn"],
  ["error", "error"],
] as const) {
  console[name] = (...values: unknown[]) => log(level, values);
}

/** Since when a program has not let its event loop go round, and until when nothing more is told about that. */
let [pausedAt, silentUntil] = [performance.now(), 0];
const silence = 3000;
setInterval(() => {
  pausedAt = performance.now();
}, 200);

/** Tells the page about a loop that has not paused for some time: nobody else can say where an endless program is. */
function roundOf(line: number): void {
  const now = performance.now();
  if (now < pausedAt + silence || now < silentUntil) return;
  silentUntil = now + silence;
  tell({ kind: "looping", line, seconds: Math.round((now - pausedAt) / 1000) });
}
Object.assign(globalThis, { roundOf });

let lines: readonly string[] = [];

/** The first place in the program on the stack of an error. */
function placeOf({ stack = "" }: Error): { readonly line: number; readonly column: number } | undefined {
  const [, line, column] = new RegExp(`${PROGRAM_FILE}:(\\d+):(\\d+)`).exec(stack) ?? [];
  if (!line || !column) return undefined;
  const before = lines[Number(line) - 1]?.slice(0, Number(column)) ?? "";
  const added = before.match(roundCalls)?.join("").length ?? 0;
  return { line: Number(line), column: Math.max(1, Number(column) - added) };
}

function fail(error: unknown): void {
  const message =
    error instanceof Error ? `${error.name}: ${error.message}` : `The program threw ${shown(error)}`;
  tell({ kind: "failed", message, ...(error instanceof Error ? placeOf(error) : {}) });
}

addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  fail(event.reason);
});

addEventListener("message", async ({ data }: MessageEvent<{ readonly code: string }>) => {
  lines = data.code.split("\n");
  const code = `${data.code}\n//# sourceURL=${PROGRAM_FILE}\n`;
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const begin = performance.now();
  try {
    await import(/* @vite-ignore */ url);
    await Promise.all([main.effectsBarrier(), lastRun]);
    tell({ kind: "ended", ms: performance.now() - begin });
  } catch (error) {
    fail(error);
  } finally {
    URL.revokeObjectURL(url);
  }
});
