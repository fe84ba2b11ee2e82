/** Balancing the load of experts without a loss: each step moves the biases of routers by a fixed amount. */
import * as np from "../../numpy/index.js";
import type { GradientTransformation } from "../../optim/index.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";

/** The name of the parameter that `nn.MoE` adds to scores. */
const biasName = "balanceBias";

function mapBiases<T>(values: T, fn: (bias: Tensor) => Tensor): T {
  const change = (path: string, leaf: unknown) =>
    leaf instanceof Tensor && path.includes(biasName) ? fn(leaf) : leaf;
  return tree.mapWithPath<T, unknown, unknown>(change, values) as T;
}

/** Gradients with zeros for biases, whose gradients are the surplus of their experts. */
export function withoutSurplus<T>(grads: T): T {
  return mapBiases(grads, (bias) => np.zerosLike(bias));
}

/** An optimiser that lowers the bias of experts with more tokens than the mean, and raises that of the others. */
export function balancingBias(optimizer: GradientTransformation, rate: number): GradientTransformation {
  if (rate === 0) return optimizer;
  return {
    ...optimizer,
    update: (grads, state, params, extra) => {
      const [updates, next] = optimizer.update(withoutSurplus(grads), state, params, extra);
      const surplus = new Map<string, Tensor>();
      tree.mapWithPath<typeof grads, unknown, unknown>((path, leaf) => {
        if (leaf instanceof Tensor) surplus.set(path, leaf);
        return leaf;
      }, grads);
      const change = (path: string, leaf: unknown) => {
        const own = path.includes(biasName) ? surplus.get(path) : undefined;
        return own ? np.sign(own).mul(-rate) : leaf;
      };
      return [tree.mapWithPath<typeof updates, unknown, unknown>(change, updates) as typeof updates, next];
    },
  };
}
