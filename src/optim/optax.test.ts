/** Optimisers, schedules and losses compared with optax's figures, which `test/jax/optimizers.py` wrote. */
import { readFileSync } from "node:fs";
import { grad, jit, np, random, type Tensor, tree, valueAndGrad } from "shardwise";
import { describe, expect, test } from "vitest";
import * as optim from "./index.js";

interface LossCase {
  readonly value: readonly number[];
  readonly gradient: readonly number[];
}

interface Golden {
  readonly optimizers: Readonly<Record<string, readonly number[]>>;
  readonly searches: Readonly<Record<string, readonly number[]>>;
  readonly lookahead: readonly number[];
  readonly measurements: readonly (readonly number[])[];
  readonly schedules: Readonly<Record<string, readonly number[]>>;
  readonly losses: Readonly<Record<string, LossCase>>;
}

const golden: Golden = JSON.parse(
  readFileSync(new URL("../../test/jax/optimizers.json", import.meta.url), "utf8"),
);

const wave = (shape: readonly number[], phase: number): Tensor =>
  np
    .sin(
      np
        .arange(
          shape.reduce((a, b) => a * b, 1),
          "float32",
        )
        .mul(0.7)
        .add(phase),
    )
    .reshape(shape);

const start = () => ({ bias: wave([4], 0.3), w: wave([3, 4], 1) });
const gradsOf = (i: number) => ({
  bias: wave([4], i * 1.3).div(i + 1),
  w: wave([3, 4], i * 0.9).mul((-1) ** i),
});

async function numbersOf(values: unknown): Promise<number[]> {
  const tensors = tree.leaves(values) as Tensor[];
  return (await Promise.all(tensors.map(async (x) => [...(await x.data())].map(Number)))).flat();
}

/** Equal to a few units of the last place of the largest number around, which is what float32 keeps. */
function expectEqual(got: readonly number[], want: readonly number[] | undefined): void {
  expect(want).toBeDefined();
  expect(got).toHaveLength(want?.length ?? 0);
  got.forEach((value, i) => {
    const wanted = want?.[i] ?? Number.NaN;
    expect(Math.abs(value - wanted)).toBeLessThanOrEqual(2e-6 + 3e-6 * Math.abs(wanted));
  });
}

async function train<P>(optimizer: optim.GradientTransformation, init: P): Promise<number[]> {
  const step = jit((params: P, state: unknown, grads: unknown) => {
    const [updates, next] = optimizer.update<unknown>(grads, state, params);
    return [optim.applyUpdates<unknown>(params, updates), next] as [P, unknown];
  });
  let params = init;
  let state = optimizer.init(params);
  for (let i = 0; i < 6; i++) [params, state] = step(params, state, gradsOf(i));
  return numbersOf(params);
}

const learningRate = 0.05;
const rising: optim.Schedule = (count) => np.multiply(np.add(np.astype(count, "float32"), 1), 0.01);
const isMatrix = (_: string, p: Tensor) => (p.ndim === 2 ? "w" : "b");

