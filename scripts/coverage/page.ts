/** The page `docs/jax.md`: a table of other libraries' names and ours, made of the lists and of what is exported. */
import { DIFFERENCES } from "./differences.js";
import { type Library, versions } from "./libraries.js";

/** The status of one name: what it is called here, or why it is missing. */
export type Standing =
  | { readonly name: string; readonly state: "present"; readonly ours: string }
  | { readonly name: string; readonly state: "left out"; readonly reason: string }
  | { readonly name: string; readonly state: "missing" };

/** Whether a path such as `np.linalg.norm` is exported. */
export type Exists = (path: string) => boolean;

/** The status of every name of a library. */
export function standings(library: Library, exists: Exists): Standing[] {
  const names = library.names.trim().split(/\s+/);
  const known = new Set(names);
  for (const name of [...Object.keys(library.renamed), ...Object.keys(library.leftOut)]) {
    if (!known.has(name))
      throw new Error(`${library.title}: ${name} is renamed or left out, but not in the list`);
  }
  if (known.size < names.length) throw new Error(`${library.title}: a name stands twice in the list`);
  return names.map((name): Standing => {
    const reason = library.leftOut[name];
    const path = library.renamed[name] ?? [library.ours, camelCase(name)].filter(Boolean).join(".");
    const found = exists(path);
    if (found && reason !== undefined)
      throw new Error(`${library.title}: ${name} is left out, but ${path} exists`);
    if (found) return { name, state: "present", ours: path };
    if (library.renamed[name] !== undefined)
      throw new Error(`${library.title}: ${name} is ${path}, which is not exported`);
    return reason === undefined ? { name, state: "missing" } : { name, state: "left out", reason };
  });
}

const camelCase = (name: string): string =>
  name.replace(/(?<=[a-zA-Z0-9])_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());

/** How many of some names are present. */
export function countPresent(rows: readonly Standing[]): number {
  return rows.filter(({ state }) => state === "present").length;
}

/** The share of the names that are present, in percent, as the summary and the page print it. */
export const percent = (rows: readonly Standing[]): number => (100 * countPresent(rows)) / rows.length;

/** The page of all libraries. */
export function coveragePage(libraries: readonly Library[], exists: Exists): string {
  const all = libraries.map((library) => ({ library, rows: standings(library, exists) }));
  const summary = all.map(
    ({ library: { title, module }, rows }) =>
      `| [${title}](#${title.replaceAll(".", "")}) | \`${module}\` | ${countPresent(rows)} of ${rows.length} | ${percent(rows).toFixed(0)} % |`,
  );
  const sections = all.map(({ library, rows }) => section(library, rows));
  return `${[INTRODUCTION, ["| library | entry point | names | |", "| --- | --- | --- | --- |", ...summary].join("\n"), DIFFERENCES, ...sections].join("\n\n")}\n`;
}

const INTRODUCTION = `# JAX, Flax and optax → shardwise

Names are those of JAX, Flax and optax in camelCase, with the same meaning: \`jnp.take_along_axis\` is \`np.takeAlongAxis\` here, keyword arguments are the fields of a last argument (\`np.sum(x, 0, { keepdims: true })\`), and values are read with \`await x.data()\`. This page lists all functions of JAX ${versions.jax}, of linen in Flax ${versions.flax} and of optax ${versions.optax}, and those names of \`jax\` itself that programs commonly use. \`npm run coverage\` generates it from the lists in \`scripts/coverage\` and the exports of the package, and a test checks that it is up to date.

\`\`\`ts
import { grad, jit, lax, np, random } from "shardwise";
import * as nn from "shardwise/nn";
import * as optim from "shardwise/optim";
\`\`\``;

function section({ title, prefix }: Library, rows: readonly Standing[]): string {
  const called = rows.flatMap((row) =>
    row.state === "present" ? [`| \`${prefix}.${row.name}\` | \`${row.ours}\` |`] : [],
  );
  const leftOut = new Map<string, string[]>();
  for (const row of rows) {
    if (row.state !== "left out") continue;
    leftOut.set(row.reason, [...(leftOut.get(row.reason) ?? []), `\`${prefix}.${row.name}\``]);
  }
  const reasons = [...leftOut].map(([reason, names]) => `| ${names.join(", ")} | ${reason} |`);
  const missing = rows.flatMap((row) => (row.state === "missing" ? [`\`${row.name}\``] : []));
  return [
    `## ${title}`,
    [`| ${title} | shardwise |`, "| --- | --- |", ...called].join("\n"),
    ...(reasons.length > 0 ? [["| left out | because |", "| --- | --- |", ...reasons].join("\n")] : []),
    ...(missing.length > 0 ? [`Not available yet: ${missing.join(", ")}.`] : []),
  ].join("\n\n");
}
