/**
 * The moving pictures of the pages about many devices, as SVG files with CSS animations: they run in every browser
 * without a script, follow the reader's colours, and stand still for readers who prefer that.
 */

import {
  type ActionKind,
  gpipe,
  oneForwardOneBackward,
  type PipelineSchedule,
  timeline,
} from "shardwise/parallel";
import { expertsPicture } from "./expertsPicture.js";

const style = `
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .note { fill: #59636e; font-size: 12px }
    .frame { fill: #f6f8fa; stroke: #8c959f }
    .cell { fill: none; stroke: #8c959f; stroke-width: 0.7 }
    .held { fill: #54aeff; stroke: #0969da; stroke-width: 0.7 }
    .line { stroke: #8c959f; fill: none }
    .k0 { fill: #54aeff } .k1 { fill: #4ac26b } .k2 { fill: #eac54f } .k3 { fill: #ff9bce }
    .on { fill: #1f2328 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .note { fill: #9198a1 }
      .frame { fill: #21262d; stroke: #768390 }
      .cell { stroke: #768390 } .line { stroke: #768390 }
      .held { fill: #1f6feb; stroke: #58a6ff }
    }
    @media (prefers-reduced-motion: reduce) { * { animation: none !important } }`;

const round = (value: number) => Number(value.toFixed(2));

function svg(
  title: string,
  width: number,
  height: number,
  rules: readonly string[],
  shapes: readonly string[],
): string {
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img">`,
    `  <title>${title}</title>`,
    `  <style>${style}${rules.map((rule) => `\n    ${rule}`).join("")}\n  </style>`,
    ...shapes.map((shape) => `  ${shape}`),
    "</svg>\n",
  ].join("\n");
}

const rect = (x: number, y: number, wide: number, high: number, attributes: string) =>
  `<rect x="${round(x)}" y="${round(y)}" width="${round(wide)}" height="${round(high)}" ${attributes}/>`;
const text = (x: number, y: number, words: string, attributes = "") =>
  `<text x="${round(x)}" y="${round(y)}"${attributes && ` ${attributes}`}>${words}</text>`;

/** Seen from a share of the cycle on, to another; it fades over a hundredth of it. */
function seenDuring(name: string, from: number, to: number): string {
  const [begin, end] = [round(100 * from), round(100 * to)];
  const start = begin === 0 ? "0%" : `0%, ${round(begin - 1)}% { opacity: 0 } ${begin}%`;
  const stop =
    end >= 100 ? "100% { opacity: 1 }" : `${round(end - 1)}% { opacity: 1 } ${end}%, 100% { opacity: 0 }`;
  return `@keyframes ${name} { ${start} { opacity: 1 } ${stop} }`;
}

/** Which rows and columns of a matrix of 4 x 4 device (i, j) of 2 x 2 holds. */
const layouts: readonly {
  readonly spec: string;
  holds(row: number, column: number, i: number, j: number): boolean;
}[] = [
  { spec: 'P("data", "model")', holds: (row, column, i, j) => row >> 1 === i && column >> 1 === j },
  { spec: 'P("data", null)', holds: (row, _, i) => row >> 1 === i },
  { spec: 'P(null, "model")', holds: (_, column, __, j) => column >> 1 === j },
  { spec: "P()", holds: () => true },
];

/** One matrix on a mesh of 2 x 2 devices, split in four ways one after the other. */
export function meshPicture(): string {
  const cell = 20;
  const frames = layouts.map(({ spec, holds }, frame) => {
    const devices = [0, 1].flatMap((i) =>
      [0, 1].flatMap((j) => {
        const [x, y] = [110 + j * 140, 62 + i * 130];
        const cells = Array.from({ length: 16 }, (_, k) => {
          const [row, column] = [k >> 2, k % 4];
          const kind = holds(row, column, i, j) ? "held" : "cell";
          return rect(x + 15 + column * cell, y + 10 + row * cell, cell, cell, `class="${kind}"`);
        });
        return [rect(x, y, 110, 100, 'rx="6" class="frame"'), ...cells];
      }),
    );
    const hidden = frame === 0 ? "" : ' opacity="0"';
    return `<g style="animation: m${frame} 12s infinite"${hidden}>${text(175, 26, spec, 'font-weight="600"')}${devices.join("")}</g>`;
  });
  const names = [0, 1].flatMap((k) => [
    text(20, 116 + k * 130, `data ${k}`, 'class="note"'),
    text(140 + k * 140, 52, `model ${k}`, 'class="note"'),
  ]);
  const rules = layouts.map((_, k) => seenDuring(`m${k}`, k / layouts.length, (k + 1) / layouts.length));
  return svg("A matrix on a mesh of 2 x 2 devices", 380, 300, rules, [...names, ...frames]);
}