const optimizers: Readonly<Record<string, optim.GradientTransformation>> = {
  rmsprop: optim.rmsprop({ learningRate }),
  "rmsprop centered": optim.rmsprop({
    learningRate,
    decay: 0.8,
    eps: 1e-3,
    centered: true,
    momentum: 0.9,
    nesterov: true,
    initialScale: 1,
  }),
  "rmsprop corrected": optim.rmsprop({ learningRate, epsInSqrt: false, biasCorrection: true, momentum: 0.5 }),
  adagrad: optim.adagrad({ learningRate: 0.1 }),
  adadelta: optim.adadelta({ learningRate: 0.5, rho: 0.8, weightDecay: 0.01 }),
  adafactor: optim.adafactor({ learningRate: 0.1, minDimSizeToFactor: 2 }),
  "adafactor whole": optim.adafactor({
    learningRate: 0.1,
    momentum: 0.9,
    weightDecay: 1e-3,
    clippingThreshold: null,
  }),
  amsgrad: optim.amsgrad({ learningRate }),
  adamax: optim.adamax({ learningRate }),
  adamaxw: optim.adamaxw({ learningRate, weightDecay: 0.1 }),
  nadam: optim.nadam({ learningRate }),
  nadamw: optim.nadamw({ learningRate, weightDecay: 0.1 }),
  adabelief: optim.adabelief({ learningRate }),
  radam: optim.radam({ learningRate }),
  "radam early": optim.radam({ learningRate, b2: 0.9, threshold: 4.5 }),
  yogi: optim.yogi({ learningRate }),
  adan: optim.adan({ learningRate, weightDecay: 0.1 }),
  lamb: optim.lamb({ learningRate, weightDecay: 0.1 }),
  lars: optim.lars({ learningRate: 0.5, weightDecay: 0.1, trustCoefficient: 0.01 }),
  fromage: optim.fromage({ learningRate }),
  "fromage rising": optim.fromage({ learningRate: rising }),
  novograd: optim.novograd({ learningRate, weightDecay: 0.1 }),
  "sign sgd": optim.signSgd({ learningRate }),
  signum: optim.signum({ learningRate }),
  "noisy sgd": optim.noisySgd({ learningRate, key: random.key(3) }),
  optimistic: optim.optimisticGradientDescent({ learningRate, beta: 0.5 }),
  "optimistic adam": optim.optimisticAdam({ learningRate }),
  rprop: optim.rprop({ learningRate }),
  muon: optim.muon({ learningRate, weightDecay: 0.1 }),
  "muon rms": optim.muon({ learningRate, consistentRms: 0.2, adaptive: true, nesterov: false }),
  lbfgs: optim.lbfgs({ learningRate: 0.1, memorySize: 3, linesearch: null }),
  sm3: optim.sm3({ learningRate }),
  "sm3 decaying": optim.chain(optim.scaleBySm3({ b1: 0.8, b2: 0.9, eps: 1e-3 }), optim.scale(-0.05)),
  ema: optim.chain(optim.ema(0.9), optim.scale(-0.1)),
  centralize: optim.chain(optim.centralize(), optim.sgd({ learningRate: 0.1 })),
  clip: optim.chain(optim.clip(0.5), optim.sgd({ learningRate: 0.1 })),
  "clip by block rms": optim.chain(optim.clipByBlockRms(0.3), optim.sgd({ learningRate: 0.1 })),
  "adaptive clip": optim.chain(optim.adaptiveGradClip(0.1), optim.sgd({ learningRate: 0.1 })),
  "block norm": optim.chain(optim.scaleByParamBlockNorm(), optim.sgd({ learningRate: 0.1 })),
  nonnegative: optim.chain(optim.sgd({ learningRate: 0.5 }), optim.keepParamsNonnegative()),
  "apply every": optim.chain(optim.applyEvery(2), optim.sgd({ learningRate: 0.1 })),
  partition: optim.partition({ b: optim.setToZero(), w: optim.adam({ learningRate }) }, isMatrix),
  inject: optim.injectHyperparams({ learningRate: rising, weightDecay: 0.1 }, (h) => optim.adamw(h)),
  "distance over gradients": optim.chain(
    optim.scaleByDistanceOverGradients({ repsRel: 0.1 }),
    optim.scale(-1),
  ),
  "distance options": optim.scaleByDistanceOverGradients({
    repsRel: 0.01,
    eps: 1e-3,
    paramDtype: "bfloat16",
    globalScale: -1,
  }),
  selective: optim.selectiveTransform(optim.adam({ learningRate }), { freezeMask: { bias: true, w: false } }),
  "skip large": optim.multiSteps(optim.sgd({ learningRate: 0.1 }), 2, {
    shouldSkipUpdateFn: optim.skipLargeUpdates(6.9),
  }),
  "decay by schedule": optim.chain(optim.addDecayedWeights(rising), optim.sgd({ learningRate: 0.1 })),
};

type Params = ReturnType<typeof start>;

/** A smooth loss with its smallest value above 0. */
const valley = ({ bias, w }: Params) =>
  np
    .sum(np.cosh(w.sub(0.3)))
    .add(np.sum(np.power(bias.sub(1), 4)))
    .add(np.square(np.sum(bias)).div(2));

