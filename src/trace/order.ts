import { Ambient } from "../ir/ambient.js";

/**
 * How often what is traced now will be differentiated. A transform that takes a derivative sets it before tracing, and
 * a function with a custom rule traces that rule only as often as it will be needed: a function that is not
 * differentiated is called once, however deeply such functions are nested.
 */
const order = new Ambient({
  name: "order of derivatives",
  initial: 0,
  setBy: "grad",
  // Programs contain the rules of custom functions as often as they will be needed.
  dependence: { key: String },
});

/** How often a result that the user keeps, such as a pullback or a printed program, may still be differentiated. */
const later = 2;

/** How often what is traced now will be differentiated. */
export function currentOrder(): number {
  return order.get();
}

/** Runs `fn`, whose trace will be differentiated `wanted` times. */
export function atOrder<T>(wanted: number, fn: () => T): T {
  return order.within(wanted, fn);
}

/** Runs `fn`, whose trace is differentiated once more than the surrounding one. */
export function toDifferentiate<T>(fn: () => T): T {
  return atOrder(order.get() + 1, fn);
}

/** {@link toDifferentiate} for forward-mode derivatives, which also differentiate the backward rule, to transpose it. */
export function toPushForward<T>(fn: () => T): T {
  return atOrder(order.get() + 2, fn);
}

/** Runs `fn`, whose trace the user keeps and may differentiate later. */
export function toKeep<T>(fn: () => T): T {
  return atOrder(order.get() + later, fn);
}
