/** Options that optimisers share. */
import type { Kind } from "../ir/arguments.js";
import { required, schema } from "../ir/schema.js";
import type { LearningRate } from "./schedules.js";

/** The kind of options that are a {@link LearningRate}. */
export const rate: Kind<LearningRate> = {
  says: "a finite number or a schedule",
  is: (value) => typeof value === "function" || Number.isFinite(value),
};

/** The schema of `StepOptions`. */
export const stepOptions = schema({
  /** The step size: a number, or a schedule of the step's number. */
  learningRate: required(rate),
});
