/**
 * What transformed code calls as `$`, and the globals it sees: operations on shared memory become records that the
 * machine performs, and shared memory tells the machine of itself.
 */
import {
  Failure,
  Machine,
  type Operation,
  Pruned,
  type SharedBlock,
  type SimulatedThread,
  type Twin,
  type View,
} from "./machine.js";

type Callable = ((...args: unknown[]) => unknown) & { $twin?: (...args: unknown[]) => Twin };
type Shared = View & { $shared?: SharedBlock };

/** The machine that transformed code runs on at present. */
export const current: { machine: Machine } = { machine: new Machine({ sites: [] }) };

const TwinPrototype: unknown = Object.getPrototypeOf(Object.getPrototypeOf((function* () {})()));

function isTwin(value: unknown): value is Twin {
  return (
    typeof value === "object" &&
    value !== null &&
    Object.prototype.isPrototypeOf.call(TwinPrototype as object, value)
  );
}

/** Runs a function of transformed code on the machine, or any other as it is. */
export function* invoke(called: Callable, self: unknown, args: readonly unknown[]): Twin {
  const result = (called.$twin ?? called).call(self, ...args);
  return isTwin(result) ? yield* result : result;
}

/** Runs what a thread was started for; a promise that it returns has been settled by then. */
export function* runThread(code: () => unknown): Twin {
  const result = (yield* invoke(code as Callable, undefined, [])) as
    | { outcome?: { isFine: boolean; error?: unknown } }
    | undefined;
  if (result?.outcome?.isFine === false) throw result.outcome.error;
  return undefined;
}

function operation(
  kind: Operation["kind"],
  site: number,
  array: View,
  index: number,
  value = 0,
  other = Number.POSITIVE_INFINITY,
): Operation {
  return { kind, site, array, index, value, other };
}

type Record4 = (site: number, array: View, index: number, value?: number, other?: number) => Operation;

const record =
  (kind: Operation["kind"]): Record4 =>
  (site, array, index, value, other) =>
    operation(kind, site, array, index, value, other);

/** What an access returns that must wait for its turn. */
const later = Symbol("later");
let postponed: Operation | undefined;

const access =
  (kind: "read" | "write") =>
  (site: number, array: View, index: number, value?: number): unknown => {
    const { machine } = current;
    const wanted = operation(kind, site, array, index, value);
    if (machine.isImmediate(wanted)) return machine.performAtOnce(wanted);
    postponed = wanted;
    return later;
  };

/** The methods of arrays that call back, as loops that the machine can interrupt. */
function* calling(_site: number, list: unknown, name: string, args: readonly unknown[]): Twin {
  const [first, initial] = args as [Callable | undefined, unknown];
  const method = (list as Record<string, Callable>)[name];
  if (method === undefined) throw new TypeError(`${name} is not a function`);
  if (!Array.isArray(list) || first?.$twin === undefined) return yield* invoke(method, list, args);
  if (name === "reduce") {
    let all = initial;
    for (let i = 0; i < list.length; i++) all = yield* first.$twin(all, list[i], i, list);
    return all;
  }
  const stopsAt = { some: true, find: true, findIndex: true, every: false }[name];
  const results: unknown[] = [];
  const from = name === "findLast" ? [...list.keys()].reverse() : list.keys();
  for (const i of from) {
    const result = yield* first.$twin(list[i], i, list);
    if (name === "findLast" && result) return list[i];
    if (stopsAt !== undefined && Boolean(result) === stopsAt) return found(name, list, i);
    results[i] = result;
  }
  if (name === "filter") return list.filter((_, i) => results[i]);
  if (name === "flatMap") return results.flat();
  return name === "map" ? results : found(name, list, -1);
}

function found(name: string, list: readonly unknown[], index: number): unknown {
  if (name === "some") return index >= 0;
  if (name === "every") return index < 0;
  return name === "findIndex" ? index : list[index];
}

/** The methods of typed arrays that touch elements, one element after the other where memory is shared. */
function* moving(site: number, target: Shared, name: string, args: readonly unknown[]): Twin {
  const isView = ArrayBuffer.isView(target);
  const source = args[0] as Shared;
  if (!isView || (target.$shared === undefined && source?.$shared === undefined)) {
    return yield* invoke((target as unknown as Record<string, Callable>)[name] as Callable, target, args);
  }
  const numbers = args as number[];
  if (name === "subarray") return tagged(target.subarray(numbers[0], numbers[1]));
  if (name === "slice") throw new Error("slice of shared memory is not simulated");
  if (name === "fill") {
    const [value = 0, begin = 0, end = target.length] = numbers;
    for (let i = begin; i < end; i++) yield* put(site, target, i, value);
    return target;
  }
  const offset = numbers[1] ?? 0;
  for (let i = 0; i < source.length; i++) {
    const value = source.$shared ? yield operation("read", site, source, i) : source[i];
    yield* put(site, target, offset + i, value as number);
  }
  return undefined;
}

function* put(site: number, target: Shared, index: number, value: number): Twin {
  if (target.$shared) yield operation("write", site, target, index, value);
  else target[index] = value;
  return undefined;
}