/** The loss before each step, and the parameters after the last. */
async function search(optimizer: optim.GradientTransformation, fromState = false): Promise<number[]> {
  const lossAndGrad = fromState
    ? optim.valueAndGradFromState(valley)
    : (p: Params) => valueAndGrad(valley)(p);
  const step = jit((params: Params, before: unknown) => {
    const [value, grads] = lossAndGrad(params, before);
    const [updates, after] = optimizer.update(grads, before, params, { value, grad: grads, valueFn: valley });
    return [optim.applyUpdates(params, updates), after, value] as const;
  });
  const values: Tensor[] = [];
  let params = start();
  let state = optimizer.init(params);
  for (let i = 0; i < 6; i++) {
    const [next, after, value] = step(params, state);
    [params, state] = [next, after];
    values.push(value);
  }
  return numbersOf([values, params]);
}

const backtracking = optim.scaleByBacktrackingLinesearch;
const zoom = optim.scaleByZoomLinesearch;
const sgd = (rate: number) => optim.sgd({ learningRate: rate });
const searches: Readonly<Record<string, readonly [optim.GradientTransformation, fromState?: boolean]>> = {
  backtracking: [optim.chain(sgd(1), backtracking({ maxBacktrackingSteps: 15 }))],
  "backtracking options": [
    optim.chain(
      sgd(2),
      backtracking({
        maxBacktrackingSteps: 15,
        slopeRtol: 0.3,
        decreaseFactor: 0.5,
        increaseFactor: 3,
        maxLearningRate: 2,
        atol: 1e-3,
        rtol: 1e-3,
        storeGrad: true,
      }),
    ),
    true,
  ],
  "backtracking too short": [optim.chain(sgd(100), backtracking({ maxBacktrackingSteps: 3 }))],
  zoom: [optim.chain(sgd(0.02), zoom({ maxLinesearchSteps: 20 })), true],
  "zoom options": [
    optim.chain(
      sgd(3),
      zoom({
        maxLinesearchSteps: 15,
        maxLearningRate: 0.5,
        tol: 1e-3,
        increaseFactor: 1.5,
        slopeRtol: 1e-2,
        curvRtol: 0.1,
        approxDecRtol: null,
        initialGuessStrategy: "one",
      }),
    ),
  ],
  "zoom too short": [optim.chain(sgd(1000), zoom({ maxLinesearchSteps: 3, curvRtol: 1e-3 }))],
  "zoom cubic": [optim.chain(sgd(1), zoom({ maxLinesearchSteps: 20, curvRtol: 1e-2 }))],
  lbfgs: [optim.lbfgs(), true],
  "lbfgs backtracking": [
    optim.lbfgs({ memorySize: 2, linesearch: backtracking({ maxBacktrackingSteps: 10 }) }),
  ],
  polyakSgd: [optim.polyakSgd()],
  "polyakSgd options": [
    optim.polyakSgd({ maxLearningRate: 0.3, scaling: 0.5, fMin: 20, eps: 0.1, variant: "sps+" }),
  ],
  "polyakSgd backwards": [optim.polyakSgd({ maxLearningRate: 0.3, fMin: 20 })],
};

const schedules: Readonly<Record<string, optim.Schedule>> = {
  polynomial: optim.polynomial({ from: 1, to: 0.1, power: 2, steps: 6, begin: 2 }),
  exponential: optim.exponential({ from: 1, steps: 3, decayRate: 0.5, begin: 1, to: 0.2 }),
  staircase: optim.exponential({ from: 1, steps: 3, decayRate: 0.5, staircase: true }),
  "piecewise constant": optim.piecewiseConstant(1, { 2: 0.5, 5: 0.1 }),
  "piecewise linear": optim.piecewiseInterpolate("linear", 1, { 2: 0.5, 6: 3 }),
  "piecewise cosine": optim.piecewiseInterpolate("cosine", 1, { 2: 0.5, 6: 3 }),
  "linear one cycle": optim.linearOneCycle({ steps: 10, peak: 2 }),
  "cosine one cycle": optim.cosineOneCycle({ steps: 10, peak: 2 }),
  "warm-up cosine": optim.warmupCosine({
    from: 0.1,
    peak: 1,
    to: 0.2,
    warmupSteps: 3,
    steps: 9,
    exponent: 2,
  }),
  "warm-up exponential": optim.warmupExponential({ peak: 1, warmupSteps: 3, steps: 2, decayRate: 0.7 }),
  sgdr: optim.sgdr([
    { peak: 1, warmupSteps: 1, steps: 4 },
    { from: 0.1, peak: 0.5, to: 0.05, warmupSteps: 2, steps: 6 },
  ]),
};

