/** What a compiled call did: its program pass by pass, where its tensors lie, and what devices send. */
import type { CallReport, CollectiveReport, PassReport, PlacementReport } from "../sandbox/messages.js";
import { PROGRAM_FILE } from "../sandbox/messages.js";
import { deviceColour, facts, formatBytes, formatMs, h, picture, svg, table } from "./dom.js";

const collectives = /= (psum|pmax|pmin|allGather|reduceScatter|psumScatter|ppermute|allToAll|pbroadcast)\b/;

/** A program as a table: each equation with the line that it comes from, those that send marked. */
function passTable({ text }: PassReport, goTo: (line: number) => void): HTMLElement {
  const rows = text.split("\n").map((line) => {
    const [, equation = line, source = ""] = /^(.*?) {2}\/\/ (.*)$/.exec(line) ?? [];
    const [, number] = new RegExp(`${PROGRAM_FILE}:(\\d+)`).exec(source) ?? [];
    const place = number
      ? h("button", { title: `Go to line ${number}`, onclick: () => goTo(Number(number)) }, `line ${number}`)
      : "";
    return h(
      "tr",
      { class: collectives.test(equation) && "sends" },
      h("td", { class: "source" }, place),
      h("td", {}, equation),
    );
  });
  return h(
    "div",
    { class: "program", tabindex: 0, role: "region", "aria-label": "Program" },
    h("table", {}, h("tbody", {}, ...rows)),
  );
}

const stages: Readonly<Record<string, string>> = {
  traced: "traced: what the function computes",
  partitioned: "partitioned: what every device runs",
  lowered: "lowered: what the compiler turns into kernels",
};

/** Every pass of a call; the first and the last program of each stage are open. */
export function passesView({ passes }: CallReport, goTo: (line: number) => void): HTMLElement {
  const open = new Set<PassReport | undefined>();
  for (const stage of Object.keys(stages)) open.add(passes.filter((pass) => pass.stage === stage).at(-1));
  open.add(passes[0]);
  const parts = passes.map((pass) => {
    const details = h("details", {}, h("summary", {}, `${pass.pass}, ${stages[pass.stage] ?? pass.stage}`));
    const fill = () => {
      if (details.children.length === 1) details.append(passTable(pass, goTo));
    };
    if (open.has(pass)) {
      details.open = true;
      fill();
    }
    details.addEventListener("toggle", fill);
    return details;
  });
  return h("div", {}, ...parts);
}

/** A tensor as a rectangle of blocks, each in the colours of the devices that hold it. */
export function placementPicture({ name, text, blocks }: PlacementReport): HTMLElement {
  const [rows, columns] = [blocks.length, blocks[0]?.length ?? 1];
  const [width, height] = [Math.max(44, Math.min(90, 320 / columns)), Math.max(30, Math.min(44, 200 / rows))];
  const cells = blocks.flatMap((row, r) =>
    row.map((devices, c) => {
      const [x, y] = [c * width, r * height];
      const label = devices.length > 6 ? `${devices.slice(0, 5).join()} …` : devices.join();
      const stripes = devices.map((device, i) =>
        svg("rect", {
          x: x + (i * width) / devices.length,
          y,
          width: width / devices.length,
          height,
          fill: deviceColour(device),
        }),
      );
      return svg(
        "g",
        {},
        ...stripes,
        svg("rect", { x, y, width, height, fill: "none", stroke: "#0006" }),
        svg(
          "text",
          {
            x: x + width / 2,
            y: y + height / 2 + 4,
            "text-anchor": "middle",
            "font-size": 12,
            class: "box-text",
          },
          label,
        ),
      );
    }),
  );
  const words = blocks.map((row) => row.map((devices) => devices.join(" and ")).join(" | ")).join("; ");
  return h(
    "figure",
    { class: "placement" },
    h("figcaption", {}, `${name}: ${text}`),
    picture(columns * width, rows * height, `Blocks on devices ${words}`, ...cells),
  );
}

/** Where the arguments and results of a call lie. */
export function placementsView({ placements, devices }: CallReport): HTMLElement {
  const note =
    devices === 1 ? h("p", {}, "One device holds everything. Pass a mesh and specs to split it.") : false;
  return h("div", {}, note, ...placements.map(placementPicture));
}

/** Where devices stand in the picture of a collective, and how high what they exchange is above them. */
const [deviceY, deviceRadius, levelHeight] = [26, 14, 40];

