/** The page of measurements: Markdown and plots of the JSON files that `npm run bench -- … --json` writes. */
import type { Measurements, Row } from "../bench/measure.js";

/** A page and the plots beside it, by file name. */
export interface Page {
  readonly text: string;
  readonly plots: ReadonlyMap<string, string>;
}

/** Makes the page of some machines, each with the name of its file. */
export function performancePage(machines: readonly (readonly [name: string, Measurements])[]): Page {
  const plots = new Map<string, string>();
  const sections = machines.map(([name, { machine, report }]) => {
    const steps = report[STEPS] ?? [];
    if (steps.length > 0) plots.set(`${name}.svg`, stepsPlot(steps));
    return [
      `## ${machine.processor}, ${machine.cores} cores`,
      `${machine.memoryGiB} GiB, Node ${machine.node.slice(1)}, measured on ${machine.day}.`,
      ...(steps.length > 0 ? [`![training steps](images/performance/${name}.svg)`, stepsSummary(steps)] : []),
      ...Object.entries(report).flatMap(([title, rows]) => [
        `### ${title}`,
        ...extras(title, rows),
        table(rows),
      ]),
    ].join("\n\n");
  });
  return { text: `${[INTRODUCTION, ...sections].join("\n\n")}\n`, plots };
}

const STEPS = "training step of language models";
const PRODUCTS = "float32 products on one core, GFLOP/s";

const INTRODUCTION = `# Performance

This page is made by \`npm run performance\` of the files in \`docs/performance/\`; nothing in it is written by hand. Figures are the best of several runs. *Products alone* is what the same cores reach together when each does nothing but multiply large matrices; the share of it tells what is left between a step and the machine. Machines that others use, too, are faster at one moment than at another: a step above 100 % met a faster one. JAX runs the same step in the same run of the benchmark, pinned to as many cores.

\`\`\`sh
npm run bench -- matmul lm --devices 1,2,8,16 --sizes d256,d512,d1024 \\
  --parallel data,fsdp,tensor,async,gpipe,circular --json docs/performance/my-machine.json
npm run performance
\`\`\``;

const number = (row: Row, column: string): number | undefined => {
  const value = row[column];
  return typeof value === "number" ? value : undefined;
};

const geometricMean = (values: readonly number[]): number =>
  Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);

function extras(title: string, rows: readonly Row[]): string[] {
  if (title !== PRODUCTS) return [];
  const ratios = rows.flatMap((row) => ["NN", "NT", "TN"].flatMap((layout) => ratioOf(row, layout) ?? []));
  if (ratios.length === 0) return [];
  const [mean, least] = [geometricMean(ratios), Math.min(...ratios)].map((value) => value.toFixed(2));
  return [
    `Our machine code beside the best BLAS of the machine: ${mean} times as fast in the geometric mean, ${least} times at least.`,
  ];
}

/** Our best machine code over the best BLAS in one row. */
function ratioOf(row: Row, layout: string): number | undefined {
  const columns = Object.keys(row).filter((column) => column.endsWith(` ${layout}`));
  const isOurs = (column: string) => /^(AVX|NEON|AMX)/.test(column);
  const best = (some: readonly string[]) => Math.max(...some.map((column) => number(row, column) ?? 0));
  const blas = columns.filter((column) => !isOurs(column) && !column.startsWith("WASM"));
  return blas.length === 0 ? undefined : best(columns.filter(isOurs)) / best(blas);
}

function stepsSummary(rows: readonly Row[]): string {
  const shares = rows.flatMap((row) => number(row, "% of products alone") ?? []);
  const [lowest, highest] = [Math.min(...shares), Math.max(...shares)].map((value) => value.toFixed(0));
  const left = `Steps reach ${lowest} to ${highest} % of products alone; other kernels, the exchange between devices and waiting for each other take the rest, which \`npm run bench -- profile\` tells apart.`;
  const ratios = rows.flatMap((row) => number(row, "times JAX") ?? []);
  if (ratios.length === 0) return `JAX was not installed. ${left}`;
  const [least, most] = [Math.min(...ratios), Math.max(...ratios)].map((value) => value.toFixed(2));
  const mean = geometricMean(ratios).toFixed(2);
  return `${least} to ${most} times JAX, ${mean} in the geometric mean of ${ratios.length} steps. ${left}`;
}

function table(rows: readonly Row[]): string {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cell = (value: Row[string] | undefined): string => {
    if (value === null || value === undefined) return "–";
    if (typeof value === "string") return value;
    return Math.abs(value) >= 100 || Number.isInteger(value)
      ? value.toFixed(0)
      : String(Number(value.toPrecision(3)));
  };
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [
    line(columns),
    line(columns.map(() => "---")),
    ...rows.map((row) => line(columns.map((column) => cell(row[column])))),
  ].join("\n");
}

const [WIDTH, LEFT, ROW, BAR, TOP] = [760, 230, 30, 10, 34];

/** Bars for every step: the share of products alone that it reaches here and in JAX. */
function stepsPlot(rows: readonly Row[]): string {
  const x = (percent: number) => LEFT + (Math.min(100, percent) / 100) * (WIDTH - LEFT - 60);
  const bars = rows.map((row, i) => {
    const y = TOP + i * ROW;
    const ours = number(row, "% of products alone") ?? 0;
    const times = number(row, "times JAX");
    const name = `${row.model} ${row.parallel}, ${row.devices} × ${row.threads ?? 1}`;
    const bar = (percent: number, at: number, name: string) =>
      `<rect class="${name}" x="${LEFT}" y="${at}" width="${(x(percent) - LEFT).toFixed(1)}" height="${BAR}"/>`;
    return [
      `<text x="${LEFT - 8}" y="${y + BAR + 3}" text-anchor="end">${name}</text>`,
      bar(ours, y, "ours"),
      ...(times === undefined ? [] : [bar(ours / times, y + BAR + 1, "jax")]),
      `<text x="${(x(ours) + 6).toFixed(1)}" y="${y + BAR - 1}">${ours.toFixed(0)} %</text>`,
    ].join("");
  });
  const height = TOP + rows.length * ROW + 10;
  const grid = [0, 25, 50, 75, 100].map(
    (percent) =>
      `<line x1="${x(percent)}" x2="${x(percent)}" y1="${TOP - 6}" y2="${height - 8}"/>` +
      `<text x="${x(percent)}" y="${TOP - 12}" text-anchor="middle">${percent} %</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif" font-size="11">
<style>rect.ours{fill:#2f6f9f}rect.jax{fill:#c9a227}line{stroke:#8884}text{fill:#777}</style>
${grid.join("\n")}
${bars.join("\n")}
<text x="8" y="14">share of products alone: shardwise (blue), JAX (yellow); model, parallelism, devices × threads</text>
</svg>
`;
}
