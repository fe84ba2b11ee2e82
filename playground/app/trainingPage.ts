/** The page on which a small language model is trained on a mesh that the user chooses. */
import type { FromTraining, ToTraining } from "../workers/training.js";
import { batch, firstSample, numLayers } from "../workers/trainingSizes.js";
import { Curve } from "./curve.js";
import { deviceColour, facts, h } from "./dom.js";
import type { Page } from "./main.js";
import { timelinePicture } from "./timeline.js";

const sizes = [1, 2, 4] as const;
const axes = {
  data: "data: the whole model, a part of the batch",
  pipe: "pipe: some of the layers",
  model: "model: a part of every matrix",
} as const;
type Axis = keyof typeof axes;

/** One of several equal parts of things that are counted from 1 on: `rows 1–8`. */
function part(what: string, total: number, index: number, count: number): string {
  const each = total / count;
  const first = index * each + 1;
  return each === 1 ? `${what} ${first}` : `${what}s ${first}–${first + each - 1}`;
}

/** What each device of a mesh has: a part of the batch, some layers, a part of their matrices. */
function devicesOf({ data, pipe, model }: Readonly<Record<Axis, number>>): HTMLElement[] {
  return Array.from({ length: data * pipe * model }, (_, device) => {
    const [d, p, m] = [
      Math.floor(device / (pipe * model)),
      Math.floor(device / model) % pipe,
      device % model,
    ];
    return h(
      "li",
      { style: `background: ${deviceColour(device)}` },
      h("b", {}, `device ${device}`),
      h("span", {}, part("row", batch, d, data)),
      h("span", {}, part("layer", numLayers, p, pipe)),
      h("span", {}, model === 1 ? "whole matrices" : `part ${m + 1} of ${model} of each matrix`),
    );
  });
}

/** The GPU that this browser offers, if there is one: hardware, or a program on the processor. */
async function findGpu(): Promise<"hardware" | "software" | undefined> {
  try {
    const adapter = await navigator.gpu?.requestAdapter();
    if (!adapter) return undefined;
    const { isFallbackAdapter, architecture } = adapter.info;
    return isFallbackAdapter || architecture === "swiftshader" ? "software" : "hardware";
  } catch {
    return undefined;
  }
}

