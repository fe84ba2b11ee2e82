import { Ambient } from "../ir/ambient.js";

/**
 * How often what is traced now will be differentiated. Whoever takes a derivative says so before it traces, and a
 * function with a rule of its own brings that rule along only as often as it will be asked for: a function that nobody
 * differentiates is called once, however deep such functions stand in each other.
 */
const order = new Ambient({
  name: "order of derivatives",
  initial: 0,
  setBy: "grad",
  // Rules of custom functions are there as often as they will be asked for.
  dependence: { key: String },
});

/** What may be done twice more to what stays with the user: a pullback, or a program as text. */
const later = 2;

/** How often what is traced now will be differentiated. */
export function currentOrder(): number {
  return order.get();
}

/** Runs `fn`, which traces what will be differentiated so often. */
export function atOrder<T>(wanted: number, fn: () => T): T {
  return order.within(wanted, fn);
}

/** Runs `fn`, which traces what is differentiated once more than what surrounds it. */
export function toDifferentiate<T>(fn: () => T): T {
  return atOrder(order.get() + 1, fn);
}

/** {@link toDifferentiate} for derivatives forward, which differentiate the way back as well, to transpose it. */
export function toPushForward<T>(fn: () => T): T {
  return atOrder(order.get() + 2, fn);
}

/** Runs `fn`, which traces what the user keeps: that may be differentiated where nobody can know of it yet. */
export function toKeep<T>(fn: () => T): T {
  return atOrder(order.get() + later, fn);
}