/** Devices in a row: they exchange blocks over a line that connects each group, or pass them on round a ring. */
function collectivePicture({ groups, op, bytes, count }: CollectiveReport): SVGSVGElement {
  const devices = groups.flat().sort((a, b) => a - b);
  const gap = Math.max(44, Math.min(84, 560 / Math.max(1, devices.length)));
  const x = (device: number) => 30 + devices.indexOf(device) * gap;
  const levels = levelsOf(groups.map((group) => [Math.min(...group.map(x)), Math.max(...group.map(x))]));
  const floor = 24 + levelHeight * (Math.max(...levels) + 1);
  const size = `${formatBytes(bytes / count)}${count > 1 ? ` × ${count}` : ""}`;
  const line = (d: string, ends = "marker-end") =>
    svg("path", {
      d,
      class: "message",
      ...(ends === "both" ? { "marker-start": "url(#tip)" } : {}),
      "marker-end": "url(#tip)",
    });
  const parts = groups.flatMap((group, g) => {
    const [left, right] = [Math.min(...group.map(x)), Math.max(...group.map(x))];
    const top = floor - levelHeight * ((levels[g] ?? 0) + 1);
    const label = svg(
      "text",
      { x: (left + right) / 2, y: top - 7, "text-anchor": "middle", "font-size": 12, class: "quiet" },
      size,
    );
    if (op !== "ppermute") {
      const bus = svg("path", { d: `M${left} ${top}H${right}`, class: "message bus" });
      return [label, bus, ...group.map((device) => line(`M${x(device)} ${top + 3}V${floor - 2}`, "both"))];
    }
    return [
      label,
      ...group.map((from, i) => {
        const to = group[(i + 1) % group.length] ?? from;
        return line(`M${x(from)} ${floor - 2}C${x(from)} ${top} ${x(to)} ${top} ${x(to)} ${floor - 2}`);
      }),
    ];
  });
  const marker = svg(
    "marker",
    {
      id: "tip",
      viewBox: "0 0 8 8",
      refX: 7,
      refY: 4,
      markerWidth: 7,
      markerHeight: 7,
      orient: "auto-start-reverse",
    },
    svg("path", { d: "M0 0 L8 4 L0 8 z", fill: "var(--accent)" }),
  );
  const dots = devices.map((device) =>
    svg(
      "g",
      {},
      svg("circle", {
        cx: x(device),
        cy: floor + deviceRadius,
        r: deviceRadius,
        fill: deviceColour(device),
        stroke: "#0006",
      }),
      svg(
        "text",
        {
          x: x(device),
          y: floor + deviceRadius + 4,
          "text-anchor": "middle",
          "font-size": 12,
          class: "box-text",
        },
        String(device),
      ),
    ),
  );
  const label = `${op} of ${size} from each device among ${groups.map((group) => group.join(", ")).join("; ")}`;
  const width = 60 + gap * Math.max(0, devices.length - 1);
  return picture(width, floor + deviceY + 6, label, svg("defs", {}, marker), ...parts, ...dots);
}

/** A height for each interval, so that those which overlap have different ones. */
function levelsOf(intervals: readonly (readonly [number, number])[]): number[] {
  const levels: number[] = [];
  intervals.forEach(([left, right], i) => {
    const taken = levels.filter((_, k) => {
      const [otherLeft, otherRight] = intervals[k] ?? [0, 0];
      return k < i && left <= otherRight && otherLeft <= right;
    });
    let level = 0;
    while (taken.includes(level)) level++;
    levels.push(level);
  });
  return levels;
}

/** What the devices of a call send each other. */
export function collectivesView({ collectives: all, devices, flops, peakBytes }: CallReport): HTMLElement {
  const sent = all.reduce((sum, { bytes }) => sum + bytes, 0);
  return h(
    "div",
    {},
    facts([
      ["devices", String(devices)],
      ["sent by each device", formatBytes(sent)],
      ["operations of each device", flops.toLocaleString("en")],
      ["peak memory of each device", formatBytes(peakBytes)],
    ]),
    all.length === 0 && h("p", {}, "Nothing is sent."),
    ...all.flatMap((one) => [
      h(
        "h3",
        {},
        `${one.op} over ${one.axes.join(", ")}: ${one.count === 1 ? "once" : `${one.count} times`}, ${formatBytes(one.bytes)} from each device`,
      ),
      h("div", { class: "scroll" }, collectivePicture(one)),
    ]),
  );
}

/** How long the calls of a program took. */
export function timesView(
  rows: readonly { readonly name: string; readonly compiled?: number; readonly runs: readonly number[] }[],
): HTMLElement {
  const median = (values: readonly number[]) =>
    [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const ms = (value: number | undefined) => (value === undefined ? "" : formatMs(value));
  return h(
    "div",
    {},
    table(
      ["call", "tracing and compiling", "a run, median", "runs"],
      rows.map(({ name, compiled, runs }) => [name, ms(compiled), ms(median(runs)), runs.length]),
    ),
    h("p", {}, "A run lasts until its results are on the devices. The first run of a program warms it up."),
  );
}
