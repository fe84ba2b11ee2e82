import { loadKoffi } from "./koffi.js";

/** Size of a set of processors in bytes, one bit each. */
const SET_BYTES = 128;
/** Means the calling thread where the system expects a thread id. */
const THIS_THREAD = 0;

type AffinityCall = (thread: number, bytes: number, set: Uint8Array) => number;

function affinityCall(name: "sched_getaffinity" | "sched_setaffinity"): AffinityCall | undefined {
  if (process.platform !== "linux") return undefined;
  try {
    return loadKoffi()?.load(null).func(name, "int", ["int", "size_t", "void *"]) as AffinityCall | undefined;
  } catch {
    return undefined;
  }
}

/** The numbers of the processors that this thread may run on; empty if the system does not report them. */
export function allowedCores(): number[] {
  const set = new Uint8Array(SET_BYTES);
  const length = affinityCall("sched_getaffinity")?.(THIS_THREAD, SET_BYTES, set) ?? -1;
  if (length < 0) return [];
  return [...set].flatMap((byte, i) =>
    [...Array(8).keys()].flatMap((bit) => (byte & (1 << bit) ? [8 * i + bit] : [])),
  );
}

/** Pins the calling thread to one processor; returns whether the system allowed it. */
export function pinThread(core: number): boolean {
  const set = new Uint8Array(SET_BYTES);
  set[core >> 3] = 1 << (core & 7);
  return affinityCall("sched_setaffinity")?.(THIS_THREAD, SET_BYTES, set) === 0;
}
