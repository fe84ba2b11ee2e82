/** The experts of a model: how many there are, and how tokens choose them. */

/** How a mixture of experts is made and trained; the defaults are those of Mixtral. */
export interface ExpertsConfig {
  readonly numExperts: number;
  readonly numExpertsPerToken: number;
  /** The inner width of an expert; `mlpWidth` for 0. */
  readonly expertWidth: number;
  readonly gate: "softmax" | "sigmoid";
  readonly normalizeGates: boolean;
  readonly gateScale: number;
  readonly numSharedExperts: number;
  /** What an expert takes of a sequence, as a multiple of its equal share; nothing is dropped for 0. */
  readonly capacityFactor: number;
  /** The weights of the load-balance loss and of the router's z-loss. */
  readonly balanceLoss: number;
  readonly zLoss: number;
  /** By how much a step changes the bias of experts with too many or too few tokens; there is none for 0. */
  readonly biasRate: number;
}

/** The experts of Mixtral. */
export const mixtralExperts: ExpertsConfig = {
  numExperts: 8,
  numExpertsPerToken: 2,
  expertWidth: 0,
  gate: "softmax",
  normalizeGates: true,
  gateScale: 1,
  numSharedExperts: 0,
  capacityFactor: 0,
  balanceLoss: 0.01,
  zLoss: 0.001,
  biasRate: 0,
};

/** A model's configuration, as far as it is about experts. */
interface HasExperts {
  readonly experts?: Partial<ExpertsConfig>;
}

/** The experts of a model, with defaults. */
export function expertsOf({ experts }: HasExperts): ExpertsConfig {
  return { ...mixtralExperts, ...experts };
}

/** The statistics of routers in the order in which they travel, before the load of every expert. */
export const travelling = ["loadBalance", "z", "surplus", "dropped", "entropy"] as const;

/** The number of features that the statistics of routers take. */
export function numStatistics(config: HasExperts): number {
  return travelling.length + expertsOf(config).numExperts;
}
