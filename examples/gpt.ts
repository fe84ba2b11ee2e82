/**
 * A small GPT that learns to write like a novel, on 2 x 2 devices: the batch and every parameter are split over `fsdp`,
 * heads, inner features and the vocabulary over `model`; layers are a scan whose values are computed again on the way
 * back. It ends with an error unless the loss on unseen text falls below the target.
 *
 *   npm run example -- gpt
 */
import { evalShape, jit, Mesh, np, P, random, type Tensor, valueAndGrad, withMesh } from "shardwise";
import * as nn from "shardwise/nn";
import * as optim from "shardwise/optim";
import { bundledText, byteTokenizer, openBatches, tokenRange, tokensInMemory } from "shardwise/train";

const steps = Number(process.env.STEPS ?? 400);
const target = Number(process.env.TARGET ?? 2.4);
const [vocabSize, width, numHeads, numLayers, length, batchSize] = [256, 64, 4, 3, 64, 16];

const mesh = Mesh.create({ fsdp: 2, model: 2 });
const rules: nn.LogicalRules = [
  ["batch", "fsdp"],
  ["embed", "fsdp"],
  ["heads", "model"],
  ["mlp", "model"],
  ["vocab", "model"],
];
const named = <T>(fn: () => T): T => withMesh(mesh, () => nn.logicalAxisRules(rules, fn));
const kernel = (...names: string[]) => nn.withLogicalPartitioning(random.initializers.lecunNormal(), names);
const dense = (features: number, from: string, to: string, name: string) =>
  nn.Dense({ features, useBias: false, kernelInit: kernel(from, to), name });
const byRows = (x: Tensor) => nn.withLogicalConstraint(x, ["batch", null, null]);

const Block = nn.module("Block", () => (x: Tensor): [Tensor, null] => {
  const h = nn.RMSNorm()(x);
  const split = [...x.shape.slice(0, 2), numHeads, width / numHeads];
  const heads = (name: string) => dense(width, "embed", "heads", name)(h).reshape(split);
  const seen = nn.dotProductAttention(heads("query"), heads("key"), heads("value"), { isCausal: true });
  const y = x.add(dense(width, "heads", "embed", "out")(seen.reshape(x.shape)));
  const inner = nn.gelu(dense(4 * width, "embed", "mlp", "up")(nn.RMSNorm()(y)));
  return [byRows(y.add(dense(width, "mlp", "embed", "down")(inner))), null];
});

const Gpt = nn.module("Gpt", () => (tokens: Tensor): Tensor => {
  const embed = (numEmbeddings: number, name: string) =>
    nn.Embed({ numEmbeddings, features: width, embeddingInit: kernel("vocab", "embed"), name });
  const places = np.arange(length, { dtype: "int32" });
  const x = embed(vocabSize, "tokens")(tokens).add(embed(length, "places")(places));
  const Layers = nn.scan(nn.remat(Block), {
    variableAxes: { params: 0 },
    splitRngs: { params: true },
    length: numLayers,
    metadataParams: { partitionName: "layer" },
  });
  return dense(vocabSize, "embed", "vocab", "logits")(nn.RMSNorm()(Layers({ name: "layers" })(byRows(x))[0]));
});

const model = Gpt();
const learningRate = optim.warmupCosine({ peak: 5e-3, warmupSteps: 10, steps: Math.max(steps, 11) });
const optimizer = optim.chain(optim.clipByGlobalNorm(1), optim.adamw({ learningRate }));
const init = (key: Tensor) => {
  const params = named(() => model.init(key, np.zeros([2, length], "int32")));
  return { params, moments: optimizer.init(params) };
};
const loss = (params: nn.Variables, inputs: Tensor, targets: Tensor) => {
  const logits = named(() => model.apply(params, inputs));
  return np.mean(optim.softmaxCrossEntropyWithIntegerLabels(logits, targets));
};
const step = ({ params, moments }: ReturnType<typeof init>, inputs: Tensor, targets: Tensor) => {
  const [value, grads] = valueAndGrad(loss)(params, inputs, targets);
  const [updates, next] = optimizer.update(grads, moments, params);
  return [{ params: optim.applyUpdates(params, updates), moments: next }, value] as const;
};

const specs = nn.getPartitionSpec(evalShape(init)(random.key(0)));
const shardings = nn.logicalToMeshSharding(specs, mesh, rules);
const [inShardings, outShardings] = [[shardings, P("fsdp"), P("fsdp")] as const, [shardings, P()] as const];
const train = jit(step, { mesh, inShardings, outShardings, donate: 0 });

const text = byteTokenizer().encode((await bundledText()).slice(0, 24).join("\n"));
const source = tokensInMemory(text, vocabSize);
const read = (from: number, to: number) =>
  openBatches(tokenRange(source, from, to), { sequenceLength: length, batchSize });
const [seen, unseen] = [read(0, text.length - 20_000), read(text.length - 20_000, text.length)];
const tensors = async (batches: typeof seen) => {
  const { inputs, targets, shape } = await batches.next();
  return [np.array(inputs).reshape(shape), np.array(targets).reshape(shape)] as const;
};

let state = jit(init, { mesh, outShardings: shardings })(random.key(0));
for (let i = 1; i <= steps; i++) {
  const [next, value] = train(state, ...(await tensors(seen)));
  state = next;
  if (i % 50 === 0) console.log(`step ${i}: loss ${(await value.item()).toFixed(3)}`);
}
const evaluate = jit(loss, { mesh });
const losses = [];
for (let i = 0; i < 8; i++) losses.push(await evaluate(state.params, ...(await tensors(unseen))).item());
const reached = losses.reduce((a, b) => a + b) / losses.length;
console.log(`loss ${reached.toFixed(3)} on unseen text`);
if (!(reached < target)) throw new Error(`the loss ${reached} is not below ${target}`);