/** Four devices that gather each other's blocks around a ring. */
export function ringPicture(): string {
  const [numDevices, size] = [4, 24];
  const corners = [
    [60, 30],
    [300, 30],
    [300, 190],
    [60, 190],
  ] as const;
  const corner = (device: number) => corners[device % numDevices] ?? corners[0];
  const rules: string[] = [];
  const shapes: string[] = [];
  // A cycle has a beat for every step of the ring and one at the end, in which everything stands.
  const beats = numDevices + 0.5;
  corners.forEach(([x, y], device) => {
    shapes.push(rect(x - 8, y - 8, numDevices * (size + 4) + 12, size + 16, 'rx="6" class="frame"'));
    shapes.push(text(x - 4, y + size + 26, `device ${device}`, 'class="note"'));
    for (let block = 0; block < numDevices; block++) {
      const arrives = (device - block + numDevices) % numDevices;
      const place = `x="${x + block * (size + 4)}" y="${y}" width="${size}" height="${size}" rx="3"`;
      shapes.push(`<rect ${place} class="cell"/>`);
      const name = `r${device}${block}`;
      const animation = arrives === 0 ? "" : ` style="animation: ${name} 9s infinite"`;
      if (arrives > 0) rules.push(seenDuring(name, arrives / beats, 1));
      shapes.push(`<rect ${place} class="k${block}"${animation}/>`);
    }
  });
  for (let step = 0; step < numDevices - 1; step++) {
    for (let device = 0; device < numDevices; device++) {
      const block = (device - step + numDevices) % numDevices;
      const [fromX, fromY] = corner(device);
      const [toX, toY] = corner(device + 1);
      const at = block * (size + 4);
      const name = `t${step}${device}`;
      const [begin, end] = [round((100 * (step + 0.3)) / beats), round((100 * (step + 1)) / beats)];
      const move = `translate(${toX - fromX}px, ${toY - fromY}px)`;
      rules.push(
        `@keyframes ${name} { 0%, ${round(begin - 0.5)}% { opacity: 0; transform: none } ${begin}% { opacity: 1; transform: none } ` +
          `${end}% { opacity: 1; transform: ${move} } ${round(end + 0.5)}%, 100% { opacity: 0; transform: ${move} } }`,
      );
      shapes.push(
        rect(
          fromX + at,
          fromY,
          size,
          size,
          `rx="3" class="k${block}" opacity="0" style="animation: ${name} 9s infinite ease-in-out"`,
        ),
      );
    }
  }
  return svg("Four devices gather blocks around a ring", 440, 260, rules, shapes);
}

const kinds: { readonly [K in ActionKind]: string } = { F: "k0", B: "k1", I: "k1", W: "k2" };

/** Two schedules of the same pipeline on one clock: boxes light up as their actions run. */
export function pipelinePicture(): string {
  const [numStages, numMicrobatches] = [4, 6];
  const schedules: readonly [string, PipelineSchedule][] = [
    ["GPipe: all microbatches forward, then all back", gpipe({ numStages, numMicrobatches })],
    ["1F1B: back as soon as possible", oneForwardOneBackward({ numStages, numMicrobatches })],
  ];
  const [left, unit, high] = [64, 12, 20];
  const longest = Math.max(...schedules.map(([, schedule]) => timeline(schedule).length));
  const cycle = longest + 4;
  const rules = new Map<string, string>();
  const shapes = schedules.flatMap(([title, schedule], k) => {
    const top = 24 + k * 132;
    const rows = timeline(schedule).stages.flatMap((actions, stage) => {
      const y = top + 10 + stage * (high + 4);
      const boxes = actions.map(({ kind, microbatch, begin, end }) => {
        const name = `p${begin}`;
        rules.set(
          name,
          `@keyframes ${name} { 0%, ${round((100 * begin) / cycle)}% { opacity: 0.15 } ${round((100 * end) / cycle)}%, 100% { opacity: 1 } }`,
        );
        const [x, wide] = [left + begin * unit, (end - begin) * unit - 1];
        const box = rect(x, y, wide, high, `rx="2" class="${kinds[kind]}"`);
        const number = text(
          x + wide / 2,
          y + 15,
          `${microbatch}`,
          'text-anchor="middle" style="fill: #111; font-size: 11px"',
        );
        return `<g style="animation: ${name} ${cycle / 3}s infinite linear">${box}${number}</g>`;
      });
      return [text(10, y + 15, `stage ${stage}`, 'class="note"'), ...boxes];
    });
    return [text(10, top, title), ...rows];
  });
  const width = left + longest * unit + 10;
  return svg("Two schedules of a pipeline", width, 276, [...rules.values()], shapes);
}

/** All pictures by their file in `docs/images`. */
export const pictures: Readonly<Record<string, () => string>> = {
  "mesh.svg": meshPicture,
  "ring.svg": ringPicture,
  "pipeline.svg": pipelinePicture,
  "experts.svg": () => expertsPicture({ svg, rect, text }),
};
