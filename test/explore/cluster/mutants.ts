/** Bugs to plant in what processes do together; each must be found, and `seeds.json` says by which seed. */
import type { Change } from "../load.js";

/** A planted bug. */
export interface Mutant extends Change {
  readonly name: string;
}

function inFile(file: string, bugs: readonly (readonly [string, string, string])[]): Mutant[] {
  return bugs.map(([name, from, to]) => ({ name, file: `src/${file}`, from, to }));
}

export const mutants: readonly Mutant[] = [
  // Those that this project once had.
  ...inFile("engines/mpi/failureReport.ts", [
    ["a late process is accused of having diverged", "lateDevice(recordings);", "undefined as never;"],
  ]),
  ...inFile("train/files/checkpoints/checkpointWrite.ts", [
    [
      "the folders above a first checkpoint are not synced",
      "if (before.length === 0) await syncFoldersAbove(files, root);",
      "",
    ],
  ]),
  // Messages.
  ...inFile("engines/mpi/library/messages.ts", [
    ["messages count as arrived at the first look", "if (this.words[0] === 0) return false;", ""],
  ]),
  ...inFile("engines/mpi/library/tags.ts", [
    [
      "tags do not tell the devices of a process apart",
      "(((use << DEVICE_BITS) | from) << DEVICE_BITS)",
      "((use << DEVICE_BITS) << DEVICE_BITS)",
    ],
  ]),
  ...inFile("engines/mpi/exchange/messageExchange.ts", [
    [
      "a receive has the sequence number of the last collective",
      "tagOf(received[phase] ?? 0, sequence)",
      "tagOf(received[phase] ?? 0, sequence - 1)",
    ],
    [
      "devices of a process do not wait for what others received",
      "this.link.awaitMembers(this.neighbours, WORDS.arrived, this.sequence);",
      "",
    ],
  ]),
  ...inFile("engines/mpi/exchange/links.ts", [
    ["what arrives is used before it has arrived", "this.wait(batch);\n        this.end", "this.end"],
  ]),
  ...inFile("engines/mpi/world.ts", [
    [
      "a text is shared before all have sent theirs",
      "if (entry.batch.isDone()) pending.delete(entry);",
      "if (entry.batch.isDone() || pending.size === 1) pending.delete(entry);",
    ],
  ]),
  ...inFile("engines/mpi/collectives/gathers.ts", [
    ["blocks of other processes come to one place", "staging + slot * stride));", "staging));"],
    [
      "a dense block is received beside its place",
      "target + sender * inner : staging",
      "target + sender * inner + 4 : staging",
    ],
  ]),
  ...inFile("engines/mpi/collectives/reductions.ts", [
    [
      "contributions overwrite each other",
      "exchange.receive(batch, member, PHASE.sources, slots + i * stride, block);",
      "exchange.receive(batch, member, PHASE.sources, slots, block);",
    ],
    ["the parts of a sum are not waited for", "exchange.links.wait(this.second);", ""],
  ]),
  // Agreement.
  ...inFile("engines/mpi/agreement.ts", [
    [
      "the agreement skips a member",
      "this.channel.tell(JSON.stringify(claim), others);",
      "this.channel.tell(JSON.stringify(claim), others.slice(1));",
    ],
    [
      "any fingerprint is taken for the own one",
      "if (own.fingerprint === other.fingerprint) {",
      "if (own.fingerprint.length === other.fingerprint.length) {",
    ],
  ]),
  ...inFile("engines/mpi/engine.ts", [
    [
      "results are read before the others have agreed",
      "Promise.all([outcome, this.agreement.settled()])",
      "Promise.all([outcome])",
    ],
  ]),
  // Checkpoints and restarts.
  ...inFile("train/files/checkpoints/checkpointWrite.ts", [
    ["files of a checkpoint are not synced", "await file.sync();", ""],
  ]),
];
