import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { hostEngine } from "../src/engines/host.js";
import {
  grad,
  lax,
  Mesh,
  makeProgram,
  np,
  P,
  printProgram,
  remat,
  shardMap,
  simplify,
  type Tensor,
  verify,
  vmap,
} from "../src/index.js";
import type { Program } from "../src/ir/program.js";
import { partition } from "../src/spmd/partition/partition.js";

const path = fileURLToPath(new URL("../docs/architecture.md", import.meta.url));

const loss = (w: Tensor, x: Tensor) => np.sum(np.tanh(np.matmul(x, w)));

const [w, x] = [np.zeros([3, 2]), np.zeros([4, 3])];
const mesh = Mesh.create({ data: 2 }, { engine: hostEngine });

const overRows = (v: Tensor, rows: Tensor) => {
  const step = (total: Tensor, row: Tensor): [Tensor, null] => [total.add(loss(v, row)), null];
  return lax.scan(step, np.array(0), rows)[0];
};

const local = shardMap((v: Tensor, rows: Tensor) => lax.psum(loss(v, rows), "data"), {
  mesh,
  inSpecs: [P(), P("data")],
  outSpecs: P(),
});

/** The programs of the page, by the names in its comments. */
const programs: Readonly<Record<string, () => Program>> = {
  traced: () => makeProgram(loss)(w, x),
  differentiated: () => simplify(makeProgram(grad(loss))(w, x)),
  scanned: () => makeProgram(grad(overRows))(w, x),
  recomputed: () => simplify(makeProgram(grad(remat(loss)))(w, x)),
  mapped: () => simplify(makeProgram(vmap(loss, { inAxes: [null, 0] }))(w, np.zeros([8, 4, 3]))),
  shardMapped: () => makeProgram(local)(w, x),
  partitioned: () =>
    simplify(
      partition(makeProgram(loss)(w, x), mesh, {
        inSpecs: [
          [[], []],
          [["data"], []],
        ],
      }).program,
    ),
};

const block = (name: string) => new RegExp(`(<!-- program: ${name} -->\n\`\`\`\n)([^\`]*)(\`\`\`)`);

describe("docs/architecture.md", () => {
  test.each(Object.keys(programs))("shows the program %s as it is printed", (name) => {
    const printed = printProgram(verify(programs[name]?.() ?? { inputs: [], eqns: [], outputs: [] }));
    const page = readFileSync(path, "utf8");
    // UPDATE=1 writes what the code prints into the page.
    if (process.env.UPDATE) writeFileSync(path, page.replace(block(name), `$1${printed}\n$3`));
    else expect(block(name).exec(page)?.[2]?.trimEnd()).toBe(printed);
  });

  test("shows only programs that are checked, and the function they come from", () => {
    const page = readFileSync(path, "utf8");
    const shown = [...page.matchAll(/<!-- program: (\w+) -->/g)].map(([, name]) => name);
    expect(shown).toEqual(Object.keys(programs));
    const [, code = ""] = /```ts\n([^`]*)```/.exec(page) ?? [];
    expect(readFileSync(fileURLToPath(import.meta.url), "utf8")).toContain(code);
  });
});
