import { loadKoffi } from "./koffi.js";

/** Bytes of a set of processors, one bit each. */
const SET_BYTES = 128;
/** Stands for the calling thread where the system wants the number of one. */
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

/** The numbers of the processors that this thread may run on; none where the system does not tell. */
export function allowedCores(): number[] {
  const set = new Uint8Array(SET_BYTES);
  const length = affinityCall("sched_getaffinity")?.(THIS_THREAD, SET_BYTES, set) ?? -1;
  if (length < 0) return [];
  return [...set].flatMap((byte, i) =>
    [...Array(8).keys()].flatMap((bit) => (byte & (1 << bit) ? [8 * i + bit] : [])),
  );
}

/** Keeps the calling thread on one processor; gives whether the system lets it. */
export function pinThread(core: number): boolean {
  const set = new Uint8Array(SET_BYTES);
  set[core >> 3] = 1 << (core & 7);
  return affinityCall("sched_setaffinity")?.(THIS_THREAD, SET_BYTES, set) === 0;
}
