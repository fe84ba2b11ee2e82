import { numbersOf } from "../../src/engines/reference/hostTensor.js";
import { interpretSpmd } from "../../src/engines/reference/interpret.js";
import type { Atom, Eqn, Program, Var } from "../../src/ir/program.js";
import { at } from "../../src/ir/shape.js";
import { parseProgram } from "../../src/ir/text/parse.js";
import { printProgram } from "../../src/ir/text/print.js";
import type { ComparedCase } from "./cases.js";

/**
 * A smaller case that fails as well: fewer or earlier outputs, and equations replaced by inputs with the values that they give.
 *
 * @param fails whether a case still fails
 */
export async function minimise(
  start: ComparedCase,
  fails: (one: ComparedCase) => Promise<boolean>,
): Promise<ComparedCase> {
  let smallest = start;
  const attempt = async (next: ComparedCase | undefined): Promise<boolean> => {
    if (next === undefined || !(await fails(next))) return false;
    smallest = next;
    return true;
  };
  await attempt({ ...start, donated: start.donated.map(() => false) });
  for (const output of start.program.outputs) {
    if (await attempt(withOutputs(smallest, [output]))) break;
  }
  // The first value that is wrong by itself.
  for (const { outs } of smallest.program.eqns) {
    if (await attempt(withOutputs(smallest, outs))) break;
  }
  await attempt(withOutputs(smallest, smallest.program.outputs));
  // From large pieces to single equations, the first ones first, because the others need them.
  for (let size = smallest.program.eqns.length; size >= 1; size = Math.floor(size / 2)) {
    for (let first = 0; first < smallest.program.eqns.length; ) {
      if (!(await attempt(withoutEqns(smallest, first, size)))) first += size;
    }
  }
  return smallest;
}

/** The case as text: a program that `parseProgram` reads, and the inputs of every device. */
export function printCase({ program, mesh, inputs, donated }: ComparedCase): string {
  const text = printProgram(program);
  parseProgram(text);
  const axes = mesh.axes.map(({ name, size }) => `${name}=${size}`).join(" ");
  const rows = inputs.map((row, i) => {
    const blocks = row.map((tensor) => JSON.stringify(numbersOf(tensor)));
    return `input ${i}${donated[i] ? ", donated" : ""}: ${blocks.join(" | ")}`;
  });
  return [text, `mesh: ${axes || "one device"}`, ...rows].join("\n");
}

const isVar = (atom: Atom): atom is Var => atom.kind === "var";

/** The case with these outputs, and only what they need. */
function withOutputs(one: ComparedCase, outputs: readonly Atom[]): ComparedCase {
  const needed = new Set(outputs.filter(isVar).map(({ id }) => id));
  const eqns: Eqn[] = [];
  for (const eqn of [...one.program.eqns].reverse()) {
    const hasEffect = eqn.op === "callback";
    if (!hasEffect && !eqn.outs.some(({ id }) => needed.has(id))) continue;
    eqns.unshift(eqn);
    for (const atom of eqn.ins) if (isVar(atom)) needed.add(atom.id);
  }
  return keepInputs({ ...one, program: { ...one.program, eqns, outputs } }, needed);
}

/** The case without some equations, whose results become inputs; undefined if they cannot be computed. */
function withoutEqns(one: ComparedCase, first: number, count: number): ComparedCase | undefined {
  const { program, mesh, inputs, donated } = one;
  const removed = program.eqns.slice(first, first + count);
  const rest = program.eqns.filter((eqn) => !removed.includes(eqn));
  const used = new Set(
    [...rest.flatMap(({ ins }) => ins), ...program.outputs].filter(isVar).map(({ id }) => id),
  );
  const given = removed.flatMap(({ outs }) => outs).filter(({ id }) => used.has(id));
  // A case of nothing but inputs shows nothing.
  if (removed.length === 0 || rest.length === 0) return undefined;
  const before: Program = { ...program, eqns: program.eqns.slice(0, first + count), outputs: given };
  try {
    const values = given.length === 0 ? [] : interpretSpmd(before, mesh, inputs);
    const next = {
      ...one,
      program: { ...program, inputs: [...program.inputs, ...given], eqns: rest },
      inputs: [...inputs, ...values],
      donated: [...donated, ...given.map(() => false)],
    };
    return withOutputs(next, program.outputs);
  } catch {
    return undefined;
  }
}

function keepInputs(one: ComparedCase, needed: ReadonlySet<number>): ComparedCase {
  const places = one.program.inputs.flatMap(({ id }, i) => (needed.has(id) ? [i] : []));
  return {
    ...one,
    program: { ...one.program, inputs: places.map((i) => at(one.program.inputs, i)) },
    inputs: places.map((i) => at(one.inputs, i)),
    donated: places.map((i) => at(one.donated, i)),
  };
}
