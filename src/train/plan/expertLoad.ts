/** What the fullest device along `expert` computes and receives. */
import type { CollectiveSpec, GemmStep } from "../../compiler/steps.js";
import type { RunConfig } from "../config/runConfig.js";

/** How full the fullest device is; the others wait for it. */
export interface ExpertLoad {
  /** Its rows as a multiple of the mean of all devices. */
  readonly imbalance: number;
  /** The share of the rows of its buffers that hold tokens: there is space for all tokens of all devices. */
  readonly filled: number;
}

/** The load where no axis splits experts. */
export const evenLoad: ExpertLoad = { imbalance: 1, filled: 1 };

/** The load of the fullest device of a configuration. @param imbalance its rows as a multiple of the mean */
export function expertLoad({ model, mesh }: RunConfig, imbalance: number): ExpertLoad {
  const { numExperts, numExpertsPerToken, capacityFactor } = model.experts;
  if (model.kind !== "moe" || mesh.expert === 1) return evenLoad;
  // Rows for each token of a device: as many as one device's experts can get of it, or take.
  const most = Math.min(numExpertsPerToken, numExperts / mesh.expert);
  const taken = (capacityFactor * numExpertsPerToken) / mesh.expert;
  const space = capacityFactor > 0 ? Math.min(most, taken) : most;
  return { imbalance, filled: Math.min(1, (imbalance * numExpertsPerToken) / (space * mesh.expert)) };
}

/** A product with the rows that hold tokens. */
export function filledProduct<S extends Pick<GemmStep, "m" | "k" | "ragged">>(step: S, load: ExpertLoad): S {
  return step.ragged ? { ...step, [step.ragged.dim]: step[step.ragged.dim] * load.filled } : step;
}

/** An exchange of as many rows as the fullest device gets: in one direction buffers of its source are not full. */
export function filledExchange(spec: CollectiveSpec, { imbalance }: ExpertLoad): CollectiveSpec {
  const { ragged, elements } = spec;
  if (!ragged) return spec;
  return {
    ...spec,
    elements: (elements * Math.min(ragged.rows, ragged.targetRows) * imbalance) / ragged.rows,
  };
}
