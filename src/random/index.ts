export * from "./continuous.js";
export * from "./counts.js";
export type { CategoricalOptions, ChoiceOptions, PermutationOptions } from "./discrete.js";
export { categorical, choice, permutation, randint } from "./discrete.js";
export type { BernoulliOptions, GumbelMode, GumbelOptions, UniformOptions } from "./floats.js";
export {
  bernoulli,
  exponential,
  gumbel,
  laplace,
  logistic,
  normal,
  truncatedNormal,
  uniform,
} from "./floats.js";
export * from "./gamma.js";
export type { Distribution, FanDims, FanMode, Initializer } from "./initializers.js";
export * as initializers from "./initializers.js";
export { bits, clone, foldIn, key, split } from "./keys.js";
export * from "./orthogonal.js";
export type { Parameter } from "./parameters.js";