export const page: Page = (root) => {
  const mesh: Record<Axis, number> = {
    // Several devices in one thread are much slower than one.
    data: crossOriginIsolated ? Math.min(2, navigator.hardwareConcurrency || 1) : 1,
    pipe: 1,
    model: 1,
  };
  let worker: Worker | undefined;
  let clock: ReturnType<typeof setInterval> | undefined;
  const status = h("div", { class: "status", role: "status" });
  const devices = h("ol", { class: "devices", "aria-label": "Devices of the mesh" });
  const figures = h("div", {});
  const curves = h("div", { class: "cards" });
  const timeline = h("div", {});
  const sample = h("pre", { class: "output" });
  const size = () => mesh.data * mesh.pipe * mesh.model;
  const cores = navigator.hardwareConcurrency || 1;

  const own = crossOriginIsolated ? "workers" : "one thread";
  const onGpu = h("option", { disabled: true }, "WebGPU (none here)");
  const engine = h("select", { onchange: () => say() }, h("option", {}, own), onGpu);
  const isOnGpu = () => engine.selectedIndex === 1;
  // Asked only when somebody looks: browsers without a GPU complain in the console.
  const lookForGpu = async () => {
    const found = await findGpu();
    if (found === undefined) return;
    onGpu.disabled = false;
    onGpu.textContent = found === "hardware" ? "WebGPU" : "WebGPU in software (slow)";
  };
  engine.addEventListener("focus", () => void lookForGpu(), { once: true });

  const say = () => {
    const count = `${size()} ${size() === 1 ? "device" : "devices"}`;
    if (isOnGpu()) {
      status.textContent = `${count}${size() === 1 ? "" : ", which share the GPU of this machine"}.`;
      return;
    }
    const more =
      size() > cores ? ` That is more than the ${cores} processors of this machine: they take turns.` : "";
    const alone = crossOriginIsolated
      ? ""
      : " This page is not cross-origin isolated, so that all devices take turns in one thread.";
    status.textContent = `${count}, each a worker of this tab.${more}${alone}`;
  };
  const choose = (axis: Axis) =>
    h(
      "fieldset",
      {},
      h("legend", {}, axes[axis]),
      ...sizes.map((count) =>
        h(
          "label",
          {},
          h("input", {
            type: "radio",
            name: axis,
            checked: mesh[axis] === count,
            onchange: () => {
              mesh[axis] = count;
              devices.replaceChildren(...devicesOf(mesh));
              say();
            },
          }),
          String(count),
        ),
      ),
    );

  function fail(message: string): void {
    status.textContent = message;
    status.classList.add("error");
    stop();
  }

  /** Says what goes on before the first step, and for how long already. */
  function wait(engine: string): void {
    clearInterval(clock);
    const seconds = h("span", { "aria-hidden": "true" });
    const since = performance.now();
    status.replaceChildren(`Compiling the step${engine} … `, seconds);
    clock = setInterval(() => {
      seconds.textContent = `${Math.round((performance.now() - since) / 1000)} s`;
    }, 1000);
  }

  function stop(): void {
    clearInterval(clock);
    worker?.terminate();
    worker = undefined;
    start.disabled = false;
    end.disabled = true;
  }

  function begin(): void {
    stop();
    const loss = new Curve("Loss");
    const speeds: number[] = [];
    curves.replaceChildren(
      h("div", { class: "card" }, h("h3", {}, "Loss"), loss.element),
      h("div", { class: "card" }, h("h3", {}, "What the devices do"), timeline),
      h("div", { class: "card" }, h("h3", {}, "What it writes"), sample),
    );
    timeline.replaceChildren(h("p", {}, "Shown after a few steps."));
    sample.textContent = `Shown after ${firstSample} steps.`;
    figures.replaceChildren();
    wait("");
    status.classList.remove("error");
    start.disabled = true;
    end.disabled = false;
    let [model, training] = ["", ""];
    worker = new Worker("training.js", { type: "module" });
    worker.onmessage = ({ data }: MessageEvent<FromTraining>) => {
      switch (data.kind) {
        case "ready":
          model = data.parameters.toLocaleString("en");
          training = `Training on ${data.tokens.toLocaleString("en")} bytes of a novel, engine ${data.engine}.`;
          if (isOnGpu()) wait(` for ${data.engine}`);
          break;
        case "step": {
          // The first one compiles.
          if (data.step === 1) {
            clearInterval(clock);
            status.textContent = training;
          }
          loss.add(data.loss);
          speeds.push(data.tokensPerSecond);
          const middle =
            speeds.slice(-20).sort((a, b) => a - b)[Math.floor(Math.min(20, speeds.length) / 2)] ?? 0;
          figures.replaceChildren(
            facts([
              ["step", String(data.step)],
              ["loss", data.loss.toFixed(3)],
              ["tokens a second", Math.round(middle).toLocaleString("en")],
              ["parameters", model],
            ]),
          );
          break;
        }
        case "timeline":
          timeline.replaceChildren(
            data.spans.length > 0
              ? timelinePicture(data.spans, data.ms)
              : h("p", {}, "Here the devices take turns, which has no timeline."),
          );
          break;
        case "sample":
          sample.textContent = data.text;
          break;
        case "ended":
          status.textContent = "Finished.";
          stop();
          break;
        case "failed":
          fail(data.message);
          break;
      }
    };
    worker.onerror = ({ message }) => fail(message || "The worker did not start.");
    worker.postMessage({ ...mesh, steps: 600, onGpu: isOnGpu() } satisfies ToTraining);
  }

  const start = h("button", { class: "main", onclick: begin }, "Train");
  const end = h(
    "button",
    {
      disabled: true,
      onclick: () => {
        stop();
        status.textContent = "Stopped.";
      },
    },
    "Stop",
  );
  root.append(
    h("h2", {}, "Training"),
    h(
      "p",
      {},
      "A small Llama learns to write like the novel that comes with the package. Choose what each device has; the losses agree whatever you choose.",
    ),
    h("div", { class: "mesh" }, choose("data"), choose("pipe"), choose("model")),
    devices,
    h("div", { class: "bar" }, start, end, h("label", {}, "Engine", engine)),
    status,
    figures,
    curves,
  );
  devices.replaceChildren(...devicesOf(mesh));
  say();
  return stop;
};
