/** JAX's `scipy.stats`: distributions, and what samples tell. */
export {
  beta,
  cauchy,
  chi2,
  expon,
  gamma,
  gennorm,
  gumbelL,
  gumbelR,
  laplace,
  logistic,
  norm,
  pareto,
  t,
  truncnorm,
  uniform,
  vonmises,
  wrapcauchy,
} from "./continuous.js";
export { bernoulli, betabinom, binom, geom, nbinom, poisson } from "./discrete.js";
export type { Continuous, Discrete, Fixed } from "./families.js";
export { dirichlet, multinomial, multivariateNormal } from "./multivariate.js";
export {
  type Bandwidth,
  type GaussianKde,
  type GaussianKdeOptions,
  gaussianKde,
  type ModeOptions,
  type ModeResult,
  mode,
  type RankOptions,
  rankdata,
  type SemOptions,
  sem,
} from "./samples.js";