/** The machine's words of a buffer that threads share. */
const blocks = new WeakMap<ArrayBufferLike, SharedBlock>();

function tagged<V extends Shared>(view: V): V {
  if (!(view.buffer instanceof SharedArrayBuffer)) return view;
  let block = blocks.get(view.buffer);
  if (block === undefined) {
    block = current.machine.addBlock(view.buffer.byteLength);
    blocks.set(view.buffer, block);
  }
  view.$shared = block;
  return view;
}

/** A constructor of views that tells the machine of shared ones. */
function viewType(type: new (...args: never[]) => View): unknown {
  function Simulated(...args: never[]): View {
    return tagged(new type(...args));
  }
  Simulated.prototype = type.prototype;
  return Object.setPrototypeOf(Simulated, type);
}

/** Names the words of shared memory in schedules. */
export function label(
  array: View,
  name: string,
  fields: Readonly<Record<string, number>> = {},
  start = 0,
): void {
  const { $shared: block } = array as Shared;
  if (block === undefined) return;
  block.name = name;
  const outer = block.wordName;
  const names = new Map(Object.entries(fields).map(([field, offset]) => [start + offset, field]));
  block.wordName = (word) => names.get(word) ?? outer(word);
}

/** Puts up with races on a word, whose readers must expect old values. */
export function mayRace(array: View, index: number): void {
  current.machine.mayRace(array, index);
}

/** Waits on the machine until a condition holds that other threads change, or until time has passed. */
export const park: (isDue: () => boolean, milliseconds: number) => void = Object.assign(
  (isDue: () => boolean): void => {
    if (!isDue()) throw new Error("a thread cannot wait here");
  },
  {
    *$twin(isDue: () => boolean, milliseconds: number): Twin {
      if (!isDue()) yield { ...operation("park", -1, new Int32Array(1), 0, 0, milliseconds), isDue };
      return undefined;
    },
  },
);

/** Starts a thread that need not end. */
export function spawn(name: string, code: () => unknown): SimulatedThread {
  return current.machine.start(name, runThread(code), true);
}

/** Ends a thread wherever it is; returns whether it was running. */
export function kill(thread: SimulatedThread): boolean {
  return current.machine.kill(thread);
}

/** `Atomics` for code that runs without interruption, with `waitAsync` as the event loop knows it. */
function atomicsFor(newPromise: () => NewPromise): unknown {
  const waitAsync = Object.assign(
    (): never => {
      throw new Error("waitAsync is only simulated in threads");
    },
    {
      *$twin(array: View, index: number, value: number): Twin {
        const seen = yield operation("load", -1, array, index);
        if (seen !== value) return { async: false };
        const promise = new (newPromise())((resolve) => current.machine.whenNotified(array, index, resolve));
        return { async: true, value: promise };
      },
    },
  );
  const { load, store, add, sub, notify, compareExchange } = Atomics;
  return { load, store, add, sub, notify, compareExchange, waitAsync };
}

type NewPromise = (new (
  executor: (resolve: () => void) => void,
) => unknown) & {
  resolve(value: unknown): unknown;
  reject(error: unknown): unknown;
};

/** What stands in for `$` and for globals in transformed code. */
export function globalsFor(eventLoop: () => Readonly<Record<string, unknown>>): Record<string, unknown> {
  const newPromise = () => eventLoop().SimulatedPromise as NewPromise;
  return {
    $: {
      ...Object.fromEntries(
        (["load", "store", "add", "sub", "compareExchange", "wait"] as const).map((kind) => [
          kind,
          record(kind),
        ]),
      ),
      read: access("read"),
      write: access("write"),
      later,
      postponed: () => postponed,
      notify: (site: number, array: View, index: number, count = Number.POSITIVE_INFINITY) =>
        operation("notify", site, array, index, 0, count),
      twin: (own: Callable, twin: Callable) => Object.assign(own, { $twin: twin }),
      attach,
      isTwin,
      calling,
      moving,
      *settled(value: unknown): Twin {
        return yield* invoke(eventLoop().settled as Callable, undefined, [value]);
      },
      /** Runs an asynchronous function to its end, and only then gives its promise. */
      *async(body: () => Twin): Twin {
        try {
          return newPromise().resolve(yield* body());
        } catch (error) {
          if (error instanceof Failure || error instanceof Pruned) throw error;
          return newPromise().reject(error);
        }
      },
    },
    Int32Array: viewType(Int32Array),
    Uint32Array: viewType(Uint32Array),
    Float32Array: viewType(Float32Array),
    Float64Array: viewType(Float64Array),
    Uint8Array: viewType(Uint8Array),
    Atomics: atomicsFor(newPromise),
    performance: { now: () => current.machine.time, timeOrigin: 0 },
  };
}

/** Makes the twins of a class's methods those of the methods. */
function attach(type: { readonly prototype: object }): void {
  const methods = type.prototype as Record<string, Callable | undefined>;
  for (const name of Object.getOwnPropertyNames(methods)) {
    if (!name.endsWith("$twin")) continue;
    const method = methods[name.slice(0, -"$twin".length)];
    if (method) Object.assign(method, { $twin: methods[name] });
  }
}