const y = wave([3, 4], 1.7);
const softmaxOfY = () => np.exp(y).div(np.sum(np.exp(y), -1, { keepdims: true }));
const likely = () => softmaxOfY().mul(np.astype(np.greater(softmaxOfY(), 0.2), "float32"));
const bits = () => np.astype(np.greater(y, 0), "float32");
const classes = np.array([1, 3, 0], "int32");

/** Logarithms of what is impossible have the size of logEpsilon, and few digits. */
const reachable = (logs: Tensor) => np.where(logs.gt(-1e4), logs, 0);

/** Two inputs of five steps with four classes, and their labels. */
function ctcOperands(x: Tensor): [logits: Tensor, paddings: Tensor, labels: Tensor, labelPaddings: Tensor] {
  const rows = [x, x.get(np.s(0, 2)).mul(0.5).add(0.1), x.get(np.s(0, 1)), x, x.get(np.s(1, 2)).mul(1.5)];
  return [
    np.concatenate(rows).reshape([2, 5, 4]),
    np.array([
      [0, 0, 0, 0, 0],
      [0, 0, 0, 0, 1],
    ]),
    np.array(
      [
        [1, 1, 2],
        [2, 3, 0],
      ],
      "int32",
    ),
    np.array([
      [0, 0, 0],
      [0, 0, 1],
    ]),
  ];
}

const losses: Readonly<Record<string, (x: Tensor) => Tensor>> = {
  squaredError: (x) => optim.squaredError(x, y),
  l2Loss: (x) => optim.l2Loss(x, y),
  huberLoss: (x) => optim.huberLoss(x, y, { delta: 0.7 }),
  logCosh: (x) => optim.logCosh(x, y),
  cosineSimilarity: (x) => optim.cosineSimilarity(x, y),
  cosineDistance: (x) => optim.cosineDistance(x, y, { epsilon: 1e-3, dim: 0 }),
  sigmoidBinaryCrossEntropy: (x) => optim.sigmoidBinaryCrossEntropy(x, bits()),
  sigmoidFocalLoss: (x) => optim.sigmoidFocalLoss(x, bits(), { alpha: 0.3 }),
  hingeLoss: (x) => optim.hingeLoss(x, np.sign(y)),
  perceptronLoss: (x) => optim.perceptronLoss(x, np.sign(y)),
  multiclassHingeLoss: (x) => optim.multiclassHingeLoss(x, classes),
  multiclassPerceptronLoss: (x) => optim.multiclassPerceptronLoss(x, classes),
  softmaxCrossEntropy: (x) => optim.softmaxCrossEntropy(x, softmaxOfY()),
  "softmaxCrossEntropy where": (x) =>
    optim.softmaxCrossEntropy(x, softmaxOfY(), { where: np.greater(wave([3, 4], 0.9), -0.6) }),
  safeSoftmaxCrossEntropy: (x) => optim.safeSoftmaxCrossEntropy(x, likely()),
  integerLabels: (x) => optim.softmaxCrossEntropyWithIntegerLabels(x, classes),
  "integerLabels dim 0": (x) =>
    optim.softmaxCrossEntropyWithIntegerLabels(x, np.array([0, 2, 1, 1], "int32"), { dim: 0 }),
  "integerLabels two dims": (x) =>
    optim.softmaxCrossEntropyWithIntegerLabels(x.reshape([2, 3, 2]), np.array([4, 1], "int32"), {
      dim: [1, 2],
    }),
  polyLossCrossEntropy: (x) => optim.polyLossCrossEntropy(x, softmaxOfY(), { epsilon: 1.5 }),
  klDivergence: (x) => optim.klDivergence(x, likely()),
  klDivergenceWithLogTargets: (x) => optim.klDivergenceWithLogTargets(x, y),
  generalizedKlDivergence: (x) => optim.generalizedKlDivergence(x, softmaxOfY()),
  smoothLabels: (x) => optim.smoothLabels(x, 0.1),
  tripletMarginLoss: (x) => optim.tripletMarginLoss(x, y, y.mul(0.5).add(0.1)),
  ntxent: (x) => optim.ntxent(x, np.array([0, 1, 0], "int32"), 0.5),
  ctcLoss: (x) => optim.ctcLoss(...ctcOperands(x)),
  "ctcLossWithForwardProbs phi": (x) => reachable(optim.ctcLossWithForwardProbs(...ctcOperands(x))[1]),
  "ctcLossWithForwardProbs emit": (x) => reachable(optim.ctcLossWithForwardProbs(...ctcOperands(x))[2]),
  perExampleGlobalNormClip: (x) => optim.perExampleGlobalNormClip([x, y], 1.5)[0][0] ?? x,
  perExampleLayerNormClip: (x) =>
    optim.perExampleLayerNormClip([x, y.get(np.s(), np.s(0, 1))], 1.5)[0][0] ?? x,
  "perExampleLayerNormClip by size": (x) =>
    optim.perExampleLayerNormClip([x, y.get(np.s(), np.s(0, 1))], 1.5, false)[0][0] ?? x,
  scaleGradient: (x) => np.square(optim.scaleGradient(x, -0.3)),
};

