/** The page on which schedules of pipelines are drawn, simulated and measured. */
import {
  makeSchedule,
  type ScheduleName,
  scheduleNames,
  scheduleSvg,
  simulateSchedule,
} from "shardwise/parallel";
import type { FromPipeline } from "../workers/pipeline.js";
import { amount, deviceColour, facts, formatMs, h, menu, svg, table } from "./dom.js";
import type { Page } from "./main.js";

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
      svg("path", { d: path, fill: deviceColour(stage), stroke: "#0006" }),
    );
  });
  const height = 20 + stages.length * rowHeight;
  return svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": `Activations over time, at most ${most}`,
    },
    ...lines,
  );
}

/** What the devices of the tab did, a row each. */
function measuredPicture({ spans, ms }: Extract<FromPipeline, { kind: "measured" }>): SVGSVGElement {
  const devices = [...new Set(spans.map(({ device }) => device))].sort((a, b) => a - b);
  const [width, rowHeight] = [760, 28];
  const scale = (width - 72) / ms;
  const rows = devices.map((device, row) => {
    const y = 8 + row * rowHeight;
    const boxes = spans
      .filter((span) => span.device === device)
      .map(({ begin, end, name, waits }) =>
        svg(
          "rect",
          {
            x: 64 + begin * scale,
            y,
            width: Math.max(0.5, (end - begin) * scale),
            height: rowHeight - 6,
            fill: waits ? "#8884" : deviceColour(device),
          },
          svg("title", {}, `${name}, ${((end - begin) * 1000).toFixed(0)} µs`),
        ),
      );
    return svg(
      "g",
      {},
      svg("text", { x: 56, y: y + 15, "text-anchor": "end", "font-size": 11 }, `device ${device}`),
      ...boxes,
    );
  });
  const height = 16 + devices.length * rowHeight;
  return svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": `What ${devices.length} devices did in ${formatMs(ms)}`,
    },
    ...rows,
  );
}

export const page: Page = (root) => {
  let name: ScheduleName = "1f1b" as ScheduleName;
  if (!scheduleNames.includes(name)) name = scheduleNames[0] ?? name;
  let [numStages, numMicrobatches, F, I, W] = [4, 8, 1, 1, 1];
  let worker: Worker | undefined;
  const picture = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Schedule" });
  const details = h("div", {});
  const measured = h("div", { role: "status" });

  function schedule() {
    const needsTwo = /zb-v|dualpipev|interleaved|circular|breadth/.test(name);
    return makeSchedule(name, { numStages, numMicrobatches, ...(needsTwo ? { numChunks: 2 } : {}) });
  }

  function draw(): void {
    measured.replaceChildren();
    try {
      const plan = schedule();
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
        h("h3", {}, "Activations held over time"),
        h("div", { class: "scroll" }, memoryPicture(timeline.stages, timeline.length)),
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
      );
    } catch (error) {
      picture.replaceChildren(
        h("p", { class: "error", role: "alert" }, error instanceof Error ? error.message : String(error)),
      );
      details.replaceChildren();
    }
  }

  function measure(): void {
    worker?.terminate();
    measured.replaceChildren(h("p", {}, `Running on ${numStages} workers of this tab …`));
    worker = new Worker("pipeline.js", { type: "module" });
    worker.onmessage = ({ data }: MessageEvent<FromPipeline>) => {
      worker?.terminate();
      worker = undefined;
      if (data.kind === "failed") measured.replaceChildren(h("p", { class: "error" }, data.message));
      else {
        measured.replaceChildren(
          h("h3", {}, `Measured in this tab: ${formatMs(data.ms)} a step on ${data.engine}`),
          data.spans.length > 0
            ? h("div", { class: "scroll" }, measuredPicture(data))
            : h(
                "p",
                {},
                "This page is not cross-origin isolated, so that all stages ran in one thread, one after the other.",
              ),
        );
      }
    };
    worker.onerror = ({ message }) =>
      measured.replaceChildren(h("p", { class: "error" }, message || "the worker did not start"));
    worker.postMessage({ name, numStages, numMicrobatches, numChunks: schedule().numChunks });
  }

  const again =
    <T>(set: (value: T) => void) =>
    (value: T) => {
      set(value);
      draw();
    };
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
      menu(
        "Schedule",
        scheduleNames,
        name,
        again((value) => {
          name = value;
        }),
      ),
      amount(
        "Stages",
        numStages,
        { min: 1, max: 16 },
        again((value) => {
          numStages = value;
        }),
      ),
      amount(
        "Microbatches",
        numMicrobatches,
        { min: 1, max: 64 },
        again((value) => {
          numMicrobatches = value;
        }),
      ),
      amount(
        "Cost of F",
        F,
        { min: 0.1, max: 8, step: 0.1 },
        again((value) => {
          F = value;
        }),
      ),
      amount(
        "I",
        I,
        { min: 0.1, max: 8, step: 0.1 },
        again((value) => {
          I = value;
        }),
      ),
      amount(
        "W",
        W,
        { min: 0.1, max: 8, step: 0.1 },
        again((value) => {
          W = value;
        }),
      ),
      h("button", { class: "main", onclick: measure }, "Measure in this tab"),
    ),
    picture,
    details,
    measured,
  );
  draw();
  return () => worker?.terminate();
};
