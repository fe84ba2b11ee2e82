import { type ExpertsConfig, mixtralExperts as mixtral } from "../models/experts.js";
import { choice, decimal, type Field, flag, integer } from "./configSchema.js";

/** The fields of a run with a mixture of experts; the defaults are those of Mixtral. */
export const expertsSchema: { readonly [K in keyof ExpertsConfig]: Field<ExpertsConfig[K]> } = {
  numExperts: integer(mixtral.numExperts, "number of routed experts"),
  numExpertsPerToken: integer(mixtral.numExpertsPerToken, "experts of each token"),
  expertWidth: integer(mixtral.expertWidth, "inner width of an expert; 0 for mlpWidth", 0),
  gate: choice(mixtral.gate, "how logits become scores", ["softmax", "sigmoid"]),
  normalizeGates: flag(mixtral.normalizeGates, "whether the weights of a token's experts add up to 1"),
  gateScale: decimal(mixtral.gateScale, "factor of all weights"),
  numSharedExperts: integer(mixtral.numSharedExperts, "experts that see every token", 0),
  capacityFactor: decimal(
    mixtral.capacityFactor,
    "limit of an expert as a multiple of its share; 0 for none",
  ),
  balanceLoss: decimal(mixtral.balanceLoss, "weight of the load-balance loss"),
  zLoss: decimal(mixtral.zLoss, "weight of the router's z-loss"),
  biasRate: decimal(mixtral.biasRate, "change of the balancing bias in a step; 0 for none"),
};