describe("six compiled steps agree with optax", () => {
  test("every optimiser of the golden is here", () => {
    expect(Object.keys(optimizers).sort()).toEqual(Object.keys(golden.optimizers).sort());
    expect(Object.keys(schedules).sort()).toEqual(Object.keys(golden.schedules).sort());
    expect(Object.keys(losses).sort()).toEqual(Object.keys(golden.losses).sort());
  });

  test.each(Object.entries(optimizers))("%s", async (name, optimizer) => {
    expectEqual(await train(optimizer, start()), golden.optimizers[name]);
  });

  test("lookahead", async () => {
    const optimizer = optim.lookahead(optim.adam({ learningRate }), {
      syncPeriod: 2,
      slowStepSize: 0.5,
      resetState: true,
    });
    expectEqual(await train(optimizer, optim.lookaheadParams(start())), golden.lookahead);
  });
});

test("measurements of updates agree with optax, and leave them as they are", async () => {
  const norm: optim.Measure = (updates) => optim.globalNorm(updates);
  const step = optim.monitor({ norm, mean: optim.measureWithEma(norm, 0.8) });
  let state = step.init(start());
  for (const [i, wanted] of golden.measurements.entries()) {
    const [updates, next] = step.update(gradsOf(i), state);
    state = next;
    // optax sorts names.
    const { norm: size, mean } = state.measurements;
    expectEqual(await numbersOf([mean, size]), wanted);
    expect(await numbersOf(updates)).toEqual(await numbersOf(gradsOf(i)));
  }
  const last = optim.snapshot("norm", norm);
  expectEqual(
    await numbersOf(last.update(gradsOf(5), last.init(start()))[1].measurement),
    golden.measurements[5]?.slice(1),
  );
});

test("gradients that are not finite are left out, and counted", async () => {
  const step = optim.multiSteps(sgd(1), 2, { shouldSkipUpdateFn: optim.skipNotFinite });
  const [params, good] = [np.zeros([2]), np.array([1, 2])];
  let state = step.init(params);
  const updates: number[][] = [];
  for (const grads of [good, np.array([Number.NaN, Number.POSITIVE_INFINITY]), good.mul(3)]) {
    const [update, next] = step.update(grads, state, params);
    updates.push(await numbersOf(update));
    state = next;
    if (updates.length === 2) expect(await numbersOf(state.skipState)).toEqual([2, 1]);
  }
  expect(updates).toEqual([
    [0, 0],
    [0, 0],
    [-2, -4],
  ]);
});

