/** Bugs to plant in what processes do together; each must be found, and `seeds.json` says by which seed. */
import type { Change } from "../load.js";

/** A planted bug. */
export interface Mutant extends Change {
  readonly name: string;
}

function inFile(file: string, bugs: readonly (readonly [string, string, string])[]): Mutant[] {
  return bugs.map(([name, from, to]) => ({ name, file: `src/engines/mpi/collectives/${file}`, from, to }));
}

export const mutants: readonly Mutant[] = [
  ...inFile("gathers.ts", [
    ["blocks of other processes come to one place", "staging + slot * stride));", "staging));"],
    [
      "a dense block is received beside its place",
      "target + sender * inner : staging",
      "target + sender * inner + 4 : staging",
    ],
  ]),
  ...inFile("reductions.ts", [
    [
      "contributions overwrite each other",
      "exchange.receive(batch, member, PHASE.sources, slots + i * stride, block);",
      "exchange.receive(batch, member, PHASE.sources, slots, block);",
    ],
  ]),
];
