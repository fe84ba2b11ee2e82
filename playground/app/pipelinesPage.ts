/** The page on which schedules of pipelines are drawn, simulated and measured. */
import {
  makeSchedule,
  type ScheduleName,
  scheduleNames,
  scheduleSvg,
  simulateSchedule,
} from "shardwise/parallel";
import type { FromPipeline } from "../workers/pipeline.js";
import { amount, deviceColour, facts, formatMs, h, menu, picture, svg, table } from "./dom.js";
import type { Page } from "./main.js";
import { timelinePicture } from "./timeline.js";

/** How many activations every stage holds over time. */
function memoryPicture(
  stages: readonly (readonly { readonly kind: string; readonly begin: number; readonly end: number }[])[],
  length: number,
): SVGSVGElement {
  const [width, rowHeight] = [760, 34];
  const series = stages.map((actions) => {
    const changes = actions
      .flatMap(({ kind, begin, end }): [number, number][] =>
        kind === "F" ? [[begin, 1]] : kind === "W" || kind === "B" ? [[end, -1]] : [],
      )
      .sort((a, b) => a[0] - b[0]);
    let held = 0;
    return changes.map(([time, change]): readonly [number, number] => {
      held += change;
      return [time, held];
    });
  });
  const most = Math.max(1, ...series.flat().map(([, held]) => held));
  const lines = series.map((points, stage) => {
    const base = 10 + (stage + 1) * rowHeight - 6;
    const x = (time: number) => 64 + (time / (length || 1)) * (width - 72);
    const y = (held: number) => base - (held / most) * (rowHeight - 10);
    let path = `M${x(0)} ${base}`;
    for (const [time, held] of points) path += `H${x(time).toFixed(1)}V${y(held).toFixed(1)}`;
    path += `H${x(length).toFixed(1)}V${base}Z`;
    return svg(
      "g",
      {},
      svg("text", { x: 56, y: base - 6, "text-anchor": "end", "font-size": 11 }, `stage ${stage}`),
      svg("path", { d: path, fill: deviceColour(stage), stroke: "#8888" }),
    );
  });
  const height = 20 + stages.length * rowHeight;
  return picture(width, height, `Activations over time, at most ${most}`, ...lines);
}

export const page: Page = (root) => {
  const chosen = { name: "1f1b" as ScheduleName, numStages: 4, numMicrobatches: 8, F: 1, I: 1, W: 1 };
  let worker: Worker | undefined;
  const picture = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Schedule" });
  const details = h("div", {});
  const measured = h("div", { class: "card", role: "status" });

  function schedule() {
    const { name, numStages, numMicrobatches } = chosen;
    const needsTwo = /zb-v|dualpipev|interleaved|circular|breadth/.test(name);
    return makeSchedule(name, { numStages, numMicrobatches, ...(needsTwo ? { numChunks: 2 } : {}) });
  }

  /** What the card beside the calculated figures says. */
  const sayMeasured = (title: string, ...contents: Node[]) =>
    measured.replaceChildren(h("h3", {}, title), ...contents);

  function draw(): void {
    sayMeasured(
      "Measured",
      h("p", {}, "“Measure in this tab” trains a small model in this order, with a worker for each stage."),
    );
    measureButton.disabled = false;
    try {
      const plan = schedule();
      const { F, I, W } = chosen;
      const costs = { F, I, W, B: I + W, send: 0 };
      const { seconds, bubble, stages, timeline } = simulateSchedule(plan, { times: { F, I, W } });
      const drawn = new DOMParser().parseFromString(
        scheduleSvg(plan, { costs }),
        "image/svg+xml",
      ).documentElement;
      picture.replaceChildren(document.importNode(drawn, true));
      details.replaceChildren(
        facts([
          ["length of a step", `${seconds.toFixed(1)} units`],
          ["bubble", `${(100 * bubble).toFixed(1)} %`],
          ["most activations of a stage", String(Math.max(...stages.map(({ activations }) => activations)))],
        ]),
        h(
          "div",
          { class: "cards" },
          h(
            "div",
            { class: "card" },
            h("h3", {}, "Activations held over time"),
            h(
              "div",
              { class: "scroll", tabindex: 0, role: "region", "aria-label": "Activations" },
              memoryPicture(timeline.stages, timeline.length),
            ),
          ),
          measured,
          h(
            "div",
            { class: "card" },
            h("h3", {}, "Stages"),
            table(
              ["stage", "busy", "idle", "activations"],
              stages.map(({ busy, idle, activations }, stage) => [
                stage,
                busy.toFixed(1),
                idle.toFixed(1),
                activations,
              ]),
            ),
          ),
        ),
      );
    } catch (error) {
      picture.replaceChildren(
        h("p", { class: "error", role: "alert" }, error instanceof Error ? error.message : String(error)),
      );
      details.replaceChildren();
      measureButton.disabled = true;
    }
  }

  const fail = (message: string) => sayMeasured("Measured", h("p", { class: "error" }, message));

  function measure(): void {
    worker?.terminate();
    sayMeasured("Measured", h("p", {}, `Running on ${chosen.numStages} workers of this tab …`));
    worker = new Worker("pipeline.js", { type: "module" });
    worker.onmessage = ({ data }: MessageEvent<FromPipeline>) => {
      worker?.terminate();
      worker = undefined;
      if (data.kind === "failed") return fail(data.message);
      sayMeasured(
        `Measured in this tab: ${formatMs(data.ms)} a step on ${data.engine}`,
        data.spans.length > 0
          ? h("div", { class: "scroll" }, timelinePicture(data.spans, data.ms))
          : h(
              "p",
              {},
              "This page is not cross-origin isolated, so that all stages ran in one thread, one after the other.",
            ),
      );
    };
    worker.onerror = ({ message }) => fail(message || "the worker did not start");
    const { name, numStages, numMicrobatches } = chosen;
    worker.postMessage({ name, numStages, numMicrobatches, numChunks: schedule().numChunks });
  }

  const number = (
    label: string,
    field: Exclude<keyof typeof chosen, "name">,
    bounds: Parameters<typeof amount>[2],
  ) =>
    amount(label, chosen[field], bounds, (value) => {
      chosen[field] = value;
      draw();
    });
  const costs = { min: 0.1, max: 8, step: 0.1 };
  const measureButton = h("button", { class: "main", onclick: measure }, "Measure in this tab");
  root.append(
    h("h2", {}, "Pipelines"),
    h(
      "p",
      {},
      "A model is cut into stages, one a device; microbatches pass through all of them. A schedule says who computes what when. F is a forward pass, I the gradient of the input, W that of the weights.",
    ),
    h(
      "div",
      { class: "bar" },
      menu("Schedule", scheduleNames, chosen.name, (value) => {
        chosen.name = value;
        draw();
      }),
      number("Stages", "numStages", { min: 1, max: 16 }),
      number("Microbatches", "numMicrobatches", { min: 1, max: 64 }),
      number("Cost of F", "F", costs),
      number("I", "I", costs),
      number("W", "W", costs),
      measureButton,
    ),
    picture,
    details,
  );
  draw();
  return () => worker?.terminate();
};
