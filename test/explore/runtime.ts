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

export type Callable = ((...args: unknown[]) => unknown) & { $twin?: (...args: unknown[]) => Twin };
type Shared = View & { $shared?: SharedBlock };

/** What transformed code needs of the machine that it runs on. */
export interface CodeMachine
  extends Pick<Machine, "isImmediate" | "performAtOnce" | "start" | "kill" | "whenNotified" | "time"> {
  /** Gives words of the machine to a buffer; undefined where accesses to elements are none of its business. */
  addBlock(bytes: number): SharedBlock | undefined;
  mayRace(array: View, index: number): void;
  /** Runs what a thread still has to do before the promise that it returned is settled. */
  settle?(returned: unknown): Twin;
}

/** The machine that transformed code runs on at present. */
export const current: { machine: CodeMachine } = { machine: new Machine({ sites: [] }) };

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
  const returned = yield* invoke(code as Callable, undefined, []);
  const result = (yield* current.machine.settle?.(returned) ?? as(returned)) as
    | { outcome?: { isFine: boolean; error?: unknown } }
    | undefined;
  if (result?.outcome?.isFine === false) throw result.outcome.error;
  return undefined;
}

// biome-ignore lint/correctness/useYield: a coroutine that never waits
function* as(value: unknown): Twin {
  return value;
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

/** What an operation returns that must wait for its turn. */
const later = Symbol("later");
let postponed: Operation | undefined;

const access =
  (kind: Operation["kind"]) =>
  (site: number, array: View, index: number, value?: number, other?: number): unknown => {
    const { machine } = current;
    const wanted = operation(kind, site, array, index, value, other);
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

/** `target.call(…)`: of a function, or a method of that name. */
function* calls(target: Callable | { readonly call: Callable }, args: readonly unknown[]): Twin {
  if (typeof target === "function") return yield* invoke(target, args[0], args.slice(1));
  return yield* invoke(target.call, target, args);
}

/** `Array.from`, whose callback the machine can interrupt. */
function* arrayFrom(source: ArrayLike<unknown> | Iterable<unknown>, map?: Callable): Twin {
  const list = Array.from(source);
  return map === undefined ? list : yield* calling(0, list, "map", [map]);
}

/** Something that a generator gives, among the operations of its twin. */
class Item {
  constructor(readonly value: unknown) {}
}

/** A generator whose twin may be interrupted; `yield*` continues the twin itself. */
function generator(twin: Twin): object {
  const next = (): never => {
    throw new Error("this generator is only simulated in threads");
  };
  const nextTwin = function* (): Twin {
    for (let step = twin.next(); ; step = twin.next(yield step.value)) {
      if (step.done) return step;
      const { value }: { value: unknown } = step;
      if (value instanceof Item) return { done: false, value: value.value };
    }
  };
  return { twin, next: Object.assign(next, { $twin: nextTwin }) };
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
    if (block) blocks.set(view.buffer, block);
  }
  if (block) view.$shared = block;
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

/** Lets the machine decide who goes on. */
export const giveTurn: () => void = Object.assign(() => {}, {
  *$twin(): Twin {
    yield { ...operation("park", -1, new Int32Array(1), 0, 0, 0), isDue: () => true };
    return undefined;
  },
});

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
        (["read", "write", "load", "store", "add", "sub", "compareExchange", "wait"] as const).map((kind) => [
          kind,
          access(kind),
        ]),
      ),
      later,
      postponed: () => postponed,
      notify: (site: number, array: View, index: number, count?: number) =>
        access("notify")(site, array, index, 0, count),
      item: (value: unknown) => new Item(value),
      generator,
      arrayFrom,
      twin: (own: Callable, twin: Callable) => Object.assign(own, { $twin: twin }),
      attach,
      isTwin,
      calling,
      calls,
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
  for (const owner of [type.prototype, type]) {
    const methods = owner as Record<string, Callable | undefined>;
    for (const name of Object.getOwnPropertyNames(methods)) {
      if (!name.endsWith("$twin")) continue;
      const method = methods[name.slice(0, -"$twin".length)];
      if (method) Object.assign(method, { $twin: methods[name] });
    }
  }
}
