/** What a compiled call did: its program pass by pass, where its tensors lie, and what devices send. */
import type { CallReport, CollectiveReport, PassReport, PlacementReport } from "../sandbox/messages.js";
import { PROGRAM_FILE } from "../sandbox/messages.js";
import { deviceColour, facts, formatBytes, h, picture, svg, table } from "./dom.js";

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
      h("td", {}, equation),
      h("td", { class: "source" }, place),
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

/** Devices in a row, arcs between those that exchange something. */
function arrows({ groups, op }: CollectiveReport): SVGSVGElement {
  const devices = groups.flat().sort((a, b) => a - b);
  const gap = Math.max(34, Math.min(70, 640 / Math.max(1, devices.length)));
  const x = (device: number) => 24 + devices.indexOf(device) * gap;
  const [width, height] = [48 + gap * Math.max(0, devices.length - 1), 96];
  const ring = op === "ppermute";
  const arcs = groups.flatMap((group) =>
    group.flatMap((from, i) => {
      const to = group[(i + 1) % group.length] ?? from;
      if (to === from || (!ring && i === group.length - 1)) return [];
      const [a, b] = [x(from), x(to)];
      const lift = Math.min(56, 16 + Math.abs(b - a) / 4);
      const path = `M${a} 62 C${a} ${62 - lift} ${b} ${62 - lift} ${b} 60`;
      const both = ring ? {} : { "marker-start": "url(#tip)" };
      return [
        svg("path", {
          d: path,
          fill: "none",
          stroke: "currentColor",
          "stroke-width": 1.5,
          "marker-end": "url(#tip)",
          ...both,
        }),
      ];
    }),
  );
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
    svg("path", { d: "M0 0 L8 4 L0 8 z", fill: "currentColor" }),
  );
  const dots = devices.map((device) =>
    svg(
      "g",
      {},
      svg("circle", { cx: x(device), cy: 76, r: 13, fill: deviceColour(device), stroke: "#0006" }),
      svg(
        "text",
        { x: x(device), y: 80, "text-anchor": "middle", "font-size": 12, class: "box-text" },
        String(device),
      ),
    ),
  );
  const label = groups.map((group) => group.join(", ")).join("; ");
  return picture(width, height, `${op} among devices ${label}`, svg("defs", {}, marker), ...arcs, ...dots);
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
      h("div", { class: "scroll" }, arrows(one)),
    ]),
  );
}

/** How long the calls of a program took. */
export function timesView(
  rows: readonly { readonly name: string; readonly first?: number; readonly later: readonly number[] }[],
): HTMLElement {
  const median = (values: readonly number[]) =>
    [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const ms = (value: number | undefined) => (value === undefined ? "" : `${value.toFixed(2)} ms`);
  return h(
    "div",
    {},
    table(
      ["call", "first (traces and compiles)", "later, median", "calls"],
      rows.map(({ name, first, later }) => [
        name,
        ms(first),
        ms(median(later)),
        later.length + (first === undefined ? 0 : 1),
      ]),
    ),
    h(
      "p",
      {},
      "Here all devices of a mesh take turns in one thread, so that a program of somebody else cannot reach this page. On the page Training each is a worker.",
    ),
  );
}