test("gradients of examples have a first dim of examples", () => {
  expect(() => optim.perExampleGlobalNormClip({ a: np.ones([2]), b: np.ones([3]) }, 1)).toThrow(
    "take them with vmap(grad(loss))",
  );
  expect(() => optim.perExampleLayerNormClip(np.ones([]), 1)).toThrow("vmap(grad(loss))");
});

describe("six steps of searched length agree with optax", () => {
  test("every search of the golden is here", () => {
    expect(Object.keys(searches).sort()).toEqual(Object.keys(golden.searches).sort());
  });

  test.each(Object.entries(searches))("%s", async (name, [optimizer, fromState]) => {
    expectEqual(await search(optimizer, fromState), golden.searches[name]);
  });

  test("the loss reaches transformations inside of masks, partitions and several calls", async () => {
    for (const name of ["polyakSgd", "lbfgs backtracking"]) {
      const [optimizer = sgd(1)] = searches[name] ?? [];
      for (const wrapped of [
        optim.masked(optimizer, true),
        optim.partition({ all: optimizer }, () => "all"),
        optim.multiSteps(optimizer, 1),
      ]) {
        expectEqual(await search(wrapped, false), golden.searches[name]);
      }
    }
  });

  test("the loss is asked for", () => {
    const params = start();
    const { update, init } = optim.lbfgs();
    expect(() => update(params, init(params), params)).toThrow(
      "[scaleByZoomLinesearch] needs the loss: call update(grads, state, params, { value, grad, valueFn })",
    );
    expect(() => optim.valueAndGradFromState(valley)(params, sgd(1).init(params))).toThrow(/use scaleByZoom/);
    expect(() => optim.polyakSgd().update(params, optim.polyakSgd().init(params))).toThrow(/needs the loss/);
  });
});

describe("a loss", () => {
  test("takes floats alone, as in optax", () => {
    const whole = np.array([[1, 2]], "uint8");
    const floats = np.ones([1, 2]);
    for (const loss of [
      optim.squaredError,
      optim.logCosh,
      optim.cosineSimilarity,
      optim.sigmoidBinaryCrossEntropy,
      optim.sigmoidFocalLoss,
      optim.softmaxCrossEntropy,
      optim.klDivergence,
    ]) {
      expect(() => loss(whole, floats)).toThrow(/takes floats, got u8\[1,2\]: convert them with astype/);
    }
    expect(() => optim.tripletMarginLoss(floats, whole, floats)).toThrow(/tripletMarginLoss.*takes floats/);
  });
});

describe("a schedule agrees with optax", () => {
  test.each(Object.entries(schedules))("%s", async (name, schedule) => {
    const values = Array.from({ length: 12 }, (_, i) => schedule(i));
    expectEqual(await numbersOf(values), golden.schedules[name]);
  });
});

describe("a loss and its gradient agree with optax", () => {
  const x = wave([3, 4], 0.2).mul(2);
  const weighted = (loss: Tensor) =>
    np.sum(loss.mul(np.cos(np.arange(loss.size, "float32")).reshape(loss.shape)));

  test.each(Object.entries(losses))("%s", async (name, loss) => {
    const want = golden.losses[name];
    expectEqual(await numbersOf(loss(x)), want?.value);
    const gradient = grad((v: Tensor) => weighted(loss(v)))(x);
    expectEqual(await numbersOf(gradient), want?.gradient);
  });
});

test("losses of integer scores are floats", async () => {
  const scores = np.array([1, 3, 2], "uint8");
  expect(optim.multiclassHingeLoss(scores, 2)).toEqual(np.array(2));
  expect(optim.multiclassPerceptronLoss(scores.astype("int32"), 2)).toEqual(np.array(1));
  expect(optim.multiclassHingeLoss(scores.astype("float16"), 2)).toEqual(np.array(2));
  expect(optim.multiclassPerceptronLoss(scores.astype("bfloat16"), 2)).toEqual(np.array(1));
});
