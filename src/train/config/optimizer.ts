import {
  adam,
  adamw,
  chain,
  clipByGlobalNorm,
  constant,
  decayMask,
  type GradientTransformation,
  join,
  linear,
  lion,
  momentum,
  type Schedule,
  sgd,
  warmupCosine,
  wsd,
} from "../../optim/index.js";
import type { RunConfig } from "./runConfig.js";

/** Final learning rate of a decaying schedule, as a share of the highest one. */
const finalShare = 0.1;

/** The learning rate schedule of a run. */
export function runSchedule({ optimizer, steps }: RunConfig): Schedule {
  const { learningRate: peak, schedule } = optimizer;
  const warmupSteps = Math.min(optimizer.warmup, steps - 1);
  const rest = steps - warmupSteps;
  const to = peak * finalShare;
  const rise = linear({ from: 0, to: peak, steps: warmupSteps });
  const afterRise = (then: Schedule) => (warmupSteps === 0 ? then : join([rise, then], [warmupSteps]));
  switch (schedule) {
    case "constant":
      return afterRise(constant(peak));
    case "linear":
      return afterRise(linear({ from: peak, to, steps: rest }));
    case "cosine":
      return warmupCosine({ peak, to, warmupSteps, steps });
    case "wsd": {
      const decaySteps = Math.ceil(rest / 5);
      return wsd({ peak, to, warmupSteps, stableSteps: rest - decaySteps, decaySteps });
    }
  }
}

/** The optimiser of a run: clipping, then the rule with its schedule; norms and biases do not decay. */
export function runOptimizer(config: RunConfig): GradientTransformation {
  const { kind, weightDecay, clip } = config.optimizer;
  const learningRate = runSchedule(config);
  const rules: { readonly [K in typeof kind]: () => GradientTransformation } = {
    sgd: () => sgd({ learningRate }),
    momentum: () => momentum({ learningRate }),
    adam: () => adam({ learningRate, b2: 0.95 }),
    adamw: () => adamw({ learningRate, b2: 0.95, weightDecay, mask: decayMask }),
    lion: () => lion({ learningRate, weightDecay, mask: decayMask }),
  };
  return clip > 0 ? chain(clipByGlobalNorm(clip), rules[kind]()) : rules[kind]();
}
