import { at } from "../../ir/shape.js";
import type { Action, Dispatch, SlabMove } from "./actions.js";

/** Moves slots to the slabs of others. */
export function moveSlabs(slabs: Uint16Array, moves: readonly SlabMove[]): void {
  for (const move of moves) {
    if ("swap" in move) {
      const [a, b] = move.swap;
      const kept = slabs[a] ?? 0;
      slabs[a] = slabs[b] ?? 0;
      slabs[b] = kept;
    } else slabs[move.slot] = slabs[move.from] ?? 0;
  }
}

/**
 * The dispatches that a device will make, while `slabs` are as they will be then: the first two iterations of loops, after
 * which swapped slots are where they began, and every branch.
 *
 * @param collectives the dispatches of each collective in which the device takes part
 */
export function* expectedDispatches(
  actions: readonly Action[],
  collectives: readonly (readonly Dispatch[])[],
  slabs: Uint16Array,
): Generator<Dispatch> {
  const all = (list: readonly Action[]) => expectedDispatches(list, collectives, slabs);
  for (const action of actions) {
    switch (action.kind) {
      case "dispatch":
        yield action;
        break;
      case "moves":
        moveSlabs(slabs, action.moves);
        break;
      case "loop":
        yield* all(action.before);
        for (let i = 0; i < Math.min(2, action.count); i++) yield* all(action.body);
        break;
      case "while":
        yield* all(action.before);
        for (let i = 0; i < 2; i++) {
          yield* all(action.condition);
          yield action.predicate.dispatch;
          yield* all(action.body);
        }
        break;
      case "cond":
        yield action.index.dispatch;
        for (const branch of action.branches) yield* all(branch);
        break;
      case "collective":
        yield* at(collectives, action.collective);
        break;
      case "callback":
        break;
    }
  }
}
