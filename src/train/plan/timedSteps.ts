/** What a device does in one run of a program, with the time of each part. */
import type { CompiledProgram, Step } from "../../compiler/steps.js";
import type { ControlRole } from "../../ir/ops.js";
import { at } from "../../ir/shape.js";
import { type ExpertLoad, evenLoad, filledExchange, filledProduct } from "./expertLoad.js";
import { type PlainStep, type PricedWork, type Prices, partOfStep } from "./prices.js";

/** A collective that is under way between its start and its end. */
export interface TimedCollective {
  /** The names of its mesh axes. */
  readonly axes: string;
  /** Its seconds if nothing else is sent along these axes. */
  readonly seconds: number;
  /**
   * Whether it may run at any time during an iteration of the loop around it: it is sent ahead, during the iteration
   * before, or nothing of the next iteration needs its result.
   */
  readonly isBackground: boolean;
}

/** A part of a run. */
export type TimedStep =
  | { readonly op: "work"; readonly part: PricedWork; readonly seconds: number }
  | { readonly op: "start" | "done"; readonly collective: TimedCollective }
  | {
      readonly op: "loop";
      readonly count: number;
      readonly body: readonly TimedStep[];
      readonly role: ControlRole | undefined;
    }
  | {
      readonly op: "cond";
      readonly branches: readonly (readonly TimedStep[])[];
      readonly role: ControlRole | undefined;
    };

/** A choice between branches. */
export type TimedCond = TimedStep & { readonly op: "cond" };
/** A loop. */
export type TimedLoop = TimedStep & { readonly op: "loop" };

/** The steps of a compiled program at a machine's prices. @param load of the fullest device */
export function timedSteps(
  { steps, infos, collectives }: CompiledProgram,
  prices: Prices,
  load: ExpertLoad = evenLoad,
): TimedStep[] {
  const timed = collectives.map(
    (spec): TimedCollective => ({
      axes: spec.axes.map(({ name }) => name).join(", "),
      seconds: prices.collective(filledExchange(spec, load)),
      isBackground: false,
    }),
  );
  const priced = (step: PlainStep) => prices.step(step, at(infos, step.info));
  const all = (list: readonly Step[]): TimedStep[] => list.map(one);
  const one = (step: Step): TimedStep => {
    const role = infos[step.info]?.role;
    switch (step.op) {
      case "loop":
        return { op: "loop", count: step.count, body: all(step.body), role };
      case "while":
        // The number of iterations is not known: one counts.
        return { op: "loop", count: 1, body: all([...step.condition, ...step.body]), role: undefined };
      case "cond":
        return { op: "cond", branches: step.branches.map(all), role };
      case "start":
      case "done":
        return { op: step.op, collective: at(timed, step.collective) };
      case "gemm":
        return { op: "work", part: "products", seconds: priced(filledProduct(step, load)) };
      default:
        return { op: "work", part: partOfStep[step.op], seconds: priced(step) };
    }
  };
  return all(steps);
}
