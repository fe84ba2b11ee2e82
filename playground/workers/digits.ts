/** Learns digits that are drawn with the fonts of this machine, and names those that are drawn by hand. */
import { jit, np, random, type Tensor, valueAndGrad } from "shardwise";
import * as nn from "shardwise/nn";
import { adam, applyUpdates, softmaxCrossEntropyWithIntegerLabels } from "shardwise/optim";

/** What the page asks for: to learn, or which digit some pixels are. */
export type ToDigits = { readonly kind: "learn" } | { readonly kind: "name"; readonly pixels: Float32Array };

/** What the page is told. */
export type FromDigits =
  | { readonly kind: "step"; readonly step: number; readonly loss: number; readonly accuracy?: number }
  | { readonly kind: "learned" }
  | { readonly kind: "named"; readonly chances: readonly number[] }
  | { readonly kind: "failed"; readonly message: string };

export const side = 28;
const [steps, batch] = [240, 64];
const fonts = ["sans-serif", "serif", "monospace", "cursive", "system-ui"];
const tell = (message: FromDigits): void => postMessage(message);

/** Draws labelled digits: each in some font, moved, turned, slanted and as thick as a pen draws. */
function draw(count: number): { images: Tensor; labels: Tensor } {
  const canvas = new OffscreenCanvas(side, side);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (!context) throw new Error("this browser cannot draw in workers");
  const labels = Int32Array.from({ length: count }, () => Math.floor(Math.random() * 10));
  const pixels = new Float32Array(count * side * side);
  const between = (low: number, high: number) => low + Math.random() * (high - low);
  labels.forEach((label, i) => {
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = "#fff";
    context.fillRect(0, 0, side, side);
    context.translate(side / 2 + between(-2, 2), side / 2 + between(-2, 2));
    context.rotate(between(-0.25, 0.25));
    context.transform(between(0.8, 1.15), 0, between(-0.25, 0.25), between(0.85, 1.1), 0, 0);
    context.font = `${Math.random() < 0.3 ? "bold " : ""}${between(20, 25)}px ${fonts[Math.floor(between(0, fonts.length))]}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = between(0, 2.2);
    context.fillStyle = "#000";
    context.strokeStyle = "#000";
    context.fillText(String(label), 0, 1);
    context.strokeText(String(label), 0, 1);
    const { data } = context.getImageData(0, 0, side, side);
    for (let p = 0; p < side * side; p++) pixels[i * side * side + p] = 1 - (data[4 * p] ?? 255) / 255;
  });
  return { images: np.array(pixels).reshape([count, side, side, 1]), labels: np.array(labels) };
}

const Cnn = nn.module("Cnn", () => (images: Tensor) => {
  let h = images;
  for (const features of [8, 16]) {
    h = nn.maxPool(nn.relu(nn.Conv({ features, kernelSize: [3, 3] })(h)), [2, 2], { strides: [2, 2] });
  }
  return nn.Dense({ features: 10 })(nn.relu(nn.Dense({ features: 64 })(h.reshape([h.shape[0] ?? 0, -1]))));
});

const model = Cnn();
const optimizer = adam({ learningRate: 2e-3 });
let variables: nn.Variables | undefined;

const step = jit(
  ([now, moments]: [nn.Variables, ReturnType<typeof optimizer.init>], images: Tensor, labels: Tensor) => {
    const loss = (all: nn.Variables) =>
      np.mean(softmaxCrossEntropyWithIntegerLabels(model.apply(all, images), labels));
    const [value, grads] = valueAndGrad(loss)(now);
    const [moves, next] = optimizer.update(grads, moments, now);
    return [[applyUpdates(now, moves), next], value] as const;
  },
);
const chances = jit((all: nn.Variables, images: Tensor) => nn.softmax(model.apply(all, images)));

async function learn(): Promise<void> {
  const start = model.init(random.key(0), np.zeros([1, side, side, 1]));
  let state: Parameters<typeof step>[0] = [start, optimizer.init(start)];
  for (let i = 1; i <= steps; i++) {
    const { images, labels } = draw(batch);
    const [next, value] = step(state, images, labels);
    state = next as typeof state;
    variables = state[0];
    const loss = await value.item();
    if (i % 40 > 0) tell({ kind: "step", step: i, loss });
    else {
      const unseen = draw(200);
      const named = np.argmax(chances(variables, unseen.images), -1);
      const right = np.mean(np.equal(named, unseen.labels).astype("float32"));
      tell({ kind: "step", step: i, loss, accuracy: await right.item() });
    }
  }
  tell({ kind: "learned" });
}

addEventListener("message", async ({ data }: MessageEvent<ToDigits>) => {
  try {
    if (data.kind === "learn") await learn();
    else if (variables) {
      const found = await chances(variables, np.array(data.pixels).reshape([1, side, side, 1])).data();
      tell({ kind: "named", chances: Array.from(found as ArrayLike<number>) });
    }
  } catch (error) {
    tell({ kind: "failed", message: error instanceof Error ? error.message : String(error) });
  }
});
